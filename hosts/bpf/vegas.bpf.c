/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* TCP Vegas in Linux: see ../algorithms/vegas.h. */
#include "vegas_socket.h"

struct vegas_options options OPTIONS = VEGAS_DEFAULTS;

CALLBACK(init, struct sock *sk)
{
	start(sk);
}

CALLBACK(cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_CWND_RESTART || event == CA_EVENT_TX_START)
		start(sk);
}

CALLBACK(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	ack_of(sk, ack, acked, &options);
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
