# SPDX-License-Identifier: Apache-2.0
"""What a process that ticks asks of the machine."""

import contextlib
import ctypes
import gc
import os

PRIORITY = -10
PR_SET_TIMERSLACK = 29
TIMER_SLACK_NS = 1000


def punctual() -> None:
    """Have the CPU when a tick is due, as far as that is allowed, and be woken then; else ticks may be late."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS)
    # What is there for good need not be looked through for what can go.
    gc.collect()
    gc.freeze()
