# SPDX-License-Identifier: Apache-2.0
"""Runs a program so that nothing of it outlives it, whatever ends it.

The program runs as the first process of a PID namespace of its own (pid_namespaces(7)): when that process ends, be it
by SIGKILL, the kernel kills every other process in it. Network namespaces are held by those processes only, and a veth
goes with the namespace of its peer, so no process, namespace or interface stays behind. Nobody has to clean up later.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x40000
PR_SET_PDEATHSIG = 1
STOP_TIMEOUT = 3.0  # s
SI_KERNEL = 0x80  # sent by the kernel: a terminal's Ctrl-C, which the whole foreground group has received

_libc = ctypes.CDLL(None, use_errno=True)
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(SystemExit):
    """SIGTERM or SIGHUP came: unwind and clean up. `code` is the shell's 128 + signal."""


class NotPermitted(OSError):
    """Namespaces that the system does not grant: one line with the fix."""


def run(main: Callable[[], int]) -> int:
    """Runs `main` contained and returns its exit code, or 128 + the number of the signal that ended it.

    Call it from a single-threaded process that starts no other child afterwards: the namespace is set for all of its
    later children. SIGINT arrives in `main` as KeyboardInterrupt, SIGTERM and SIGHUP as `Ended`.
    Raises NotPermitted.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    watched = {*_FORWARDED, signal.SIGCHLD}
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    alive, parent_end = os.pipe()
    _check(_libc.unshare(CLONE_NEWPID), "unshare")
    child = os.fork()
    if child == 0:
        os.close(parent_end)
        _become_first_process(main, alive, previous)
    os.close(alive)
    while True:
        received = signal.sigwaitinfo(watched)
        if received.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                break
        elif received.si_code != SI_KERNEL:
            os.kill(child, received.si_signo)
    os.close(parent_end)
    signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def end(number: int, _frame: object) -> None:
    """A signal handler: raises `Ended`."""
    for signum in _FORWARDED:
        signal.signal(signum, signal.SIG_IGN)  # one is enough: a second one must not cut the cleaning short
    raise Ended(128 + number)


def own_network() -> None:
    """Move this thread, and what it starts from now on, into a network namespace of its own, with `lo` up and its
    devices in a /sys that nobody else sees. Raises NotPermitted."""
    _own_mounts(CLONE_NEWNET)
    _check(_libc.mount(b"sysfs", b"/sys", b"sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, None), "mount /sys")
    if os.path.isdir("/sys/kernel/debug"):  # not every kernel has it
        _check(_libc.mount(b"debugfs", b"/sys/kernel/debug", b"debugfs", 0, None), "mount /sys/kernel/debug")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def end_with_parent() -> None:
    """End this process when the thread that started it does; a `preexec_fn`."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _become_first_process(main: Callable[[], int], alive: int, mask: set[int | signal.Signals]) -> NoReturn:
    code = 1
    try:
        _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
        if select.select([alive], [], [], 0)[0]:  # the parent died before prctl
            os._exit(128 + signal.SIGKILL)
        # Process ids mean this namespace's: /proc has to show them (`ip link set netns PID` reads it).
        _own_mounts()
        _check(_libc.mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None), "mount /proc")
        # The first process of a PID namespace receives only signals that it has a handler for.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGHUP, end)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask - set(_FORWARDED) - {signal.SIGCHLD})
        code = main()
    except NotPermitted as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _own_mounts(others: int = 0) -> None:
    """Unshare the mounts, and `others`, so that what is mounted from now on reaches nobody else."""
    _check(_libc.unshare(CLONE_NEWNS | others), "unshare")
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount /")


def _check(result: int, what: str) -> None:
    if result != 0:
        reason = os.strerror(ctypes.get_errno())
        raise NotPermitted(f"{what}: {reason}; a lab needs root, and in a container also --privileged")


def stop_process(process: "subprocess.Popen[Any]") -> None:
    """Ends a process that we started: politely, then surely."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
