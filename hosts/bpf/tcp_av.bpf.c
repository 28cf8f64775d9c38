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
#include "cc_record.h"

#define ONE 65536     /* loss shares are in 1/65536 */
#define DEAD 1000000  /* us */
#define PACED 1000000 /* kbit/s */
#define GAIN_PART 4   /* of a round's error: a loop that sees its step a round later rings from a half on */
#define TOLERANCE 20  /* a twentieth of the target */
#define AF_INET 2
#define SOL_SOCKET 1
#define SO_KEEPALIVE 9
#define SOL_TCP 6
#define TCP_USER_TIMEOUT 18
#define TCP_RTO_MAX_MS 44
#define RTO_MAX 1000	/* ms, the least that Linux takes */
#define GIVES_UP 924600 /* ms: when 15 retransmissions with the kernel's own timer are over */

struct {
	__u32 target;	  /* kbit/s of payload for sockets without a target of their own; 0: none, plain Reno */
	__u32 loss_limit; /* percent */
	__u32 timeout_limit;
	__u32 rest;	/* ms */
	__u32 ceiling;	/* 1: the window does not exceed the target's either */
	__u32 patience; /* ms */
} options OPTIONS = {0, 10, 2, 5000, 0, 1500};

struct {
	__u32 gave_way;
	__u32 resumed;
} counters COUNTERS;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, __u64);   /* cookie */
	__type(value, __u32); /* kbit/s */
} socket_targets SEC(".maps");

struct network {
	__u32 prefix;	  /* bits */
	__u32 address[4]; /* of IPv6, or IPv4 mapped to ::ffff:a.b.c.d */
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, struct network);
	__type(value, __u32); /* kbit/s */
} network_targets SEC(".maps");

/* src/cc/status.rs reads this of every socket. */
struct av {
	u32 target;   /* kbit/s; 0: none */
	u32 window;   /* packets that the target takes; 0: unknown, as there is no RTT yet */
	u32 loss;     /* smoothed share */
	u32 timeouts; /* since the last good round */
	u32 gave_way; /* how often */
	bool yielding;
	bool timer_is_bounded;
	bool reached;  /* the window has been the target's since the start or the last timeout */
	u32 round_end; /* the round is over when this is acknowledged */
	u32 lost;      /* tp->lost, delivered and delivered_ce at its start */
	u32 delivered;
	u32 marked;
	u32 gain;	 /* of the window over target * RTT */
	u64 heard;	 /* us: the last acknowledgement */
	u64 since;	 /* us: when it gave way */
	u64 round_start; /* us */
	u64 short_since; /* us: start of the first round that missed the target; 0: the last one met it */
};

static __always_inline u32 half_of(u32 window)
{
	return max(window >> 1, 2);
}

static __always_inline bool guarantees(const struct av *av)
{
	return av->target && av->window && !av->yielding;
}

static __always_inline u32 target_of(struct sock *sk)
{
	struct network key = {.prefix = 128};
	u64 cookie = sk->__sk_common.skc_cookie.counter;
	u32 *target;

	target = cookie ? bpf_map_lookup_elem(&socket_targets, &cookie) : NULL;
	if (target)
		return *target;
	if (sk->__sk_common.skc_family == AF_INET) {
		key.address[2] = bpf_htonl(0xffff);
		key.address[3] = sk->__sk_common.skc_daddr;
	} else {
		for (int i = 0; i < 4; i++)
			key.address[i] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[i];
	}
	target = bpf_map_lookup_elem(&network_targets, &key);
	return target ? *target : options.target;
}

/* window = gain * target * RTT, rounded up to packets. */
static __always_inline void renew_window(struct sock *sk, struct av *av)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 bytes = (u64)av->target * (tp->srtt_us >> 3) / 8000; /* kbit/s * us = bit/1000 */
	u32 mss = max(tp->mss_cache, 1);
	u64 packets = (bytes * av->gain / ONE + mss - 1) / mss;

	av->window = tp->srtt_us ? max(min(packets, INFINITE_SSTHRESH), 2) : 0;
}

static __always_inline void start_round(struct av *av, const struct tcp_sock *tp)
{
	av->round_end = tp->snd_nxt;
	av->round_start = tp->tcp_mstamp;
	av->lost = tp->lost;
	av->delivered = tp->delivered;
	av->marked = tp->delivered_ce;
}

/* A loss may open the window at once, by as much as the target takes: paced, that is no burst. Beyond 1 Gbit/s the timer of
 * every burst would cost more than everything else (docs/hosts/cc.md). */
