/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* TCP-AV, a QoS-TCP: Ando, Murase and Oguchi, "Characteristics of QoS-guaranteed TCP on real mobile terminal in wireless LAN",
 * section II.B. The user names a target rate. Of it and the RTT follows the window that the rate takes; the slow-start
 * threshold is set to that window, a lost packet does not push the window below it, and the guarantee is given up before
 * the network collapses. The paper names these behaviours; the rule for giving way is ours (docs/hosts/cc.md):
 *   - while smoothed over 8 rounds more than `loss_limit` percent of the packets are lost, or after more than
 *     `timeout_limit` timeouts without a good round between them, the socket is plain Reno;
 *   - it tries again once `rest` ms are over and the loss has fallen to half the limit. */
#include "cc_record.h"

#define ONE 65536 /* loss shares are in 1/65536 */
#define AF_INET 2

struct {
	__u32 target;        /* kbit/s of payload for sockets without a target of their own; 0: none, plain Reno */
	__u32 loss_limit;    /* percent */
	__u32 timeout_limit;
	__u32 rest;          /* ms */
	__u32 ceiling;       /* 1: the window does not exceed the target's either */
} options OPTIONS = {0, 10, 2, 5000, 0};

struct {
	__u32 gave_way;
	__u32 resumed;
} counters COUNTERS;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, __u64);   /* cookie */
	__type(value, __u32); /* kbit/s */
} socket_targets SEC(".maps");

struct network {
	__u32 prefix; /* bits */
	__u32 address[4]; /* of IPv6, or IPv4 mapped to ::ffff:a.b.c.d */
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, struct network);
	__type(value, __u32); /* kbit/s */
} network_targets SEC(".maps");

/* src/cc/status.rs reads this of every socket. */
struct av {
	u32 target;    /* kbit/s; 0: none */
	u32 window;    /* packets that the target takes */
	u32 loss;      /* smoothed share */
	u32 timeouts;  /* since the last good round */
	u32 gave_way;  /* how often */
	bool yielding;
	u32 round_end; /* the round is over when this is acknowledged */
	u32 lost;      /* tp->lost and tp->delivered at its start */
	u32 delivered;
	u64 since;     /* us: when it gave way */
};

static __always_inline u32 half_of(u32 window)
{
	return max(window >> 1, 2);
}

static __always_inline bool guarantees(const struct av *av)
{
	return av->target && !av->yielding;
}

static __always_inline u32 target_of(struct sock *sk)
{
	struct network key = {.prefix = 128};
	u64 cookie = sk->__sk_common.skc_cookie.counter;
	u32 *target;

	target = cookie ? bpf_map_lookup_elem(&socket_targets, &cookie) : NULL;
	if (target)
		return *target;
	if (sk->__sk_common.skc_family == AF_INET) {
		key.address[2] = bpf_htonl(0xffff);
		key.address[3] = sk->__sk_common.skc_daddr;
	} else {
		for (int i = 0; i < 4; i++)
			key.address[i] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[i];
	}
	target = bpf_map_lookup_elem(&network_targets, &key);
	return target ? *target : options.target;
}

/* window = target * RTT, rounded up to packets. */
static __always_inline void renew_window(struct sock *sk, struct av *av)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 bytes = (u64)av->target * (tp->srtt_us >> 3) / 8000; /* kbit/s * us = bit/1000 */
	u32 mss = max(tp->mss_cache, 1);
	u64 packets = (bytes + mss - 1) / mss;

	av->window = max(min(packets, INFINITE_SSTHRESH), 2);
}

static __always_inline void start_round(struct av *av, const struct tcp_sock *tp)
{
	av->round_end = tp->snd_nxt;
	av->lost = tp->lost;
	av->delivered = tp->delivered;
}

static __always_inline void give_way(struct av *av, struct tcp_sock *tp, u32 window)
{
	if (!guarantees(av))
		return;
	av->yielding = true;
	av->since = tp->tcp_mstamp;
	av->gave_way++;
	__sync_fetch_and_add(&counters.gave_way, 1);
	tp->snd_ssthresh = min(tp->snd_ssthresh, half_of(window));
	tp->snd_cwnd = min(tp->snd_cwnd, tp->snd_ssthresh);
}

CALLBACK(init, struct sock *sk)
{
	struct av *av = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	*av = (struct av){.target = target_of(sk)};
	renew_window(sk, av);
	start_round(av, tp);
	if (av->target)
		tp->snd_ssthresh = av->window;
}

/* The target of a socket goes with it. */
SEC("struct_ops")
void BPF_PROG(release, struct sock *sk)
{
	u64 cookie = sk->__sk_common.skc_cookie.counter;

	bpf_map_delete_elem(&socket_targets, &cookie);
}

/* The end of a round: what it lost, and what follows from that. */
CALLBACK(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct av *av = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	bool open = ((struct inet_connection_sock *)sk)->icsk_ca_state == TCP_CA_Open;
	u32 lost, delivered, limit;

	if (after(av->round_end, tp->snd_una))
		return;
	lost = tp->lost - av->lost;
	delivered = tp->delivered - av->delivered;
	if (lost + delivered)
		av->loss = (7 * av->loss + (u64)lost * ONE / (lost + delivered)) / 8;
	start_round(av, tp);
	av->target = target_of(sk);
	renew_window(sk, av);
	if (open)
		av->timeouts = 0;
	limit = options.loss_limit * ONE / 100;
	if (!av->yielding) {
		if (av->loss > limit)
			give_way(av, tp, tp->snd_cwnd);
	} else if (open && av->loss <= limit / 2 && tp->tcp_mstamp - av->since >= options.rest * 1000ULL) {
		av->yielding = false;
		__sync_fetch_and_add(&counters.resumed, 1);
		if (av->target)
			tp->snd_ssthresh = max(tp->snd_ssthresh, av->window);
	}
}

CALLBACK(set_state, struct sock *sk, u8 state)
{
	struct av *av = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (state != TCP_CA_Loss)
		return;
	start_round(av, tp); /* a timeout marks the whole window lost, which says nothing about the share that is */
	av->timeouts++;
	if (av->timeouts > options.timeout_limit)
		give_way(av, tp, tp->prior_cwnd);
}

CALLBACK(cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct av *av = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	/* After a timeout slow start leads back to the target. */
	if (event == CA_EVENT_LOSS && guarantees(av))
		tp->snd_ssthresh = max(tp->snd_ssthresh, av->window);
}

CALLBACK(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct av *av = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (guarantees(av) && in_slow_start(tp))
		tp->snd_ssthresh = av->window;
	tcp_reno_cong_avoid(sk, ack, acked);
	if (options.ceiling && av->target)
		tp->snd_cwnd = min(tp->snd_cwnd, av->window);
}

/* Temporary congestion: the window is kept, as far as the target needs it. */
ANSWER(ssthresh, struct sock *sk)
{
	struct av *av = private_of(sk);
	u32 cwnd = tcp_sk(sk)->snd_cwnd;
	u32 half = tcp_reno_ssthresh(sk);
	u32 kept = min(cwnd, av->window);

	return guarantees(av) ? max(half, kept) : half;
}

ANSWER(undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops control = {
	.init = (void *)init,
	.release = (void *)release,
	.pkts_acked = (void *)pkts_acked,
	.set_state = (void *)set_state,
	.cwnd_event = (void *)cwnd_event,
	.cong_avoid = (void *)cong_avoid,
	.ssthresh = (void *)ssthresh,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "bpf_tcp_av",
};

char LICENSE[] SEC("license") = "GPL";
