# SPDX-License-Identifier: Apache-2.0
"""Runs on the workers of a Dask cluster: https://distributed.dask.org. Each worker makes one run at a time, in a
process of its own, and sends its folder back: workers share no files with us, only this project at the same commit."""

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accesspoint.experiments.execution.pool import Outcome, reason, spawn
from accesspoint.experiments.runs.plan import Needs, Order
from accesspoint.experiments.runs.store import Store, pack
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.requirements import ROOT, LabError

if TYPE_CHECKING:
    from accesspoint.topologies.namespaces.namespace import Namespace

CONNECT_TIMEOUT = 10.0  # s
PAUSE = 0.25  # s between two looks
# Make Dask's periodic work rare: it takes time from the runs.
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "30s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
}


def make(fields: dict[str, Any], ours: str) -> tuple[bytes, str]:
    """Called in a worker: makes a run. ours: the commit that it is meant for. Returns its folder, packed, and why there
    is none."""
    from accesspoint.topologies.namespaces.contain import stop_process

    order, here = Order(**fields), commit()
    if here != ours:
        return (
            b"",
            f"the worker at {socket.gethostname()} has commit {here or 'unknown'}, not {ours}: check it out there",
        )
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        process = spawn(order, Path(folder))
        try:
            process.wait()
        finally:
            stop_process(process)
        error = reason(process)
        return pack(Path(folder)), error.replace(folder, order.id)


class ClusterPool:
    """Workers of a scheduler. Runs of a worker that is lost go to another one, by Dask's own means. one_machine: all
    workers are on one."""

    def __init__(self, client: Any, one_machine: bool) -> None:
        self._client, self._one_machine = client, one_machine
        self._commit = commit()
        self._running: dict[str, tuple[Order, Store, Any, float]] = {}

    def places(self) -> int:
        """Return the number of workers that are connected now: others may come and go."""
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def room(self, needs: Needs, running: Sequence[Needs]) -> bool:
        clash = self._one_machine and needs.solo and any(each.solo for each in running)
        return len(running) < self.places() and not clash

    def start(self, order: Order, store: Store) -> None:
        future = self._client.submit(
            make, asdict(order), self._commit, key=f"run-{order.key}-{time.time_ns()}", pure=False
        )
        self._running[order.key] = (order, store, future, time.monotonic())

    def finished(self) -> Sequence[Outcome]:
        time.sleep(PAUSE)
        done = [entry for entry in self._running.values() if entry[2].done()]
        return [self._end(order, store, future) for order, store, future, _ in done]

    def _end(self, order: Order, store: Store, future: Any) -> Outcome:
        del self._running[order.key]
        try:
            packed, error = future.result(timeout=60)
            part = store.unpack(order, packed) if packed else None
        except Exception as problem:  # whatever went wrong in a worker comes back as it was raised there
            return Outcome(order, error=f"a worker failed: {problem}".partition("\n")[0])
        return Outcome(order, store.keep(order, part)) if part and not error else Outcome(order, error=error)

    def running(self) -> dict[str, float]:
        return {name: time.monotonic() - entry[3] for name, entry in self._running.items()}

    def stop(self) -> None:
        futures = [entry[2] for entry in self._running.values()]
        self._running.clear()
        with contextlib.suppress(Exception):  # the scheduler may be what has gone
            self._client.cancel(futures, force=True)


@contextlib.contextmanager
def connect(scheduler: str) -> Iterator[Any]:
    """A client of the scheduler at that address. Raises LabError."""
    import dask
    from distributed import Client

    dask.config.set(QUIET)
    try:
        client = Client(scheduler, timeout=CONNECT_TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise LabError(f"no scheduler answers at '{scheduler}': {str(error).partition(chr(10))[0]}") from None
    try:
        yield client
    finally:
        client.close(timeout=5)


@contextlib.contextmanager
def local(workers: int) -> Iterator[str]:
    """A scheduler and workers of this machine; yields the scheduler's address. Whoever reaches a scheduler may run
    anything on its workers, so they have a network of their own, which this thread joins. All of it ends with this
    process.

    Raises LabError.
    """
    from accesspoint.topologies.namespaces.namespace import Namespace
    from accesspoint.topologies.processes import last_line

    with Namespace() as alone, tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        _join(alone)
        file, said = Path(folder) / "scheduler.json", Path(folder) / "log"
        where = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
        with said.open("wb") as log:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": ROOT}
            options["env"] = os.environ | {
                f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value) for name, value in QUIET.items()
            }
            scheduler = alone.popen(sys.executable, "-m", "dask", "scheduler", "--port", "0", *where, **options)
            deadline = time.monotonic() + CONNECT_TIMEOUT
            while not file.exists():
                if scheduler.poll() is not None or time.monotonic() > deadline:
                    raise LabError(f"the local scheduler did not start: {last_line(said)}")
                time.sleep(0.1)
            more = ["--nthreads", "1", "--memory-limit", "0", "--local-directory", folder, "--death-timeout", "60"]
            for _ in range(workers):
                alone.popen(sys.executable, "-m", "dask", "worker", *where, *more, **options)
            yield str(json.loads(file.read_text())["address"])


def _join(namespace: "Namespace") -> None:
    descriptor = os.open(f"/proc/{namespace.pid}/ns/net", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, contain.CLONE_NEWNET) != 0:
            raise LabError(f"no network namespace can be joined: {os.strerror(ctypes.get_errno())}; run it as root")
    finally:
        os.close(descriptor)


def commit() -> str:
    """Return this project's commit, with `-dirty` when files differ from it."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
