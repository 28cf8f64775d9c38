/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Vegas-Fair in Linux: see ../algorithms/vegas_fair.h. */
#include "vegas_socket.h"
#include "../algorithms/vegas_fair.h"

extern int CONFIG_HZ __kconfig;

struct vegas_fair_options options OPTIONS = VEGAS_FAIR_DEFAULTS;

CALLBACK(init, struct sock *sk)
{
	struct vegas_fair *f = private_of(sk);

	f->introducing = false; /* a connection's first segment follows no earlier one */
	start(sk);
}

CALLBACK(cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (event == CA_EVENT_TX_START) { /* before data is sent and counted, with none in flight */
		u32 idle = (u32)bpf_jiffies64() - tp->lsndtime;

		vegas_fair_transmit(private_of(sk), idle * (1000 * NS_PER_MS) / (u32)CONFIG_HZ, tp->bytes_sent,
				    &options);
	}
	if (event == CA_EVENT_CWND_RESTART || event == CA_EVENT_TX_START)
		start(sk);
}

CALLBACK(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct vegas_options now = vegas_fair_now(private_of(sk), tcp_sk(sk)->bytes_sent, &options);

	ack_of(sk, ack, acked, &now);
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
	.name = "bpf_vegas_fair",
	.flags = NON_RESTRICTED,
};

char LICENSE[] SEC("license") = "GPL";
