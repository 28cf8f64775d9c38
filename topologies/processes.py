# SPDX-License-Identifier: Apache-2.0
"""Commands run to their end, what a process said last, and waiting for what one does."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from accesspoint.topologies.requirements import LabError

WAIT_SECONDS = 120.0


def run(*command: str) -> None:
    """Runs a command in the lab's own namespace to its end. Raises LabError when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def last_line(file: Path) -> str:
    """The last line with something in it, or an empty string."""
    lines = file.read_text(errors="replace").split("\n") if file.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def last_lines(file: Path, number: int) -> str:
    """The last lines of a file, with their line ends; an empty string where there is none."""
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    return "".join(f"{line}\n" for line in lines[-number:])


def children(pid: int) -> list[int]:
    """Return the ids of the processes that a process has started and that have not ended."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def family(pid: int) -> list[int]:
    """Return the ids of a process and of its descendants, parents first."""
    found = [pid]
    for parent in found:
        found += children(parent)
    return found


def end_family(pid: int) -> None:
    """End a process and its descendants. Each is stopped before its children are listed: it starts no other one."""
    found = [pid]
    for parent in found:
        with suppress(ProcessLookupError):
            os.kill(parent, signal.SIGSTOP)
        found += children(parent)
    for each in found:
        for number in (signal.SIGTERM, signal.SIGCONT):
            with suppress(ProcessLookupError):
                os.kill(each, number)


def wait_for(what: Callable[[], Any], why: str, seconds: float = WAIT_SECONDS) -> Any:
    """Wait until `what` returns something true, and return that. Raises LabError."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > deadline:
            raise LabError(f"{why}: not within {seconds:.0f} s")
        time.sleep(0.05)
    return found
