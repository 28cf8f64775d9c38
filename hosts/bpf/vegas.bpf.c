/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* TCP Vegas: see vegas.h. */
#include "cc_record.h"
#include "vegas.h"

struct {
	__u32 alpha; /* packets in queues: fewer let the window grow */
	__u32 beta;  /* more make it shrink */
	__u32 gamma; /* more end slow start */
} options OPTIONS = {2, 4, 1};

CALLBACK(init, struct sock *sk)
{
	vegas_init(sk);
}

CALLBACK(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	vegas_sample(sk, sample);
}

CALLBACK(set_state, struct sock *sk, u8 state)
{
	vegas_set_state(sk, state);
}

CALLBACK(cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_CWND_RESTART || event == CA_EVENT_TX_START)
		vegas_init(sk);
}

CALLBACK(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	vegas_ack(sk, ack, acked, options.alpha, options.beta, options.gamma);
}

ANSWER(ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

ANSWER(undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops control = {
	.init = (void *)init,
	.pkts_acked = (void *)pkts_acked,
	.set_state = (void *)set_state,
	.cwnd_event = (void *)cwnd_event,
	.cong_avoid = (void *)cong_avoid,
	.ssthresh = (void *)ssthresh,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "bpf_vegas",
	.flags = NON_RESTRICTED,
};

char LICENSE[] SEC("license") = "GPL";
