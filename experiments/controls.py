# SPDX-License-Identifier: Apache-2.0
"""Congestion controls in BPF for the time of a run. A kernel has one of a name, and runs side by side share it: the
first one loads it, the last one unloads it, and who wants other options waits. Locks go with their process, however it
ends."""

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from types import TracebackType
from typing import IO

from experiments.scene import HOSTS, require_hosts
from topologies.requirements import ROOT, LabError

LOCKS = ROOT / "out/.controls"
PAUSE = 0.2  # s between two looks whether others are done
PATIENCE = 1800.0  # s


class Controls:
    """As a context manager. wanted: as `hosts cc load` takes them, "vegas alpha=3"."""

    def __init__(self, wanted: tuple[str, ...]) -> None:
        self._wanted = wanted
        self._held: list[tuple[str, IO[str]]] = []

    def __enter__(self) -> "Controls":
        if self._wanted:
            require_hosts()
            LOCKS.mkdir(parents=True, exist_ok=True)
        try:
            for words in self._wanted:
                self._take(words)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    def _take(self, words: str) -> None:
        name = words.split()[0]
        # Options are written into it by who loads; readers share the lock on it as long as they use the control.
        users = (LOCKS / name).open("a+")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with _guard():
                if _alone(users):
                    _unload(name)
                    _run("load", *words.split())
                    users.truncate(0)
                    users.write(words)
                    users.flush()
                users.seek(0)
                if users.read() == words:
                    fcntl.flock(users, fcntl.LOCK_SH)
                    self._held.append((name, users))
                    return
            time.sleep(PAUSE)
        users.close()
        raise LabError(f"congestion control {name} is in use with other options: run one experiment at a time")

    def _leave(self) -> None:
        while self._held:
            name, users = self._held.pop()
            with _guard(), users:
                fcntl.flock(users, fcntl.LOCK_UN)
                if _alone(users):
                    _unload(name)


@contextlib.contextmanager
def _guard() -> Iterator[None]:
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


def _unload(name: str) -> None:
    with contextlib.suppress(LabError):  # it is not loaded
        _run("unload", name)


def _run(*words: str) -> None:
    done = subprocess.run([str(HOSTS), "cc", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise LabError((done.stderr or done.stdout).strip().removeprefix("error: "))
