# SPDX-License-Identifier: Apache-2.0
"""The loop's process: what it asks of the system, then `worker`, compiled if it can be had. It ends with its parent."""

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys

from . import compiled

PRIORITY = -10
"""Nice value: ticks take a part of a core, but they take it on time."""
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
TIMER_SLACK_NS = 1000


def punctual() -> None:
    """Have the CPU as soon as a tick is due, as far as that is allowed; else ticks may be late."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)


def main() -> None:
    """`python -m controller.worker_main FD`: the socket that the parent left open for it."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS)
    # The parent says when to end; a Ctrl-C reaches the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    compiled.use()
    # Not before it is known which form of it; and while it is imported, others have the CPU.
    from .worker import Worker

    punctual()
    worker = Worker(socket.socket(fileno=int(sys.argv[1])))
    gc.collect()
    gc.freeze()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        worker.run()


if __name__ == "__main__":
    main()
