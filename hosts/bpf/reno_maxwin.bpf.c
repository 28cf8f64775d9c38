/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Reno-MaxWin10: Reno (RFC 5681) whose window never exceeds a bound. Jung and Park, "Instantaneous fairness of TCP in
 * heterogeneous traffic wireless LAN environments", 2016, section 5.1. */
#include "cc_record.h"

struct {
	__u32 bound; /* packets */
} options OPTIONS = {10};

CALLBACK(init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tp->snd_cwnd = min(tp->snd_cwnd, options.bound);
}

CALLBACK(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tcp_reno_cong_avoid(sk, ack, acked);
	tp->snd_cwnd = min(tp->snd_cwnd, options.bound);
}

ANSWER(ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

ANSWER(undo_cwnd, struct sock *sk)
{
	u32 cwnd = tcp_reno_undo_cwnd(sk);

	return min(cwnd, options.bound);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops control = {
	.init = (void *)init,
	.cong_avoid = (void *)cong_avoid,
	.ssthresh = (void *)ssthresh,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "bpf_reno_maxwin",
	.flags = NON_RESTRICTED,
};

char LICENSE[] SEC("license") = "GPL";
