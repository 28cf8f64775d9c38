# SPDX-License-Identifier: Apache-2.0
"""The loop as the rest of the controller sees it: it ticks in a process of its own, this is the handle.

`Workers` are those processes; `Loop` is one access point in one of them: `run` lets it tick for one session, `ports`
and the counts are read from the memory that it shares (`board`). What changes its work (flows, parameters) is told to
it.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from finsy.proto import p4r

from . import acks, compiled
from .board import CLASSES, DURATIONS, GROUP, LATE, MISSED, TICKS, VOLUMES, Board
from .classes import class_ids
from .config import AccessPointConfig, Port
from .connection import Connection, SessionError
from .feedback import Floats
from .messages import LENGTH_BYTES, Key, NewFlow, Session, packed
from .program import ECT0, ECT1, NOT_ECT, Program, table_entry

LOG = logging.getLogger(__name__)

MOST_PER_WORKER = 50
"""Access points whose ticks one process takes care of, when there are cores enough."""

FLOWS_PER_MESSAGE = 32
ROOT = Path(__file__).resolve().parent.parent


class WorkerProcess:
    """One process that ticks, from this side."""

    def __init__(self) -> None:
        self.sessions: dict[int, asyncio.Queue[tuple[str, str]]] = {}
        """What happened to each session: `ended` and why, or `released`."""
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start the process if it does not run."""
        async with self._starting:
            if self._writer is not None:
                return
            ours, its = socket.socketpair()
            path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
            with its:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "controller.worker_main", str(its.fileno()),
                    pass_fds=[its.fileno()], stdin=asyncio.subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path},
                )  # fmt: skip
            reader, self._writer = await asyncio.open_unix_connection(sock=ours)
            self._listening = asyncio.create_task(self._listen(reader))

    def send(self, *message: Any) -> None:
        """Tell the process something; it is lost when the process is gone, of which the sessions hear."""
        if self._writer is not None:
            self._writer.write(packed(message))

    async def stop(self) -> None:
        """End the process."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._listening is not None:
            await asyncio.wait([self._listening])

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
                kind, key, *reason = pickle.loads(await reader.readexactly(size))
                if key in self.sessions:
                    self.sessions[key].put_nowait((kind, *reason, "")[:2])
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for session in self.sessions.values():
            session.put_nowait(("ended", "the process of the loop has ended"))


class Workers:
    """The processes of all loops: one, or more when there are more than `MOST_PER_WORKER` access points and as many
    cores. Each is started when it is needed."""

    def __init__(self) -> None:
        self._most = len(os.sched_getaffinity(0))
        self._processes = [WorkerProcess()]

    async def prepare(self) -> None:
        """Start the first process, so that nobody has to wait for it."""
        if not compiled.directory().is_dir():
            LOG.warning("the loop runs interpreted and takes more CPU: `make setup` compiles it where it can")
        await self._processes[0].start()

    async def take(self, key: int) -> WorkerProcess:
        """The process for one more session, running."""
        least = min(self._processes, key=lambda process: len(process.sessions))
        if len(least.sessions) >= MOST_PER_WORKER and len(self._processes) < self._most:
            least = WorkerProcess()
            self._processes.append(least)
        least.sessions[key] = asyncio.Queue()
        try:
            await least.start()
        except BaseException:
            del least.sessions[key]
            raise
        return least

    async def stop(self) -> None:
        """End all of them."""
        await asyncio.gather(*(process.stop() for process in self._processes))


class Loop:
    """The loop of one access point; `over(keys)` is called for flows whose counters have stood still for too long."""

    _keys = itertools.count(1)

    def __init__(self, config: AccessPointConfig, program: Program, workers: Workers) -> None:
        self._config = config
        self._program = program
        self._workers = workers
        self.board = Board.create(len(config.ports))
        self.ports = {
            port.port: PortView(config, port, self.board.ports[number]) for number, port in enumerate(config.ports)
        }
        self.written: dict[Key, tuple[int, bool]] = {}
        """The feedback entries that were in the switch when the session began: 16 bits, and whether they only mark."""
        self._worker: WorkerProcess | None = None
        self._key = 0

    def forget(self) -> None:
        """The switch has no feedback entries."""
        self.written = {}

    def adopt(self, entries: Iterable[p4r.TableEntry]) -> list[p4r.Update]:
        """Go on with the feedback entries that the switch has; returns what has to be mended there."""
        updates = []
        of_ports = self._program.schema.tables["port_feedback"].id
        for entry in entries:
            port, *of_class, ecn = (int.from_bytes(field.exact.value) for field in entry.match)
            feedback, *mark_only = (int.from_bytes(param.value) for param in entry.action.action.params)
            if port not in self.ports:
                updates.append(p4r.Update(type=p4r.Update.DELETE, entity=p4r.Entity(table_entry=entry)))
            elif entry.table_id == of_ports:
                self.written[port, None, ecn] = feedback, False
            else:
                self.written[port, of_class[0], ecn] = feedback, bool(mark_only[0])
        return updates

    async def run(self, connection: Connection, flows: Callable[[], Iterable[NewFlow]]) -> None:
        """Tick until cancelled, with the flows that there are and those of `add`; raises `SessionError`."""
        key = next(self._keys)
        worker = await self._workers.take(key)
        try:
            session = await self._session(connection)
            worker.send("start", key, self._config, session, (os.getpid(), self.board.fd, len(self._config.ports)))
            self._worker, self._key = worker, key
            self.add(flows())
            kind, reason = await worker.sessions[key].get()
            if kind == "ended":
                raise SessionError(f"{self._config.name}: the loop lost {self._config.address}: {reason}; trying again")
        finally:
            worker.send("stop", key)
            self._worker = None
            del worker.sessions[key]

    async def release(self) -> None:
        """Stop ticking for good and take all feedback back; `run` returns when that is done."""
        if self._worker is not None:
            key = self._key
            self._tell("release")
            while self._worker is not None and self._key == key:
                await asyncio.sleep(0.005)

    def configure(self) -> None:
        """Parameters have changed in the configuration."""
        self._tell("configure", self._config)

    def add(self, flows: Iterable[NewFlow]) -> None:
        """Flows whose entries are in the switch from now on."""
        flows = iter(flows)
        while part := list(itertools.islice(flows, FLOWS_PER_MESSAGE)):
            self._tell("add", part)

    def change(self, flow: NewFlow) -> None:
        """A flow whose entry was written with another class."""
        self._tell("change", flow)

    def remove(self, indices: Iterable[int]) -> None:
        """Flows whose entries are taken away now."""
        self._tell("remove", list(indices))

    def _tell(self, operation: str, *arguments: Any) -> None:
        if self._worker is not None:
            self._worker.send(operation, self._key, *arguments)

    async def _session(self, connection: Connection) -> Session:
        family, address = await connection.resolve()
        schema = self._program.schema
        updates = {
            key: self._program.write_part(self._entry(key))
            for key in itertools.product(self.ports, (None, *range(CLASSES)), (NOT_ECT, ECT1, ECT0))
        }
        meters = {
            (port, queue): self._program.write_part(acks.queue_meter(port, queue, rate))
            for (port, queue), rate in acks.meter_rates(self._config).items()
        }
        return Session(
            family=family,
            address=address,
            authority=self._config.address,
            device_id=self._config.device_id,
            election_id=connection.election_id,
            counters={name: schema.counters[name].id for name in (*VOLUMES, *GROUP)},
            updates=updates,
            written=self.written,
            meters=meters,
        )

    def _entry(self, key: Key) -> Any:
        """A feedback entry; the loop puts the values in."""
        port, class_id, ecn = key
        match: dict[str, object] = {"egress_port": port, "ecn": ecn}
        if class_id is None:
            return table_entry("port_feedback", match, "add_port_feedback", feedback=0)
        match["class_id"] = class_id
        return table_entry("class_feedback", match, "add_class_feedback", feedback=0, mark_only=0)

    @property
    def ticks(self) -> int:
        """How many ticks have begun."""
        return int(self.board.counts[TICKS])

    @property
    def late(self) -> int:
        """How many of them began more than half an interval after they were due."""
        return int(self.board.counts[LATE])

    @property
    def missed(self) -> int:
        """How many were left out, because the next one was due already."""
        return int(self.board.counts[MISSED])

    @property
    def durations(self) -> Floats:
        """Seconds from begin to end, of the last ticks, ascending."""
        return np.sort(np.frombuffer(self.board.durations)[: min(self.ticks, DURATIONS)])


class Volume:
    """What a port counted of one class since the pipeline was pushed."""

    __slots__ = (
        "arrived_bytes",
        "arrived_packets",
        "filtered_bytes",
        "filtered_packets",
        "sent_bytes",
        "sent_packets",
    )

    def __init__(self, packets: list[int], sizes: list[int]) -> None:
        self.arrived_packets, self.sent_packets, self.filtered_packets = packets
        self.arrived_bytes, self.sent_bytes, self.filtered_bytes = sizes


class PortView:
    """One port, as its last tick left it."""

    def __init__(self, config: AccessPointConfig, port: Port, row: Any) -> None:
        self.port = port
        self._config = config
        self._row = row

    @property
    def feedback(self) -> float:
        """The device term."""
        return float(self._row["feedback"])

    @property
    def queue_packets(self) -> float:
        """What the queue holds."""
        return float(self._row["queue_packets"])

    @property
    def queue_bytes(self) -> float:
        """What the queue holds."""
        return float(self._row["queue_bytes"])

    @property
    def delay(self) -> float:
        """Seconds until the queue of now has left."""
        return self.queue_bytes / self.capacity if self.capacity else 0.0

    @property
    def target(self) -> float:
        """q* in bytes."""
        return float(self._row["target"])

    @property
    def target_delay(self) -> float:
        """q* in seconds; 0: nothing is known of the link."""
        return self.target / self.capacity if self.capacity else 0.0

    @property
    def capacity(self) -> float:
        """C in bytes/s, as it is reckoned with; 0: nothing is known."""
        return float(self._row["capacity"]) or self.port.capacity

    @property
    def learned(self) -> float:
        """What the link was seen to carry, in bytes/s; 0: it was not busy for long enough."""
        return float(self._row["learned"])

    @property
    def flows_active(self) -> int:
        """Flows with traffic."""
        return int(self._row["flows_active"])

    @property
    def largest_flow_feedback(self) -> float:
        """The largest flow term."""
        return float(self._row["largest_flow"])

    @property
    def class_feedback(self) -> dict[int, float]:
        """The class terms, by class; only of those with traffic."""
        values: list[float] = self._row["class_feedback"].tolist()
        in_use = set(class_ids(self._config))
        return {number: value for number, value in enumerate(values) if number in in_use and not math.isnan(value)}

    @property
    def class_rates(self) -> list[float]:
        """Bytes/s that arrive of each class and are not filtered."""
        return self._row["class_rate"].tolist()

    @property
    def class_desired(self) -> list[float]:
        """D of each class in bytes/s."""
        return self._row["class_desired"].tolist()

    @property
    def volumes(self) -> dict[int, Volume]:
        """What was counted, by class in use."""
        packets, sizes = self._row["packets"].T.tolist(), self._row["bytes"].T.tolist()
        return {number: Volume(packets[number], sizes[number]) for number in class_ids(self._config)}


def percentile(ascending: Floats, part: float) -> float:
    """Such a part of the values is below; 0 without values."""
    return float(ascending[math.ceil(part * (ascending.size - 1))]) if ascending.size else 0.0
