/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* TCP-AV, a QoS-TCP: Ando, Murase and Oguchi, "Characteristics of QoS-guaranteed TCP on real mobile terminal in wireless LAN",
 * section II.B. The user names a target rate. Of it and the RTT follows the window that the rate takes; the slow-start
 * threshold is that window, a loss or a mark returns to it, and the guarantee is given up before the network collapses. The
 * paper names these behaviours; the loop over the delivered rate and the rules for giving way are ours (docs/hosts/cc.md).
 * The socket is plain Reno
 *   - while smoothed over 8 rounds more than `loss_limit` percent of the packets are lost, or
 *   - after more than `timeout_limit` timeouts of a link that lives without a good round between them, or
 *   - when losses or marks have kept it, once its window was the target's, more than 5 % below that for `patience` ms;
 * it tries again once `rest` ms are over and the loss has fallen to half the limit. */
#pragma once
#include "tcp.h"

#define AV_ONE 65536		   /* loss shares and the gain are in 1/65536 */
#define AV_DEAD (1000 * NS_PER_MS) /* without an acknowledgement: the link is dead */
#define AV_PACED 1000000	   /* kbit/s */
#define AV_GAIN_PART 4	/* of a round's error: a loop that sees its step a round later rings from a half on */
#define AV_TOLERANCE 20 /* a twentieth of the target */

struct av_options {
	u32 target;	/* kbit/s of payload for sockets without a target of their own; 0: none, plain Reno */
	u32 loss_limit; /* percent */
	u32 timeout_limit;
	u32 rest;     /* ms */
	u32 ceiling;  /* 1: the window does not exceed the target's either */
	u32 patience; /* ms */
};

#define AV_DEFAULTS {0, 10, 2, 5000, 0, 1500}

/* hosts/src/cc/status.rs reads this of every socket. */
struct av {
	u32 target;   /* kbit/s; 0: none */
	u32 window;   /* packets that the target takes; 0: unknown, as there is no RTT yet */
	u32 loss;     /* smoothed share */
	u32 timeouts; /* since the last good round */
	u32 gave_way; /* how often */
	bool yielding;
	bool reached;  /* the window has been the target's since the start or the last timeout */
	bool is_short; /* rounds miss the target, since short_since */
	u32 round_end; /* the round is over when this is acknowledged */
	u32 lost;      /* the view's lost, delivered and delivered_ce at its start */
	u32 delivered;
	u32 marked;
	u32 gain;	 /* of the window over target * RTT */
	u64 heard;	 /* ns: the last acknowledgement */
	u64 since;	 /* ns: when it gave way */
	u64 round_start; /* ns */
	u64 short_since; /* ns: start of the first round that missed the target */
};

static __always_inline bool av_guarantees(const struct av *av)
{
	return av->target && av->window && !av->yielding;
}

/* Returns true if the sender must be paced. A loss may open the window at once, by as much as the target takes: paced,
 * that is no burst. Beyond 1 Gbit/s the timer of every burst would cost more than everything else (docs/hosts/cc.md). */
static __always_inline bool av_paces(const struct av *av)
{
	return av->target && av->target <= AV_PACED;
}

/* window = gain * target * RTT, rounded up to packets. */
static __always_inline void av_renew_window(struct av *av, const struct tcp_view *tcp)
{
	u64 bytes = (u64)av->target * (tcp->srtt_us >> 3) / 8000; /* kbit/s * us = bit/1000 */
	u32 mss = larger(tcp->mss, 1);
	u64 packets = (bytes * av->gain / AV_ONE + mss - 1) / mss;

	av->window = tcp->srtt_us ? larger(smaller(packets, INFINITE_SSTHRESH), 2) : 0;
}

static __always_inline void av_start_round(struct av *av, const struct tcp_view *tcp)
{
	av->round_end = tcp->snd_nxt;
	av->round_start = tcp->now;
	av->lost = tcp->lost;
	av->delivered = tcp->delivered;
	av->marked = tcp->delivered_ce;
}

/* Starts a connection. The state is all zeros. */
static __always_inline void av_start(struct av *av, struct tcp_view *tcp, u32 target)
{
	av->target = target;
	av->gain = AV_ONE;
	av->heard = tcp->now;
	av_renew_window(av, tcp);
	av_start_round(av, tcp);
	if (av_guarantees(av))
		tcp->ssthresh = av->window;
}

static __always_inline void av_give_way(struct av *av, struct tcp_view *tcp, u32 window)
{
	if (!av_guarantees(av))
		return;
	av->yielding = true;
	av->since = tcp->now;
	av->gave_way++;
	tcp->ssthresh = smaller(tcp->ssthresh, half_of(window));
	tcp->cwnd = smaller(tcp->cwnd, tcp->ssthresh);
}

