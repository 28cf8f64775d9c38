/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* CWND control by the RTT ratio (paper 002): the ideal window, and when a connection is under control. Pure: readings in,
 * bounds out. hosts/src/cwnd calls it from Rust, hosts/ns3/cwnd_middleware.cc from ns-3. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Capacity of the shared link, and its fall with the number of terminals. */
struct cwnd_capacity {
	double mbit_per_s; /* BW_max: the highest throughput obtained in this environment, Mb/s */
	double exponent;   /* f(n) = n^exponent, at most 0 */
};

/* Computes the throughput of all terminals together, Mb/s (expressions 3 and 4). */
double cwnd_bandwidth(struct cwnd_capacity capacity, uint32_t terminals);

/* Computes the ideal window (expression 2), segments of 1.5 KB, of one of `connections` that share a terminal's part (the
 * paper's terminals have one each). Rounded down, as the link is to be filled and not exceeded; at least `least`. */
uint32_t cwnd_ideal_window(struct cwnd_capacity capacity, uint32_t terminals, uint32_t connections, uint32_t rtt_us,
			   uint32_t least);

/* Computes the RTT without the delayed ACK that a window of one segment provokes, us. With a minimum RTT below 8 ms, that
 * alone would keep the ratio above 6 and the window at 1 for ever. */
uint32_t cwnd_path_rtt(uint32_t rtt_us, uint32_t min_rtt_us, uint32_t window);

/* Computes RTT over minimum RTT (expression 5), at least 1; 1 without a minimum. */
double cwnd_ratio(uint32_t rtt_us, uint32_t min_rtt_us);

enum cwnd_bound { CWND_NONE, CWND_ONE, CWND_IDEAL };

/* Control of one connection; zeros: a new one. */
struct cwnd_control {
	bool on;
	bool one;
	uint64_t one_since; /* ns */
};

/* Updates the bound after a reading of the connection's ratio ("Expressions for Proposed Control Mechanism"). now: ns.
 * turns: with this project's addition to the paper's rule.
 *
 * A window of one drains this terminal's part of the queue. When the ratio stays above 5 for 2 s all the same, others
 * fill it: terminals without the middleware, or whose connections began when the queue stood and so have a high minimum
 * RTT. With turns it then returns to the ideal window as those do that have not crossed the ratio, and yields again after
 * 10 s, in case that the others have gone: by yielding alone it would starve.
 *
 * Control stays on, as in the paper: the ideal window follows the number of terminals, so that what others leave is used,
 * and a low ratio is what it is there for. An end after some seconds of it let ten terminals fill the queue anew each
 * time. */
enum cwnd_bound cwnd_step(struct cwnd_control *control, uint64_t now, double ratio, bool turns);

#ifdef __cplusplus
}
#endif
