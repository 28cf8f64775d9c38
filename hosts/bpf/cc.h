/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Common parts of the congestion controls: the kernel's TCP socket, and the interface tcp_congestion_ops. */
#pragma once
#include "kernel.h"
#include "../algorithms/tcp.h"
#include <bpf/bpf_endian.h>

#define CA_NAME_MAX 16
#define CA_PRIVATE_SIZE 104
#define NON_RESTRICTED 1 /* any user and any network namespace may choose it */
#define F_NO_PREALLOC 1	 /* map flag */

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_LPM_TRIE = 11, BPF_MAP_TYPE_RINGBUF = 27 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

typedef struct {
	s64 counter;
} atomic64_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

struct sock {
	struct sock_common __sk_common;
	u32 sk_pacing_status;
};

struct inet_sock {
	struct sock sk;
};

struct tcp_congestion_ops;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	__u8 icsk_ca_state : 5;
	u64 icsk_ca_priv[CA_PRIVATE_SIZE / sizeof(u64)];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 mss_cache;	    /* bytes of payload in a full segment */
	u32 snd_cwnd;	    /* packets */
	u32 snd_cwnd_cnt;   /* packets acknowledged towards the window's next increase */
	u32 snd_cwnd_clamp; /* packets */
	u32 snd_ssthresh;   /* packets */
	u32 prior_cwnd;	    /* window before the last reduction */
	u32 snd_una;
	u32 snd_nxt;
	u32 srtt_us;	  /* smoothed RTT, 1/8 us */
	u32 lsndtime;	  /* jiffies: when data was last sent */
	u64 bytes_sent;	  /* payload, with retransmissions */
	u64 tcp_mstamp;	  /* us: time of the event being handled */
	u32 lost;	  /* packets marked lost, ever */
	u32 delivered;	  /* packets delivered, ever */
	u32 delivered_ce; /* those of them that acknowledgements with ECE reported */
	u32 packets_out;
	u32 max_packets_out;
	u8 is_cwnd_limited : 1;
};

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us; /* -1: none */
	u32 in_flight;
};

enum sk_pacing { SK_PACING_NONE, SK_PACING_NEEDED };
enum tcp_ca_event { CA_EVENT_TX_START, CA_EVENT_CWND_RESTART, CA_EVENT_COMPLETE_CWR, CA_EVENT_LOSS };
enum tcp_ca_ack_event_flags { CA_ACK_SLOWPATH = 1 };

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*in_ack_event)(struct sock *sk, u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*undo_cwnd)(struct sock *sk);
	char name[CA_NAME_MAX];
	u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

#pragma clang attribute pop

/* The kernel's own Reno (RFC 5681). */
extern u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;
extern u32 tcp_slow_start(struct tcp_sock *tp, u32 acked) __ksym;

/* Options and counters: maps of one entry, of 32-bit fields; src/cc/controls.rs names the fields in this order. */
#define OPTIONS SEC(".data.options")
#define COUNTERS SEC(".data.counters")

#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))

static __always_inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* The control's own state of this socket: at most CA_PRIVATE_SIZE bytes, which a new socket has as zeros. */
static __always_inline void *private_of(struct sock *sk)
{
	return (void *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline bool in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* Fills all but what TCP-AV alone reads. */
static __always_inline struct tcp_view view_of(const struct tcp_sock *tp)
{
	struct tcp_view view = {
		.now = tp->tcp_mstamp * NS_PER_US,
		.cwnd = tp->snd_cwnd,
		.ssthresh = tp->snd_ssthresh,
		.cwnd_clamp = tp->snd_cwnd_clamp,
		.mss = tp->mss_cache,
		.snd_una = tp->snd_una,
		.snd_nxt = tp->snd_nxt,
		.srtt_us = tp->srtt_us,
		.lost = tp->lost,
		.delivered = tp->delivered,
		.delivered_ce = tp->delivered_ce,
	};

	return view;
}

static __always_inline void take(struct tcp_sock *tp, const struct tcp_view *view)
{
	tp->snd_cwnd = view->cwnd;
	tp->snd_ssthresh = view->ssthresh;
}
