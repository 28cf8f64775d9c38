/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Recording: the arguments of every callback of a congestion control, and the state that it leaves. Without
 * `recording` the verifier removes all of it when the program is loaded. */
#pragma once
#include "cc.h"

const volatile bool recording SEC(".rodata.record") = false;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* src/cc/record.rs makes it larger to record */
} events SEC(".maps");

struct {
	__u32 missed; /* events that found the ring full */
} record_counters SEC(".data.record");

/* In the order of CALLBACKS in src/cc/loaded.rs. */
enum callback {
	CALL_init,
	CALL_ssthresh,
	CALL_cong_avoid,
	CALL_pkts_acked,
	CALL_set_state,
	CALL_cwnd_event,
	CALL_in_ack_event,
	CALL_undo_cwnd
};

/* src/cc/record.rs has the same struct. */
struct event {
	u64 socket; /* its address: the same for all of its events */
	u64 mstamp; /* us */
	u64 jiffies;
	u64 bytes_sent;
	u32 callback;
	u32 leaves;	  /* 0 before the callback, 1 after it */
	u32 arguments[2]; /* after the socket; of pkts_acked: the sample's rtt_us and pkts_acked */
	u32 result;
	u32 cwnd, cwnd_cnt, cwnd_clamp, ssthresh, prior_cwnd;
	u32 snd_una, snd_nxt, srtt_us, mss, lsndtime, lost, delivered, delivered_ce;
	u32 max_packets_out, cwnd_limited, ca_state;
	u32 local_port, remote_port;
};

static __always_inline void record(unsigned long long *ctx, enum callback callback, bool leaves, u32 result)
{
	struct tcp_sock *tp = (struct tcp_sock *)ctx[0];
	struct event *e;

	if (!recording)
		return;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		__sync_fetch_and_add(&record_counters.missed, 1);
		return;
	}
	e->arguments[0] = 0;
	e->arguments[1] = 0;
	switch (callback) {
	case CALL_cong_avoid:
		e->arguments[1] = ctx[2];
		e->arguments[0] = ctx[1];
		break;
	case CALL_set_state:
	case CALL_cwnd_event:
	case CALL_in_ack_event:
		e->arguments[0] = ctx[1];
		break;
	case CALL_pkts_acked:
		e->arguments[0] = ((const struct ack_sample *)ctx[1])->rtt_us;
		e->arguments[1] = ((const struct ack_sample *)ctx[1])->pkts_acked;
		break;
	default:
		break;
	}
	e->socket = (u64)tp;
	e->mstamp = tp->tcp_mstamp;
	e->jiffies = bpf_jiffies64();
	e->bytes_sent = tp->bytes_sent;
	e->callback = callback;
	e->leaves = leaves;
	e->result = result;
	e->cwnd = tp->snd_cwnd;
	e->cwnd_cnt = tp->snd_cwnd_cnt;
	e->cwnd_clamp = tp->snd_cwnd_clamp;
	e->ssthresh = tp->snd_ssthresh;
	e->prior_cwnd = tp->prior_cwnd;
	e->snd_una = tp->snd_una;
	e->snd_nxt = tp->snd_nxt;
	e->srtt_us = tp->srtt_us;
	e->mss = tp->mss_cache;
	e->lsndtime = tp->lsndtime;
	e->lost = tp->lost;
	e->delivered = tp->delivered;
	e->delivered_ce = tp->delivered_ce;
	e->max_packets_out = tp->max_packets_out;
	e->cwnd_limited = BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited);
	e->ca_state = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
	e->local_port = tp->inet_conn.icsk_inet.sk.__sk_common.skc_num;
	e->remote_port = bpf_ntohs(tp->inet_conn.icsk_inet.sk.__sk_common.skc_dport);
	bpf_ringbuf_submit(e, 0);
}

/* CALLBACK(name, arguments) { body } defines a struct_ops program; ANSWER the same with a u32 as its result. */
#define CALLBACK(name, args...)                                                                                      \
	static __always_inline void do_##name(unsigned long long *ctx, ##args);                                      \
	_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wint-conversion\"") SEC("struct_ops") void \
	name(unsigned long long *ctx)                                                                                \
	{                                                                                                            \
		record(ctx, CALL_##name, false, 0);                                                                  \
		do_##name(___bpf_ctx_cast(args));                                                                    \
		record(ctx, CALL_##name, true, 0);                                                                   \
	}                                                                                                            \
	_Pragma("GCC diagnostic pop") static __always_inline void do_##name(unsigned long long *ctx, ##args)

#define ANSWER(name, args...)                                                                                       \
	static __always_inline u32 do_##name(unsigned long long *ctx, ##args);                                      \
	_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wint-conversion\"") SEC("struct_ops") u32 \
	name(unsigned long long *ctx)                                                                               \
	{                                                                                                           \
		u32 result;                                                                                         \
		record(ctx, CALL_##name, false, 0);                                                                 \
		result = do_##name(___bpf_ctx_cast(args));                                                          \
		record(ctx, CALL_##name, true, result);                                                             \
		return result;                                                                                      \
	}                                                                                                           \
	_Pragma("GCC diagnostic pop") static __always_inline u32 do_##name(unsigned long long *ctx, ##args)