/* Adjusts the gain: a full window that delivered less than the target in a round is opened by a part of the difference,
 * and the other way round. A window below the target's is on its way there, one above it is Reno's. */
static __always_inline void av_close_loop(struct av *av, const struct tcp_view *tcp, u64 kbit)
{
	u64 target = av->target;
	u64 error = kbit < target ? target - kbit : smaller(kbit - target, target);
	u64 step = error * AV_ONE / target / AV_GAIN_PART;

	if (kbit < target && tcp->cwnd >= av->window)
		av->gain = smaller(av->gain + step, 2ULL * AV_ONE);
	else if (kbit >= target && tcp->cwnd == av->window)
		av->gain = larger(av->gain - step, AV_ONE / 2);
}

/* Handles an ACK. Returns true if it ends a round: av_end_round() follows. */
static __always_inline bool av_ack(struct av *av, const struct tcp_view *tcp)
{
	av->heard = tcp->now;
	return !after(av->round_end, tcp->snd_una);
}

/* Counts the packets that the round delivered and lost, and adjusts the window to them. target: from now on. */
static __always_inline void av_end_round(struct av *av, struct tcp_view *tcp, u32 target,
					 const struct av_options *options)
{
	u32 lost = tcp->lost - av->lost, delivered = tcp->delivered - av->delivered;
	/* RFC 3168: the receiver repeats a mark until it is answered, so a round has one; and a mark is as bad as a loss. */
	bool marked = tcp->delivered_ce != av->marked;
	bool open = tcp->ca_state == TCP_CA_Open, judged = tcp->cwnd_limited && av_guarantees(av);
	u32 limit = options->loss_limit * AV_ONE / 100;
	u64 start = av->round_start, kbit;

	if (lost + delivered)
		av->loss = (7ULL * av->loss +
			    smaller((u64)lost + marked, (u64)lost + delivered) * AV_ONE / (lost + delivered)) /
			   8;
	av_start_round(av, tcp);
	kbit = (u64)delivered * tcp->mss * 8000 / larger((tcp->now - start) / NS_PER_US, 1);
	if (judged)
		av_close_loop(av, tcp, kbit);
	if (!judged || kbit + av->target / AV_TOLERANCE >= av->target) {
		av->is_short = false;
	} else if (!av->is_short && av->reached && (lost || marked)) {
		av->is_short = true;
		av->short_since = start;
	}
	av->target = target;
	av_renew_window(av, tcp);
	if (open)
		av->timeouts = 0;
	if (av->yielding) {
		if (open && av->loss <= limit / 2 && tcp->now - av->since >= options->rest * NS_PER_MS) {
			av->yielding = false;
			av->reached = false;
		}
	} else if (av->loss > limit || (av->is_short && tcp->now - av->short_since >= options->patience * NS_PER_MS)) {
		av_give_way(av, tcp, tcp->cwnd);
	}
}

/* prior_cwnd: the window before the last reduction. */
static __always_inline void av_set_state(struct av *av, struct tcp_view *tcp, u8 state, u32 prior_cwnd,
					 const struct av_options *options)
{
	/* A reduction ends with the window at the threshold. */
	if (state == TCP_CA_Open && (tcp->ca_state == TCP_CA_CWR || tcp->ca_state == TCP_CA_Recovery))
		av->reached = true;
	if (state != TCP_CA_Loss)
		return;
	av_start_round(av, tcp); /* a timeout marks the whole window lost, which says nothing about the share that is */
	av->is_short = false;
	av->reached = false;
	/* A sender that receives nothing at all has no congested link, but a dead one. */
	av->timeouts = tcp->now - av->heard < AV_DEAD ? av->timeouts + 1 : 0;
	if (av->timeouts > options->timeout_limit)
		av_give_way(av, tcp, prior_cwnd);
}

/* Before the window grows as Reno's. */
static __always_inline void av_before_growth(const struct av *av, struct tcp_view *tcp)
{
	if (av_guarantees(av))
		tcp->ssthresh = av->window; /* below it the window grows by slow start */
}

/* After the window has grown as Reno's. */
static __always_inline void av_after_growth(struct av *av, struct tcp_view *tcp, const struct av_options *options)
{
	if (options->ceiling && av->target && av->window)
		tcp->cwnd = smaller(tcp->cwnd, av->window);
	av->reached |= tcp->cwnd >= av->window;
}

/* Temporary congestion, a loss or a mark: back to what the target takes. half: Reno's threshold. */
static __always_inline u32 av_ssthresh(const struct av *av, u32 half)
{
	return av_guarantees(av) ? larger(half, av->window) : half;
}
