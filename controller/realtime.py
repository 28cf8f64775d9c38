# SPDX-License-Identifier: Apache-2.0
"""CPU priority and timers of a process with the 10 ms loop."""

import contextlib
import ctypes
import gc
import os

PRIORITY = -10
PR_SET_TIMERSLACK = 29
TIMER_SLACK_NS = 1000


def raise_priority() -> None:
    """Ask for the CPU and a precise wake-up when a tick is due. Without the permission ticks may be late."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS)
    # Objects that are never freed need not be scanned by the collector.
    gc.collect()
    gc.freeze()
