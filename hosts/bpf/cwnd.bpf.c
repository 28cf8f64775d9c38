// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Bounds the congestion windows of live sockets of one network namespace: an iterator over its TCP sockets, run by the
 * daemon when bounds change. It is attached to no hook and no cgroup, so nothing runs between two passes. */
#include "kernel.h"

struct sock_common {
} __attribute__((preserve_access_index));

struct inet_connection_sock {
	__u8 icsk_ca_state : 5;
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

#define BPF_HASH 1
#define NO_PREALLOC 1
#define SOL_TCP 6
#define TCP_BPF_SNDCWND_CLAMP 1002
#define TCP_CA_CWR 2
#define TCP_CA_RECOVERY 3
#define SOCKETS 4096
#define UNBOUNDED 0x7fffffff /* the highest clamp that bpf_setsockopt takes; a fresh socket has 0xffffffff */

/* Both maps are keyed by the socket's cookie and count segments. `wanted` is the daemon's, `applied` the program's. */
struct {
	__uint(type, BPF_HASH);
	__uint(map_flags, NO_PREALLOC);
	__uint(max_entries, SOCKETS);
	__type(key, __u64);
	__type(value, __u32);
} wanted SEC(".maps");

struct undo {
	__u32 clamp; /* set by this program */
	__u32 before;
};

struct {
	__uint(type, BPF_HASH);
	__uint(map_flags, NO_PREALLOC);
	__uint(max_entries, SOCKETS);
	__type(key, __u64);
	__type(value, struct undo);
} applied SEC(".maps");

/* CLOCK_MONOTONIC, ns. Once it is over, a pass undoes every bound: those of a daemon that does not renew it any more. */
__u64 lease_until;
/* Sockets that refused a clamp. */
__u64 refused;
/* Sockets that could not yet get theirs: another pass is needed. */
__u64 waiting;

/* Sets the slow-start threshold, too: below its bound the window grows by slow start. */
static bool set_clamp(struct tcp_sock *tp, __u32 clamp)
{
	if (bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SNDCWND_CLAMP, &clamp, sizeof(clamp)) == 0)
		return true;
	__sync_fetch_and_add(&refused, 1);
	return false;
}

/* Returns true if the clamp must wait: it is the slow-start threshold, too. Raised during a reduction of the window,
 * proportional rate reduction (RFC 6937) multiplies what is delivered by threshold / window before the loss:
 * thousands of segments where that window was 1. */
static bool must_wait(struct tcp_sock *tp, __u32 clamp)
{
	__u8 state = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
	return (state == TCP_CA_CWR || state == TCP_CA_RECOVERY) && clamp > tp->snd_ssthresh;
}

SEC("iter/tcp")
int bound(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	if (!common)
		return 0;
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return 0;
	__u64 cookie = bpf_get_socket_cookie(common);
	struct undo *undo = bpf_map_lookup_elem(&applied, &cookie);
	__u32 *want = bpf_ktime_get_ns() < lease_until ? bpf_map_lookup_elem(&wanted, &cookie) : 0;
	__u32 clamp = tp->snd_cwnd_clamp;
	if (!want) {
		/* A clamp that another program set meanwhile stays. */
		if (undo && (clamp != undo->clamp || set_clamp(tp, undo->before)))
			bpf_map_delete_elem(&applied, &cookie);
		return 0;
	}
	/* The lower bound: a loss lowers the threshold, and the window would return to its bound by a segment a round trip. */
	if (clamp == *want && tp->snd_ssthresh >= *want)
		return 0;
	if (must_wait(tp, *want)) {
		__sync_fetch_and_add(&waiting, 1);
		return 0;
	}
	struct undo now = {
		.clamp = *want,
		.before = undo		      ? undo->before
			  : clamp < UNBOUNDED ? clamp
					      : UNBOUNDED,
	};
	/* The way back is written down first: nothing is bounded that cannot be undone. */
	if (bpf_map_update_elem(&applied, &cookie, &now, 0) == 0 && !set_clamp(tp, now.clamp))
		bpf_map_delete_elem(&applied, &cookie);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
