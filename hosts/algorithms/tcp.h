/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A TCP sender, as the congestion controls of the papers see it. Each algorithm is a file of pure functions on its state,
 * this view and its options, compiled as C for the kernel's BPF (hosts/bpf) and as C++ for ns-3 (hosts/ns3). What calls
 * them fills a view first, and takes cwnd and ssthresh from it afterwards. */
#pragma once

#ifdef __bpf__
#include "../bpf/kernel.h"
#else
#include <stdint.h>
typedef uint8_t u8;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
#endif

#define NS_PER_US 1000ULL
#define NS_PER_MS 1000000ULL
#define INFINITE_SSTHRESH 0x7fffffff

enum tcp_ca_state { TCP_CA_Open, TCP_CA_Disorder, TCP_CA_CWR, TCP_CA_Recovery, TCP_CA_Loss };

struct tcp_view {
	u64 now;      /* ns */
	u32 cwnd;     /* packets */
	u32 ssthresh; /* packets */
	u32 cwnd_clamp;
	u32 mss; /* bytes of payload in a full segment */
	u32 snd_una;
	u32 snd_nxt;
	u32 srtt_us;	  /* smoothed RTT, 1/8 us; 0: none yet */
	u32 lost;	  /* packets marked lost, ever */
	u32 delivered;	  /* packets delivered, ever */
	u32 delivered_ce; /* those of them that acknowledgements with ECE reported */
	u8 ca_state;	  /* before the change, in a callback of one; for TCP-AV alone, as the next */
	bool cwnd_limited;
};

static __always_inline u64 smaller(u64 a, u64 b)
{
	return a < b ? a : b;
}

static __always_inline u64 larger(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* Returns true if sequence number a comes after b (RFC 9293, section 3.4). */
static __always_inline bool after(u32 a, u32 b)
{
	return (s32)(b - a) < 0;
}

static __always_inline bool view_in_slow_start(const struct tcp_view *tcp)
{
	return tcp->cwnd < tcp->ssthresh;
}

/* Slow start (RFC 5681) up to the threshold. Returns the packets acknowledged beyond it. */
static __always_inline u32 view_slow_start(struct tcp_view *tcp, u32 acked)
{
	u32 before = tcp->cwnd;
	u32 reached = smaller(before + acked, tcp->ssthresh);

	tcp->cwnd = smaller(reached, tcp->cwnd_clamp);
	return acked - (reached - before);
}

/* The threshold after a loss (RFC 5681, equation 4), from the window before it. */
static __always_inline u32 half_of(u32 window)
{
	return larger(window >> 1, 2);
}
