/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Congestion control of the subflows of one connection together: BALIA (Peng, Walid, Hwang and Low, "Multipath TCP: Analysis,
 * Design, and Implementation", IEEE/ACM Transactions on Networking 24(1), 2016; draft-walid-mptcp-congestion-control-04).
 * It keeps the three goals of RFC 6356: together at least what one TCP would get on the best path, on no path more than
 * that, and off the congested ones. Alone a subflow is Reno.
 *
 * User space puts a subflow's socket into `members` and its connection into `groups`. */
#include "cc.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

#define BPF_MAP_TYPE_SK_STORAGE 24
#define PARTS 32      /* src/coupling.rs has it too */
#define FRESH 2000000 /* us: a subflow whose last acknowledgement is older than that takes nothing from the others */
#define US 1000000
#define ONE 1024

extern void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 every, u32 acked) __ksym;

struct member {
	u64 group;
	u64 part;
};

struct part {
	u64 rate; /* bytes/s that the window allows */
	u64 at;	  /* us */
};

struct group {
	struct part parts[PARTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct group);
} groups SEC(".maps");

/* Rates of a connection's subflows: of this one, of the fastest, of all. */
struct rates {
	u64 own;
	u64 most;
	u64 sum;
};

static __always_inline struct group *group_of(struct sock *sk, u32 *part)
{
	struct member *member = bpf_sk_storage_get(&members, sk, 0, 0);

	if (!member || member->part >= PARTS)
		return 0;
	*part = member->part;
	return bpf_map_lookup_elem(&groups, &member->group);
}

/* Publishes this subflow's rate and reads those of the others. False: it is alone, or has no round-trip time yet. */
static __always_inline bool hear(struct sock *sk, struct rates *rates)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 now = tp->tcp_mstamp;
	struct group *group;
	u32 own, i;

	group = group_of(sk, &own);
	if (!group || own >= PARTS || !tp->srtt_us)
		return false;
	rates->own = (u64)tp->snd_cwnd * tp->mss_cache * 8 * US / tp->srtt_us;
	rates->most = rates->sum = max(rates->own, 1);
	group->parts[own].rate = rates->own;
	group->parts[own].at = now;
	for (i = 0; i < PARTS; i++) {
		u64 rate = group->parts[i].rate;

		if (i == own || (s64)(now - group->parts[i].at) > FRESH)
			continue;
		rates->sum += rate;
		rates->most = max(rates->most, rate);
	}
	return true;
}

static __always_inline bool window_is_full(const struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited) ||
	       (in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out);
}

SEC("struct_ops")
void BPF_PROG(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 every = tp->snd_cwnd;
	struct rates rates;

	if (!window_is_full(tp))
		return;
	if (in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	if (hear(sk, &rates)) {
		/* An acknowledged packet opens the window by (own + most) (4 own + most) / (10 sum^2) of 1/window: all of it if alone. */
		u64 near = (rates.own + rates.most) * ONE / rates.sum;
		u64 far = (4 * rates.own + rates.most) * ONE / rates.sum;

		every = every * 10 * ONE * ONE / max(near * far, 1);
	}
	tcp_cong_avoid_ai(tp, min(every, INFINITE_SSTHRESH), acked);
}

SEC("struct_ops")
u32 BPF_PROG(ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 cut = tp->snd_cwnd / 2;
	struct rates rates;

	/* Half, and up to three quarters the slower it is beside the fastest. */
	if (hear(sk, &rates) && rates.own)
		cut = (u64)tp->snd_cwnd * min(rates.most * ONE / rates.own, ONE * 3 / 2) / (2ULL * ONE);
	return max(tp->snd_cwnd - (u32)cut, 2);
}

SEC("struct_ops")
u32 BPF_PROG(undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC("struct_ops")
void BPF_PROG(release, struct sock *sk)
{
	struct group *group;
	u32 own;

	group = group_of(sk, &own);
	if (group && own < PARTS)
		group->parts[own].rate = 0;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops coupled = {
	.cong_avoid = (void *)cong_avoid,
	.ssthresh = (void *)ssthresh,
	.undo_cwnd = (void *)undo_cwnd,
	.release = (void *)release,
	.name = "batcp", /* src/coupling.rs makes it the process's own */
};
