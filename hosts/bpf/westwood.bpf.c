/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* TCP Westwood+: Grieco and Mascolo, "Performance evaluation and comparison of Westwood+, New Reno and Vegas TCP congestion
 * control", ACM CCR 34(2), 2004. Grows like Reno; after a loss the window becomes bandwidth estimate * smallest RTT. One sample
 * of the bandwidth a round (at least 50 ms), through two low-pass filters, as in Linux, but in us instead of jiffies. */
#include "cc_record.h"

#define SAMPLE_MIN 50000 /* us */
#define UNKNOWN_RTT 20000000

struct westwood {
	u64 rate_once;	  /* bytes/s, filtered once */
	u64 rate;	  /* bytes/s, filtered twice: the estimate */
	u64 sample_start; /* us */
	u32 sample_bytes; /* acknowledged since */
	u32 last_una;
	u32 counted_ahead;  /* bytes counted by duplicate ACKs, not yet covered by a cumulative one */
	u32 rtt;	    /* latest, us */
	u32 rtt_min;	    /* us */
	bool renew_rtt_min; /* after a timeout: the path may be another one */
	bool first_ack;
};

CALLBACK(init, struct sock *sk)
{
	struct westwood *w = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	w->rate_once = 0;
	w->rate = 0;
	w->sample_start = tp->tcp_mstamp;
	w->sample_bytes = 0;
	w->last_una = tp->snd_una;
	w->counted_ahead = 0;
	w->rtt = UNKNOWN_RTT;
	w->rtt_min = UNKNOWN_RTT;
	w->renew_rtt_min = true;
	w->first_ack = true;
}

CALLBACK(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct westwood *w = private_of(sk);

	if (sample->rtt_us > 0)
		w->rtt = sample->rtt_us;
}

static __always_inline void end_sample(struct westwood *w, const struct tcp_sock *tp)
{
	u64 interval = tp->tcp_mstamp - w->sample_start;
	u64 rate;

	if (w->first_ack) { /* the handshake's bytes are no data */
		w->last_una = tp->snd_una;
		w->first_ack = false;
	}
	if (interval <= max(w->rtt, SAMPLE_MIN))
		return;
	rate = w->sample_bytes * 1000000ULL / interval;
	if (w->rate_once || w->rate) {
		w->rate_once = (7 * w->rate_once + rate) >> 3;
		w->rate = (7 * w->rate + w->rate_once) >> 3;
	} else {
		w->rate_once = rate;
		w->rate = rate;
	}
	w->sample_bytes = 0;
	w->sample_start = tp->tcp_mstamp;
}

/* Bytes that this ACK says have left the network. A duplicate ACK means one segment; the cumulative ACK that follows covers
 * those segments again. */
static __always_inline u32 newly_delivered(struct westwood *w, const struct tcp_sock *tp)
{
	u32 bytes = tp->snd_una - w->last_una;

	if (!bytes) {
		w->counted_ahead += tp->mss_cache;
		return tp->mss_cache;
	}
	if (bytes <= tp->mss_cache)
		return bytes;
	if (w->counted_ahead >= bytes) {
		w->counted_ahead -= bytes;
		return tp->mss_cache;
	}
	bytes -= w->counted_ahead;
	w->counted_ahead = 0;
	return bytes;
}

CALLBACK(in_ack_event, struct sock *sk, u32 flags)
{
	struct westwood *w = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	end_sample(w, tp);
	w->sample_bytes += flags & CA_ACK_SLOWPATH ? newly_delivered(w, tp) : tp->snd_una - w->last_una;
	w->last_una = tp->snd_una;
	w->rtt_min = w->renew_rtt_min ? w->rtt : min(w->rtt, w->rtt_min);
	w->renew_rtt_min = false;
}

static __always_inline u32 window_of_path(const struct westwood *w, const struct tcp_sock *tp)
{
	u64 packets = w->rate * w->rtt_min / 1000000 / max(tp->mss_cache, 1);

	return max(packets, 2);
}

CALLBACK(cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct westwood *w = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 window;

	if (event != CA_EVENT_COMPLETE_CWR && event != CA_EVENT_LOSS)
		return;
	window = window_of_path(w, tp);
	tp->snd_ssthresh = window;
	if (event == CA_EVENT_COMPLETE_CWR)
		tp->snd_cwnd = window;
	else
		w->renew_rtt_min = true;
}

CALLBACK(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
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
	.in_ack_event = (void *)in_ack_event,
	.cwnd_event = (void *)cwnd_event,
	.cong_avoid = (void *)cong_avoid,
	.ssthresh = (void *)ssthresh,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "bpf_westwood",
	.flags = NON_RESTRICTED,
};

char LICENSE[] SEC("license") = "GPL";
