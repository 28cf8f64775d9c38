/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Reno-MaxWin10 in Linux: see ../algorithms/reno_maxwin.h. */
#include "cc_record.h"
#include "../algorithms/reno_maxwin.h"

struct reno_maxwin_options options OPTIONS = RENO_MAXWIN_DEFAULTS;

CALLBACK(init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tp->snd_cwnd = reno_maxwin(tp->snd_cwnd, &options);
}

CALLBACK(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tcp_reno_cong_avoid(sk, ack, acked);
	tp->snd_cwnd = reno_maxwin(tp->snd_cwnd, &options);
}

ANSWER(ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

ANSWER(undo_cwnd, struct sock *sk)
{
	return reno_maxwin(tcp_reno_undo_cwnd(sk), &options);
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
