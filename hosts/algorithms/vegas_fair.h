/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Vegas-Fair: Jung and Park, "Instantaneous fairness of TCP in heterogeneous traffic wireless LAN environments", 2016,
 * section 5.1 and Fig. 5. After a pause in sending, Vegas asks for more until an introduction has been sent. */
#pragma once
#include "vegas.h"

struct vegas_fair_options {
	struct vegas_options vegas;
	u32 pause;	  /* ms without a segment: a new session starts (PAUSE_INTERVAL) */
	u32 introduction; /* bytes of the session during which it is favoured (INTRO_LENGTH) */
	u32 more_alpha, more_beta;
};

#define VEGAS_FAIR_DEFAULTS {VEGAS_DEFAULTS, 1000, 5000, 1, 2}

/* hosts/src/cc/status.rs reads this of every socket. */
struct vegas_fair {
	struct vegas vegas;
	bool introducing;
	u64 session_start; /* bytes sent before the session */
};

/* Handles the first segment after none was in flight. idle: ns since the last one. sent: bytes before this one. */
static __always_inline void vegas_fair_transmit(struct vegas_fair *f, u64 idle, u64 sent,
						const struct vegas_fair_options *options)
{
	if (idle < options->pause * NS_PER_MS)
		return;
	f->introducing = true;
	f->session_start = sent;
}

/* Returns the options of Vegas for now, when so many bytes were sent. */
static __always_inline struct vegas_options vegas_fair_now(struct vegas_fair *f, u64 sent,
							   const struct vegas_fair_options *options)
{
	struct vegas_options now = options->vegas;

	if (sent - f->session_start >= options->introduction)
		f->introducing = false;
	if (f->introducing) {
		now.alpha += options->more_alpha;
		now.beta += options->more_beta;
	}
	return now;
}
