/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* TCP Vegas: Brakmo and Peterson, "TCP Vegas: end to end congestion avoidance on a global internet", IEEE JSAC 13(8), 1995,
 * with the choices of Linux: slow start doubles every round, the round's smallest RTT is the round's RTT, after idle time the
 * base RTT is measured anew. */
#pragma once
#include "tcp.h"

#define VEGAS_NO_RTT 0x7fffffff

struct vegas_options {
	u32 alpha; /* packets in queues: fewer let the window grow */
	u32 beta;  /* more make it shrink */
	u32 gamma; /* more end slow start */
};

#define VEGAS_DEFAULTS {2, 4, 1}

/* hosts/src/cc/status.rs reads this of every socket. */
struct vegas {
	u32 round_end; /* the round is over when this is acknowledged */
	u32 samples;   /* RTTs seen in this round */
	u32 round_rtt; /* smallest of them, us */
	u32 base_rtt;  /* smallest of the connection since it was idle, us */
	bool active;   /* off while losses are repaired */
};

static __always_inline void vegas_start_round(struct vegas *v, const struct tcp_view *tcp)
{
	v->round_end = tcp->snd_nxt;
	v->samples = 0;
	v->round_rtt = VEGAS_NO_RTT;
}

/* Starts a connection, or resumes it after idle time. */
static __always_inline void vegas_start(struct vegas *v, const struct tcp_view *tcp)
{
	v->base_rtt = VEGAS_NO_RTT;
	v->active = true;
	vegas_start_round(v, tcp);
}

/* rtt_us: -1: none. */
static __always_inline void vegas_sample(struct vegas *v, s32 rtt_us)
{
	u32 rtt = (u32)rtt_us + 1; /* never 0: it is divided by */

	if (rtt_us < 0)
		return;
	v->base_rtt = smaller(v->base_rtt, rtt);
	v->round_rtt = smaller(v->round_rtt, rtt);
	v->samples++;
}

static __always_inline void vegas_set_state(struct vegas *v, const struct tcp_view *tcp, u8 state)
{
	v->active = state == TCP_CA_Open;
	if (v->active)
		vegas_start_round(v, tcp);
}

/* The adjustment at the end of a round. `queued` is the paper's Diff: packets of this window that stood in queues. */
static __always_inline void vegas_adjust(const struct vegas *v, struct tcp_view *tcp, u32 acked,
					 const struct vegas_options *options)
{
	u32 cwnd = tcp->cwnd;
	u32 queued = (u64)cwnd * (v->round_rtt - v->base_rtt) / v->base_rtt;

	if (view_in_slow_start(tcp)) {
		if (queued > options->gamma) {
			cwnd = smaller(cwnd, (u64)cwnd * v->base_rtt / v->round_rtt + 1);
			tcp->ssthresh = smaller(tcp->ssthresh, cwnd);
		} else {
			view_slow_start(tcp, acked);
			cwnd = tcp->cwnd;
		}
	} else if (queued > options->beta) {
		cwnd--;
		tcp->ssthresh = smaller(tcp->ssthresh, cwnd);
	} else if (queued < options->alpha) {
		cwnd++;
	}
	tcp->cwnd = cwnd < 2 ? 2 : smaller(cwnd, tcp->cwnd_clamp);
	tcp->ssthresh = larger(tcp->ssthresh, (tcp->cwnd >> 1) + (tcp->cwnd >> 2));
}

/* Handles an ACK of `ack`, of so many packets. Returns true if the window grows as Reno's instead. */
static __always_inline bool vegas_ack(struct vegas *v, struct tcp_view *tcp, u32 ack, u32 acked,
				      const struct vegas_options *options)
{
	bool judged;

	if (!v->active)
		return true;
	if (!after(ack, v->round_end)) {
		if (view_in_slow_start(tcp))
			view_slow_start(tcp, acked);
		return false;
	}
	/* One or two samples may all be of delayed ACKs: too few to judge by. */
	judged = v->samples > 2;
	if (judged)
		vegas_adjust(v, tcp, acked, options);
	vegas_start_round(v, tcp);
	return !judged;
}
