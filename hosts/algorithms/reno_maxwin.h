/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Reno-MaxWin10: Reno (RFC 5681) whose window never exceeds a bound. Jung and Park, "Instantaneous fairness of TCP in
 * heterogeneous traffic wireless LAN environments", 2016, section 5.1. */
#pragma once
#include "tcp.h"

struct reno_maxwin_options {
	u32 bound; /* packets */
};

#define RENO_MAXWIN_DEFAULTS {10}

/* Bounds the window after Reno has set it. */
static __always_inline u32 reno_maxwin(u32 cwnd, const struct reno_maxwin_options *options)
{
	return smaller(cwnd, options->bound);
}
