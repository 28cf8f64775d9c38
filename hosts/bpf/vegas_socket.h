/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Vegas on the kernel's socket, whose private state begins with struct vegas: see ../algorithms/vegas.h. */
#pragma once
#include "cc_record.h"
#include "../algorithms/vegas.h"

static __always_inline void start(struct sock *sk)
{
	struct tcp_view view = view_of(tcp_sk(sk));

	vegas_start(private_of(sk), &view);
}

static __always_inline void ack_of(struct sock *sk, u32 ack, u32 acked, const struct vegas_options *options)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct tcp_view view = view_of(tp);
	bool as_reno = vegas_ack(private_of(sk), &view, ack, acked, options);

	if (as_reno)
		tcp_reno_cong_avoid(sk, ack, acked);
	else
		take(tp, &view);
}

CALLBACK(pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	vegas_sample(private_of(sk), sample->rtt_us);
}

CALLBACK(set_state, struct sock *sk, u8 state)
{
	struct tcp_view view = view_of(tcp_sk(sk));

	vegas_set_state(private_of(sk), &view, state);
}

ANSWER(ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

ANSWER(undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}
