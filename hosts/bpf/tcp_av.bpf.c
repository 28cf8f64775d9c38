/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* TCP-AV in Linux: see ../algorithms/tcp_av.h. Here are the targets, by socket and by network, and the bound of the
 * retransmission timer. */
#include "cc_record.h"
#include "../algorithms/tcp_av.h"

#define AF_INET 2
#define SOL_SOCKET 1
#define SO_KEEPALIVE 9
#define SOL_TCP 6
#define TCP_USER_TIMEOUT 18
#define TCP_RTO_MAX_MS 44
#define RTO_MAX 1000	/* ms, the least that Linux takes */
#define GIVES_UP 924600 /* ms: when 15 retransmissions with the kernel's own timer are over */

struct av_options options OPTIONS = AV_DEFAULTS;

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
	__u32 prefix;	  /* bits */
	__u32 address[4]; /* of IPv6, or IPv4 mapped to ::ffff:a.b.c.d */
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, struct network);
	__type(value, __u32); /* kbit/s */
} network_targets SEC(".maps");

struct av_socket {
	struct av av;
	bool timer_is_bounded;
};

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

static __always_inline void pace(struct sock *sk, const struct av *av)
{
	if (av_paces(av) && sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

/* Bounds the retransmission timer: doubled repeatedly, it would wait after an outage for as long as that took. A user
 * timeout keeps the time after which the connection is given up; a socket that has one, or keep-alives, keeps its own. */
static __always_inline void bound_timer(struct sock *sk, struct av_socket *s)
{
	int user = 0, keep = 0, max = RTO_MAX;

	if (!s->av.target || s->timer_is_bounded)
		return;
	s->timer_is_bounded = true;
	if (bpf_getsockopt(sk, SOL_TCP, TCP_USER_TIMEOUT, &user, sizeof(user)) || user)
		return;
	if (bpf_getsockopt(sk, SOL_SOCKET, SO_KEEPALIVE, &keep, sizeof(keep)) || keep)
		return;
	user = GIVES_UP;
	/* Linux 6.15 and newer; an older one keeps its timer. */
	if (!bpf_setsockopt(sk, SOL_TCP, TCP_RTO_MAX_MS, &max, sizeof(max)))
		bpf_setsockopt(sk, SOL_TCP, TCP_USER_TIMEOUT, &user, sizeof(user));
}

static __always_inline void count(bool yielded, bool yielding)
{
	if (!yielded && yielding)
		__sync_fetch_and_add(&counters.gave_way, 1);
	else if (yielded && !yielding)
		__sync_fetch_and_add(&counters.resumed, 1);
}

CALLBACK(init, struct sock *sk)
{
	struct av_socket *s = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct tcp_view view = view_of(tp);

	*s = (struct av_socket){};
	av_start(&s->av, &view, target_of(sk));
	take(tp, &view);
	pace(sk, &s->av);
	bound_timer(sk, s);
}

/* Deletes the target of a socket that closes. */
SEC("struct_ops")
void BPF_PROG(release, struct sock *sk)
{
	u64 cookie = sk->__sk_common.skc_cookie.counter;

	bpf_map_delete_elem(&socket_targets, &cookie);
}

CALLBACK(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct av_socket *s = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct tcp_view view = view_of(tp);
	bool yielded = s->av.yielding;

	if (!av_ack(&s->av, &view))
		return;
	view.ca_state = ((struct inet_connection_sock *)sk)->icsk_ca_state;
	view.cwnd_limited = BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited);
	av_end_round(&s->av, &view, target_of(sk), &options);
	take(tp, &view);
	count(yielded, s->av.yielding);
	pace(sk, &s->av);
	bound_timer(sk, s);
}

CALLBACK(set_state, struct sock *sk, u8 state)
{
	struct av_socket *s = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct tcp_view view = view_of(tp);
	bool yielded = s->av.yielding;

	view.ca_state = ((struct inet_connection_sock *)sk)->icsk_ca_state;
	av_set_state(&s->av, &view, state, tp->prior_cwnd, &options);
	take(tp, &view);
	count(yielded, s->av.yielding);
}

CALLBACK(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct av *av = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct tcp_view view = view_of(tp);

	av_before_growth(av, &view);
	take(tp, &view);
	tcp_reno_cong_avoid(sk, ack, acked);
	view = view_of(tp);
	av_after_growth(av, &view, &options);
	take(tp, &view);
}

ANSWER(ssthresh, struct sock *sk)
{
	return av_ssthresh(private_of(sk), tcp_reno_ssthresh(sk));
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
	.cong_avoid = (void *)cong_avoid,
	.ssthresh = (void *)ssthresh,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "bpf_tcp_av",
};

char LICENSE[] SEC("license") = "GPL";
