# SPDX-License-Identifier: Apache-2.0
"""Runs on the workers of a Dask cluster: https://distributed.dask.org. Each worker makes one run at a time, in a
process of its own, and sends its folder back: workers share no files with us, only this project at the same commit."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.plan import Order
from experiments.pool import Outcome, reason, spawn
from experiments.store import Store, pack
from topologies.nodes import stop_process
from topologies.requirements import ROOT, LabError

CONNECT_TIMEOUT = 20.0  # s
PAUSE = 0.25  # s between two looks
LOST_TIMEOUT = 15.0  # s without a word from a worker, after which it is lost


def make(fields: dict[str, Any]) -> tuple[bytes, str]:
    """Called in a worker: makes a run. Returns its folder, packed, and why there is none."""
    order = Order(**fields)
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        process = spawn(order, Path(folder))
        try:
            process.wait()
        finally:
            stop_process(process)
        error = reason(process)
        return (b"", error) if error else (pack(Path(folder)), "")


class ClusterPool:
    """Workers of a scheduler. Runs of a worker that is lost go to another one, by Dask's own means."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._running: dict[str, tuple[Order, Store, Any, float]] = {}

    def places(self) -> int:
        """One for each worker that is there now: others may come and go."""
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def start(self, order: Order, store: Store) -> None:
        future = self._client.submit(make, asdict(order), key=f"run-{order.key}-{time.time_ns()}", pure=False)
        self._running[order.key] = (order, store, future, time.monotonic())

    def finished(self) -> Sequence[Outcome]:
        time.sleep(PAUSE)
        done = [entry for entry in self._running.values() if entry[2].done()]
        return [self._end(order, store, future) for order, store, future, _ in done]

    def _end(self, order: Order, store: Store, future: Any) -> Outcome:
        del self._running[order.key]
        try:
            packed, error = future.result(timeout=60)
        except Exception as problem:  # whatever went wrong in a worker comes back as it was raised there
            return Outcome(order, error=f"a worker failed: {problem}".partition("\n")[0])
        return Outcome(order, error=error) if error else Outcome(order, store.keep_packed(order, packed))

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
    from distributed import Client

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
    """A scheduler and workers of this machine, as programs of their own; yields the scheduler's address."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    processes: list[subprocess.Popen[Any]] = []
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "cwd": ROOT}
    environment = os.environ | {"DASK_DISTRIBUTED__WORKER__DAEMON": "false"}
    try:
        file = folder / "scheduler.json"
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
        command += ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        with (folder / "log").open("wb") as log:
            processes.append(subprocess.Popen(command, stderr=log, env=environment, start_new_session=True, **quiet))
            deadline = time.monotonic() + CONNECT_TIMEOUT
            while not file.exists() and processes[0].poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            for _ in range(workers):
                command = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file)]
                command += ["--nthreads", "1", "--no-dashboard", "--local-directory", str(folder)]
                processes.append(
                    subprocess.Popen(command, stderr=log, env=environment, start_new_session=True, **quiet)
                )
        if not file.exists():
            raise LabError(f"the local scheduler did not start: {(folder / 'log').read_text()[-300:].strip()}")
        yield f"file:{file}"
    finally:
        for process in reversed(processes):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in processes:
            stop_process(process)
        shutil.rmtree(folder, ignore_errors=True)
