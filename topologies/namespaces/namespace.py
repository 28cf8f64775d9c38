# SPDX-License-Identifier: Apache-2.0
"""A network namespace that ends with the process that made it, whatever ends that one."""

import contextlib
import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from accesspoint.topologies.namespaces.contain import CLONE_NEWNET, end_with_parent, stop_process
from accesspoint.topologies.requirements import LabError

START_TIMEOUT = 120.0  # s, of a busy machine, too
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def entered(pid: int) -> Iterator[None]:
    """Enter the network namespace of a process with this thread for the block; sockets made there stay in there.
    Raises LabError."""
    with open("/proc/thread-self/ns/net", "rb") as before, open(f"/proc/{pid}/ns/net", "rb") as there:
        if _libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise LabError(f"no network namespace can be entered: {os.strerror(ctypes.get_errno())}; run it as root")
        try:
            yield
        finally:
            _libc.setns(before.fileno(), CLONE_NEWNET)


def inside(pid: int, *command: str | Path) -> list[str]:
    """Return the command that runs a command in the network namespace of a process."""
    # Only the network is another one: nsenter ends as the command, so signals and exit codes are the command's.
    return ["nsenter", f"--net=/proc/{pid}/ns/net", *map(str, command)]


class Namespace:
    """A network namespace and what runs in it, as a context manager."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[Any]] = []
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"], preexec_fn=end_with_parent, start_new_session=True
        )
        self.pid = self._holder.pid
        deadline = time.monotonic() + START_TIMEOUT
        while os.stat(f"/proc/{self.pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            if self._holder.poll() is not None or time.monotonic() > deadline:
                raise LabError("no network namespace could be made: run it as root, in a container also --privileged")
            time.sleep(0.005)
        self.ip("link", "set", "lo", "up")

    def run(self, *command: str | Path, check: bool = True, **options: Any) -> str:
        """Runs a command in here to its end and returns what it printed. Raises LabError when it fails, unless not to
        `check`. options: those of subprocess.run."""
        options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL} | options
        done = subprocess.run(inside(self.pid, *command), **options)
        if check and done.returncode != 0:
            said = (done.stderr or done.stdout or "").strip() or done.returncode
            raise LabError(f"`{' '.join(map(str, command))}` failed: {said}")
        return str(done.stdout)

    def popen(self, *command: str | Path, **options: Any) -> "subprocess.Popen[Any]":
        """Starts a command in here; it ends with this namespace at the latest. options: those of subprocess.Popen."""
        process = subprocess.Popen(inside(self.pid, *command), preexec_fn=end_with_parent, **options)
        self._processes.append(process)
        return process

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Enter the namespace with this thread for the block; sockets made there stay in there. Raises LabError."""
        return entered(self.pid)

    def ip(self, *words: str) -> str:
        """ip(8) in here."""
        return self.run("ip", *words)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends what was started in here, and so the namespace."""
        for process in [*reversed(self._processes), self._holder]:
            stop_process(process)
