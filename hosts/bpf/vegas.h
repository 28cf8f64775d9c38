/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* TCP Vegas: Brakmo and Peterson, "TCP Vegas: end to end congestion avoidance on a global internet", IEEE JSAC 13(8), 1995,
 * with the choices of Linux: slow start doubles every round, the round's smallest RTT is the round's RTT, after idle time the
 * base RTT is measured anew. */
#pragma once
#include "cc.h"

#define NO_RTT 0x7fffffff

struct vegas {
	u32 round_end; /* the round is over when this is acknowledged */
	u32 samples;   /* RTTs seen in this round */
	u32 round_rtt; /* smallest of them, us */
	u32 base_rtt;  /* smallest of the connection since it was idle, us */
	bool active;   /* off while losses are repaired */
};

static __always_inline void vegas_start_round(struct vegas *v, const struct tcp_sock *tp)
{
	v->round_end = tp->snd_nxt;
	v->samples = 0;
	v->round_rtt = NO_RTT;
}

static __always_inline void vegas_init(struct sock *sk)
{
	struct vegas *v = private_of(sk);

	v->base_rtt = NO_RTT;
	v->active = true;
	vegas_start_round(v, tcp_sk(sk));
}

static __always_inline void vegas_sample(struct sock *sk, const struct ack_sample *sample)
{
	struct vegas *v = private_of(sk);
	u32 rtt = sample->rtt_us + 1; /* never 0: it is divided by */

	if (sample->rtt_us < 0)
		return;
	v->base_rtt = min(v->base_rtt, rtt);
	v->round_rtt = min(v->round_rtt, rtt);
	v->samples++;
}

static __always_inline void vegas_set_state(struct sock *sk, u8 state)
{
	struct vegas *v = private_of(sk);

	v->active = state == TCP_CA_Open;
	if (v->active)
		vegas_start_round(v, tcp_sk(sk));
}

/* The adjustment at the end of a round. `queued` is the paper's Diff: packets of this window that stood in queues. */
static __always_inline void vegas_adjust(struct tcp_sock *tp, const struct vegas *v, u32 acked, u32 alpha, u32 beta,
					 u32 gamma)
{
	u32 cwnd = tp->snd_cwnd;
	u32 queued = (u64)cwnd * (v->round_rtt - v->base_rtt) / v->base_rtt;

	if (in_slow_start(tp)) {
		if (queued > gamma) {
			cwnd = min(cwnd, (u32)((u64)cwnd * v->base_rtt / v->round_rtt) + 1);
			tp->snd_ssthresh = min(tp->snd_ssthresh, cwnd);
		} else {
			tcp_slow_start(tp, acked);
			cwnd = tp->snd_cwnd;
		}
	} else if (queued > beta) {
		cwnd--;
		tp->snd_ssthresh = min(tp->snd_ssthresh, cwnd);
	} else if (queued < alpha) {
		cwnd++;
	}
	cwnd = cwnd < 2 ? 2 : min(cwnd, tp->snd_cwnd_clamp);
	tp->snd_cwnd = cwnd;
	tp->snd_ssthresh = max(tp->snd_ssthresh, (cwnd >> 1) + (cwnd >> 2));
}

static __always_inline void vegas_ack(struct sock *sk, u32 ack, u32 acked, u32 alpha, u32 beta, u32 gamma)
{
	struct vegas *v = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (!v->active) {
		tcp_reno_cong_avoid(sk, ack, acked);
	} else if (after(ack, v->round_end)) {
		/* One or two samples may all be of delayed ACKs: too few to judge by. */
		if (v->samples > 2)
			vegas_adjust(tp, v, acked, alpha, beta, gamma);
		else
			tcp_reno_cong_avoid(sk, ack, acked);
		vegas_start_round(v, tp);
	} else if (in_slow_start(tp)) {
		tcp_slow_start(tp, acked);
	}
}
