# SPDX-License-Identifier: Apache-2.0
"""Congestion controls in BPF, loaded for the time of a run.

A kernel has one control of a name, and runs side by side share it: the first one starts a keeper, this module as a
program, which holds the control loaded (`hosts cc run`) until nobody has a lock on it any more. Locks go with their
process, however it ends. Who wants other options than those in use, or what another checkout has loaded, waits.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from accesspoint.experiments.scenes.scene import HOSTS, require_hosts
from accesspoint.topologies.kernels.controls import InUse, alone, free
from accesspoint.topologies.namespaces.contain import end_with_parent, stop_process
from accesspoint.topologies.requirements import ROOT, LabError, congestion_controls

LOCKS = ROOT / "out/.controls"
PAUSE = 1.0  # s between two looks whether others are done
PATIENCE = 600.0  # s
KEPT, BUSY = "kept", "busy"
"""Answers of a keeper: it holds the control loaded; another process has one of the name."""


class Controls:
    """Context manager that keeps controls loaded. wanted: as `hosts cc load` takes them, "vegas alpha=3". Raises
    LabError."""

    def __init__(self, wanted: tuple[str, ...]) -> None:
        self._wanted = wanted
        self._held: list[IO[str]] = []

    def __enter__(self) -> "Controls":
        try:
            # In one order: two who want the same controls do not wait for each other.
            for words in sorted(self._wanted):
                self._held.append(_take(words))
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        while self._held:
            self._held.pop().close()


def _take(words: str) -> IO[str]:
    """Returns the file whose lock keeps the control loaded."""
    require_hosts()
    LOCKS.mkdir(parents=True, exist_ok=True)
    name = words.split()[0]
    users = _users(name)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with _guard():
            if (_loaded(name) or (free(name) and _start_keeper(words))) and users.read_text() == words:
                file = users.open()
                fcntl.flock(file, fcntl.LOCK_SH)
                return file
        time.sleep(PAUSE)
    raise LabError(
        f"congestion control {name} is in use, with other options or by another checkout: "
        f"`hosts cc unload {name}`, or wait"
    )


def _users(name: str) -> Path:
    """Return a control's file: empty, or with the words that it was loaded with; its users share a lock on it."""
    path = LOCKS / name
    path.touch()
    return path


def _loaded(name: str) -> bool:
    return f"bpf_{name}" in congestion_controls()


def _start_keeper(words: str) -> bool:
    """Start a keeper; return False where another process holds the control's name."""
    command = [sys.executable, "-m", "accesspoint.experiments.scenes.congestion_controls", words]
    pipe = subprocess.PIPE
    keeper = subprocess.Popen(
        command, cwd=ROOT, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert keeper.stdout
    said = keeper.stdout.readline().strip()
    if said != KEPT:
        keeper.communicate()
    if said not in (KEPT, BUSY):
        raise LabError(said.removeprefix("error: ") or "the keeper of a congestion control ended")
    return said == KEPT


def keep(words: str) -> int:
    """Load a control, say so, and hold it until it is no longer used."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(alone(words.split()[0], patience=0.0))
        except InUse:
            print(BUSY, flush=True)
            return 2
        return _keep(words)


def _keep(words: str) -> int:
    name = words.split()[0]
    command = [str(HOSTS), "cc", "run", *words.split()]
    quiet = subprocess.DEVNULL
    control = subprocess.Popen(
        command, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, text=True, preexec_fn=end_with_parent
    )
    while not _loaded(name):
        if control.poll() is not None:
            assert control.stderr
            print(control.stderr.read().strip().partition("\n")[0], flush=True)
            return 2
        time.sleep(0.02)
    users = _users(name)
    users.write_text(words)
    print(KEPT, flush=True)
    while True:
        time.sleep(1.0)
        with _guard(), users.open() as file:
            if control.poll() is not None or _alone(file):
                users.write_text("")
                stop_process(control)
                return 0


@contextlib.contextmanager
def _guard() -> Iterator[None]:
    """Lock out other processes while one checks locks and loads."""
    descriptor = os.open(LOCKS, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _alone(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1]))