static __always_inline void pace(struct sock *sk, const struct av *av)
{
	if (av->target && av->target <= PACED && sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

/* Bounds the retransmission timer: doubled repeatedly, it would wait after an outage for as long as that took. A user
 * timeout keeps the time after which the connection is given up; a socket that has one, or keep-alives, keeps its own. */
static __always_inline void bound_timer(struct sock *sk, struct av *av)
{
	int user = 0, keep = 0, max = RTO_MAX;

	if (!av->target || av->timer_is_bounded)
		return;
	av->timer_is_bounded = true;
	if (bpf_getsockopt(sk, SOL_TCP, TCP_USER_TIMEOUT, &user, sizeof(user)) || user)
		return;
	if (bpf_getsockopt(sk, SOL_SOCKET, SO_KEEPALIVE, &keep, sizeof(keep)) || keep)
		return;
	user = GIVES_UP;
	/* Linux 6.15 and newer; an older one keeps its timer. */
	if (!bpf_setsockopt(sk, SOL_TCP, TCP_RTO_MAX_MS, &max, sizeof(max)))
		bpf_setsockopt(sk, SOL_TCP, TCP_USER_TIMEOUT, &user, sizeof(user));
}

static __always_inline void give_way(struct av *av, struct tcp_sock *tp, u32 window)
{
	if (!guarantees(av))
		return;
	av->yielding = true;
	av->since = tp->tcp_mstamp;
	av->gave_way++;
	__sync_fetch_and_add(&counters.gave_way, 1);
	tp->snd_ssthresh = min(tp->snd_ssthresh, half_of(window));
	tp->snd_cwnd = min(tp->snd_cwnd, tp->snd_ssthresh);
}

CALLBACK(init, struct sock *sk)
{
	struct av *av = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	*av = (struct av){.target = target_of(sk), .gain = ONE, .heard = tp->tcp_mstamp};
	renew_window(sk, av);
	start_round(av, tp);
	pace(sk, av);
	bound_timer(sk, av);
	if (guarantees(av))
		tp->snd_ssthresh = av->window;
}

/* Deletes the target of a socket that closes. */
SEC("struct_ops")
void BPF_PROG(release, struct sock *sk)
{
	u64 cookie = sk->__sk_common.skc_cookie.counter;

	bpf_map_delete_elem(&socket_targets, &cookie);
}

/* Adjusts the gain: a full window that delivered less than the target in a round is opened by a part of the difference,
 * and the other way round. A window below the target's is on its way there, one above it is Reno's. */
static __always_inline void close_loop(struct av *av, const struct tcp_sock *tp, u64 kbit)
{
	if (kbit < av->target && tp->snd_cwnd >= av->window)
		av->gain = min(av->gain + (av->target - kbit) * ONE / av->target / GAIN_PART, 2 * ONE);
	else if (kbit >= av->target && tp->snd_cwnd == av->window)
		av->gain = max(av->gain - min(kbit - av->target, av->target) * ONE / av->target / GAIN_PART, ONE / 2);
}

/* Ends a round: counts the packets that it delivered and lost, and adjusts the window to them. */
CALLBACK(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct av *av = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	bool open = ((struct inet_connection_sock *)sk)->icsk_ca_state == TCP_CA_Open;
	bool limited = BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited);
	u32 lost, delivered, limit;
	u64 start, kbit;
	bool marked;

	av->heard = tp->tcp_mstamp;
	if (after(av->round_end, tp->snd_una))
		return;
	lost = tp->lost - av->lost;
	delivered = tp->delivered - av->delivered;
	/* RFC 3168: the receiver repeats a mark until it is answered, so a round has one; and a mark is as bad as a loss. */
	marked = tp->delivered_ce != av->marked;
	if (lost + delivered)
		av->loss =
			(7 * av->loss + min((u64)lost + marked, (u64)lost + delivered) * ONE / (lost + delivered)) / 8;
	start = av->round_start;
	start_round(av, tp);
	kbit = (u64)delivered * tp->mss_cache * 8000 / max(tp->tcp_mstamp - start, 1);
	if (limited && guarantees(av))
		close_loop(av, tp, kbit);
	if (!limited || !guarantees(av) || kbit + av->target / TOLERANCE >= av->target)
		av->short_since = 0;
	else if (!av->short_since && av->reached && (lost || marked))
		av->short_since = start;
	av->target = target_of(sk);
	pace(sk, av);
	bound_timer(sk, av);
	renew_window(sk, av);
	if (open)
		av->timeouts = 0;
	limit = options.loss_limit * ONE / 100;
	if (av->yielding) {
		if (open && av->loss <= limit / 2 && tp->tcp_mstamp - av->since >= options.rest * 1000ULL) {
			av->yielding = false;
			av->reached = false;
			__sync_fetch_and_add(&counters.resumed, 1);
		}
	} else if (av->loss > limit ||
		   (av->short_since && tp->tcp_mstamp - av->short_since >= options.patience * 1000ULL)) {
		give_way(av, tp, tp->snd_cwnd);
	}
}

CALLBACK(set_state, struct sock *sk, u8 state)
{
	struct av *av = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u8 before = ((struct inet_connection_sock *)sk)->icsk_ca_state;

	/* A reduction ends with the window at the threshold. */
	if (state == TCP_CA_Open && (before == TCP_CA_CWR || before == TCP_CA_Recovery))
		av->reached = true;
	if (state != TCP_CA_Loss)
		return;
	start_round(av, tp); /* a timeout marks the whole window lost, which says nothing about the share that is */
	av->short_since = 0;
	av->reached = false;
	/* A sender that receives nothing at all has no congested link, but a dead one. */
	av->timeouts = tp->tcp_mstamp - av->heard < DEAD ? av->timeouts + 1 : 0;
	if (av->timeouts > options.timeout_limit)
		give_way(av, tp, tp->prior_cwnd);
}

CALLBACK(cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct av *av = private_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (guarantees(av))
		tp->snd_ssthresh = av->window; /* below it the window grows by slow start */
	tcp_reno_cong_avoid(sk, ack, acked);
	if (options.ceiling && av->target && av->window)
		tp->snd_cwnd = min(tp->snd_cwnd, av->window);
	av->reached |= tp->snd_cwnd >= av->window;
}

/* Temporary congestion, a loss or a mark: back to what the target takes. */
ANSWER(ssthresh, struct sock *sk)
{
	struct av *av = private_of(sk);
	u32 half = tcp_reno_ssthresh(sk);

	return guarantees(av) ? max(half, av->window) : half;
}

ANSWER(undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops control = {
	.init = (void *)init,
	.release = (void *)release,
	.pkts_acked = (void *)pkts_acked,
	.set_state = (void *)set_state,
	.cong_avoid = (void *)cong_avoid,
	.ssthresh = (void *)ssthresh,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "bpf_tcp_av",
};

char LICENSE[] SEC("license") = "GPL";
