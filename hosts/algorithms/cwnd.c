/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#include "cwnd.h"

#include <math.h>

/* Control starts above the first ratio of RTT to minimum RTT. While it is on, the window is one segment above the second
 * (paper 002, "Expressions for Proposed Control Mechanism"). */
#define ON_RATIO 6.0
#define ONE_RATIO 5.0
/* Time that a window of one has to drain the queue before others count as its cause, ns. */
#define DRAIN 2000000000ULL
/* Interval of further attempts to drain it, ns: as often as the paper's terminals adjusted to each other
 * ("CWND-Controlling Middleware"). */
#define AGAIN 10000000000ULL
/* Minimum delay of a lone segment's ACK in Linux, us: a receiver may hold it back (RFC 1122, 4.2.3.2). */
#define DELAYED_ACK_US 40000
#define SEGMENT 1500 /* bytes (expression 2) */

static double at_least_one(uint32_t number)
{
	return number ? number : 1;
}

double cwnd_bandwidth(struct cwnd_capacity capacity, uint32_t terminals)
{
	return capacity.mbit_per_s * pow(at_least_one(terminals), capacity.exponent);
}

uint32_t cwnd_ideal_window(struct cwnd_capacity capacity, uint32_t terminals, uint32_t connections, uint32_t rtt_us,
			   uint32_t least)
{
	double bytes_per_s = cwnd_bandwidth(capacity, terminals) * 1e6 / 8;
	double segments = bytes_per_s * rtt_us / 1e6 / SEGMENT;
	double part = segments / (at_least_one(terminals) * at_least_one(connections));

	return (uint32_t)fmin(fmax(part, least), INT32_MAX);
}

uint32_t cwnd_path_rtt(uint32_t rtt_us, uint32_t min_rtt_us, uint32_t window)
{
	if (window == 1)
		rtt_us = rtt_us > DELAYED_ACK_US ? rtt_us - DELAYED_ACK_US : 0;
	return rtt_us > min_rtt_us ? rtt_us : min_rtt_us;
}

double cwnd_ratio(uint32_t rtt_us, uint32_t min_rtt_us)
{
	return min_rtt_us && rtt_us > min_rtt_us ? (double)rtt_us / min_rtt_us : 1;
}

enum cwnd_bound cwnd_step(struct cwnd_control *control, uint64_t now, double ratio, bool turns)
{
	control->on |= ratio > ON_RATIO;
	if (!control->on)
		return CWND_NONE;
	if (ratio <= ONE_RATIO) {
		control->one = false;
		return CWND_IDEAL;
	}
	if (!control->one || now - control->one_since >= AGAIN) {
		control->one = true;
		control->one_since = now;
	}
	return turns && now - control->one_since >= DRAIN ? CWND_IDEAL : CWND_ONE;
}
