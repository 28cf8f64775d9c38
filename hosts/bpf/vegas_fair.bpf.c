/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Vegas-Fair: Jung and Park, "Instantaneous fairness of TCP in heterogeneous traffic wireless LAN environments", 2016,
 * section 5.1 and Fig. 5. After a pause in sending, Vegas asks for more until an introduction has been sent. */
#include "cc_record.h"
#include "vegas.h"

extern int CONFIG_HZ __kconfig;

struct {
	__u32 alpha, beta, gamma; /* as in vegas.bpf.c */
	__u32 pause;		  /* ms without a segment: a new session starts */
	__u32 introduction;	  /* bytes of the session during which it is favoured */
	__u32 more_alpha, more_beta;
} options OPTIONS = {2, 4, 1, 1000, 5000, 1, 2};

struct vegas_fair {
	struct vegas vegas;
	bool introducing;
	u64 session_start; /* bytes sent before the session */
};

CALLBACK(init, struct sock *sk)
{
	struct vegas_fair *f = private_of(sk);

	f->introducing = false; /* a connection's first segment follows no earlier one */
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
	struct vegas_fair *f = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (event == CA_EVENT_TX_START) { /* before data is sent and counted, with none in flight */
		u32 idle = (u32)bpf_jiffies64() - tp->lsndtime;

		if ((u64)idle * 1000 >= (u64)options.pause * CONFIG_HZ) {
			f->introducing = true;
			f->session_start = tp->bytes_sent;
		}
	}
	if (event == CA_EVENT_CWND_RESTART || event == CA_EVENT_TX_START)
		vegas_init(sk);
}

CALLBACK(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct vegas_fair *f = private_of(sk);
	u32 alpha = options.alpha, beta = options.beta;

	if (f->introducing) {
		if (tcp_sk(sk)->bytes_sent - f->session_start >= options.introduction) {
			f->introducing = false;
		} else {
			alpha += options.more_alpha;
			beta += options.more_beta;
		}
	}
	vegas_ack(sk, ack, acked, alpha, beta, options.gamma);
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
	.name = "bpf_vegas_fair",
	.flags = NON_RESTRICTED,
};

char LICENSE[] SEC("license") = "GPL";
