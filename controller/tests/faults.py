# SPDX-License-Identifier: Apache-2.0
"""Faults, with real processes: `python -m accesspoint.controller.tests.faults --count 100` prints how many were
survived.

Traffic goes through a switch all the time, and rules are changed, while the controller, its database, its
clock, the switch or the connection between them fails at a random moment. After each fault the database must be whole,
the last change that was confirmed must be there, and the switch must hold what is wanted, and flows and stations that
the controller knows of, with no flow index given twice.
"""

import asyncio
import contextlib
import json
import os
import random
import selectors
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import finsy as fy
import httpx
import typer
from finsy.proto import p4r

from accesspoint.checks.harness.switches import (
    ROOT,
    SERVER,
    STATION,
    Controller,
    End,
    SwitchLab,
    end,
    lab,
    udp,
    wait_for,
)
from accesspoint.controller.agent import classes, ports, queue_meters
from accesspoint.controller.agent.entries import EntrySet, everything
from accesspoint.controller.agent.program import FLOW_TABLES, Encodable, Program
from accesspoint.controller.config import AccessPointConfig
from accesspoint.topologies.namespaces.namespace import end_with_parent

FAKETIME = "faketime"
MANAGED = {*FLOW_TABLES.values(), "learn", "forward", "port_feedback", "class_feedback"}


class Proxy:
    """TCP in between, which can swallow what passes: `cut(n)` the n-th connection, `cut()` all; `release` ends that."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._cut: set[int] = set()
        self._all_cut = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._ended = False
        # Not even a trial that was never made keeps its process from ending.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self, number: int | None = None) -> None:
        """From now on nothing passes, and neither side is told."""
        if number is None:
            self._all_cut = True
        else:
            self._cut.add(number)

    def release(self) -> None:
        """Release everything that was held up."""
        self._all_cut = False
        self._cut.clear()

    def close(self) -> None:
        """End it and all connections."""
        self._ended = True
        self._thread.join()
        for pair in self._pairs:
            for side in pair:
                side.close()
        self._listener.close()

    def _run(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(0.05):
                if key.data is None:
                    self._accept()
                elif not self._all_cut and key.data[0] not in self._cut:
                    self._pass(*key.data)
            if self._all_cut or self._cut:
                time.sleep(0.01)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._target), 1)
        except OSError:
            near.close()
            return
        number = len(self._pairs)
        self._pairs.append((near, far))
        for source, sink in ((near, far), (far, near)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(source, selectors.EVENT_READ, (number, source, sink))

    def _pass(self, number: int, source: socket.socket, sink: socket.socket) -> None:
        del number
        try:
            data = source.recv(1 << 16)
            if data:
                sink.sendall(data)
                return
        except OSError:
            pass
        for side in (source, sink):
            if side.fileno() >= 0:
                self._selector.unregister(side)
                side.close()


class Numbered:
    """Packets with numbers from the station to the server while the block runs: of so many flows, so many a second.

    Args:
        wires: from which they go into the switch and out of it, by its ports.
    """

    def __init__(self, wires: Mapping[int, End], flows: int = 4, per_second: float = 100.0) -> None:
        self._wires = wires
        self._flows = flows
        self._pause = 1 / per_second
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._send, self._take)]
        self.sent = 0
        self.got: list[int] = []

    def __enter__(self) -> "Numbered":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        while not self._stop.wait(self._pause):
            frame = udp(STATION, SERVER, 5000 + self.sent % self._flows, 6000)
            self._wires[1].send(frame[:42] + self.sent.to_bytes(8) + frame[50:])
            if self.sent % 10 == 0:
                # A switch that starts anew has to learn both of them.
                self._wires[2].send(udp(SERVER, STATION, 6000, 5000))
            self.sent += 1

    def _take(self) -> None:
        # The last ones are still on their way when sending ends.
        last = 0.0
        while not last or time.monotonic() < last:
            for frame in self._wires[2].received(0.1):
                if frame[36:38] == (6000).to_bytes(2):
                    self.got.append(int.from_bytes(frame[42:50]))
            if self._stop.is_set() and not last:
                last = time.monotonic() + 0.5


def wanted_by(config: AccessPointConfig, program: Program) -> list[Encodable]:
    """Return the entities that follow from a configuration."""
    return [*ports.entities(config, program.target), *classes.entities(config, program), *queue_meters.entities(config)]


async def read_switch(address: str, program: Program, wanted: list[Encodable]) -> list[p4r.Entity]:
    """Read everything that a controller writes."""
    found = []
    async with fy.P4Client(address, wait_for_ready=False) as client:
        for entity in everything(program, wanted):
            try:
                async for answer in client.request_iter(p4r.ReadRequest(device_id=1, entities=[entity])):
                    found += answer.entities
            except fy.P4ClientError:
                continue
    return found


def unlike(made: SwitchLab, **access_point: Any) -> list[str]:
    """Return differences of a switch to a configuration, and its inconsistencies; empty when all is well."""
    return differences(AccessPointConfig.model_validate(made.config(**access_point)["access_points"][0]))


def differences(config: AccessPointConfig) -> list[str]:
    """Return differences of a switch to this configuration, and its inconsistencies; empty when all is well."""
    program = Program(config.pipeline)
    wanted = wanted_by(config, program)
    found = asyncio.run(read_switch(config.address, program, wanted))
    # What queues may take follows from what the loop sees of links and flows: that there is something, is all.
    set_by_loop = {
        entity.meter_entry.index.index
        for entity in found
        if entity.HasField("meter_entry") and entity.meter_entry.config.cir
    }
    wanted = [entity for entity in wanted if not (isinstance(entity, fy.P4MeterEntry) and entity.index in set_by_loop)]
    own, flows = [], []
    for entity in found:
        if entity.HasField("meter_entry") and entity.meter_entry.index.index in set_by_loop:
            continue
        name = program.schema.tables[entity.table_entry.table_id].alias if entity.HasField("table_entry") else ""
        if name in FLOW_TABLES.values():
            flows.append(entity.table_entry)
        elif name not in MANAGED and not entity.table_entry.is_const:
            # Which controller wrote it is not what the configuration says.
            entity.table_entry.ClearField("metadata") if name else None
            own.append(entity)
    entries = EntrySet(program)
    entries.adopt(own)
    wrong = [str(update) for update in entries.updates(wanted)]
    indices = [bytes(entry.action.action.params[0].value) for entry in flows]
    if len(indices) != len(set(indices)):
        wrong.append(f"flow indices are given twice: {sorted(indices)}")
    return wrong


def kill(process: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return


class Disk:
    """A small file system of its own for a database; nobody else sees it, and it ends with this process."""

    BYTES = 16 << 20

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        script = f"mount -t tmpfs -o size={self.BYTES} none {directory} && echo there && exec sleep infinity"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdout=subprocess.PIPE,
            preexec_fn=end_with_parent,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"there\n", "no tmpfs can be mounted"
        self.before = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", f"--wd={ROOT}", "--"]
        """Runs a command where the file system is."""
        self.path = Path(f"/proc/{self._holder.pid}/root{directory}")
        """It, as seen from here."""

    def fill(self) -> None:
        """Leave no room."""
        with (self.path / "fill").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self) -> None:
        """Leave room again."""
        (self.path / "fill").unlink()

    def close(self) -> None:
        """End it."""
        end(self._holder)


class Trial:
    """A switch, a controller behind a proxy, and traffic; `fault` breaks something and waits until all is well."""

    def __init__(self, made: SwitchLab, seed: int) -> None:
        self.made = made
        self.random = random.Random(seed)
        self.proxy = Proxy(made.grpc)
        self.disk = Disk(made.directory / "disk")
        self.offset = made.directory / "clock"
        self.offset.write_text("+0")
        self._clock: list[str] = []
        if library := faketime_library():
            names = {"FAKETIME_TIMESTAMP_FILE": self.offset, "LD_PRELOAD": library}
            names |= {"FAKETIME_NO_CACHE": 1, "FAKETIME_DONT_FAKE_MONOTONIC": 1}
            self._clock = ["env", *(f"{name}={value}" for name, value in names.items())]
        self._config = made.directory / "trial.json"
        self._config.write_text(json.dumps(made.config(address=f"127.0.0.1:{self.proxy.port}")))
        self.rules: list[int] = [0]
        """The DSCP that the one rule may have: what was confirmed last, and what was asked for since."""
        self._asked: list[str] = []
        """Requests since the last check, and their results."""
        self._aside = ThreadPoolExecutor(1)
        self.controller = self._start()
        self.kinds: dict[str, Callable[[], None]] = {
            "controller killed": self._kill_controller,
            "controller ended": self._end_controller,
            "controller stopped": self._stop_controller,
            "switch killed": self._kill_switch,
            "switch stopped": self._stop_switch,
            "connection cut": self._cut,
            "database locked": self._lock_database,
            "disk full": self._fill_disk,
        }
        if self._clock:
            self.kinds["clock jumped"] = self._jump
        self._bag: list[str] = []

    def begin(self) -> None:
        """Wait until the switch is under control and knows the station and the server."""
        self.controller.wait_ready()
        self.made.introduce(self.controller)

    def close(self) -> None:
        """End what it started; the rest is the lab's."""
        self._aside.shutdown()
        end(self.controller.process)
        self.proxy.close()
        self.disk.close()

    def _start(self) -> Controller:
        database = f"sqlite:///{self.made.directory}/disk/controller.db"
        started = Controller(self._config, "--database", database, before=[*self.disk.before, *self._clock])
        self.made.controllers.append(started)
        return started

    def _kill_controller(self) -> None:
        self.controller.process.kill()
        self.controller.process.wait()
        self.controller = self._start()

    def _end_controller(self) -> None:
        self.controller.process.send_signal(signal.SIGTERM)
        self.controller.process.wait()
        self.controller = self._start()

    def _stop_controller(self) -> None:
        kill(self.controller.process.pid, signal.SIGSTOP)
        time.sleep(self.random.uniform(0.1, 5))
        kill(self.controller.process.pid, signal.SIGCONT)

    def _kill_switch(self) -> None:
        assert self.made.switch is not None
        self.made.switch.kill()
        self.made.switch.wait()
        self.made.switch = None
        self.made.start_switch()

    def _stop_switch(self) -> None:
        assert self.made.switch is not None
        kill(self.made.switch.pid, signal.SIGSTOP)
        time.sleep(self.random.uniform(0.1, 3.0))
        kill(self.made.switch.pid, signal.SIGCONT)

    def _cut(self) -> None:
        self.proxy.cut()
        time.sleep(self.random.uniform(0.1, 3.0))
        self.proxy.release()

    def _lock_database(self) -> None:
        with contextlib.closing(sqlite3.connect(self.disk.path / "controller.db", isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            time.sleep(self.random.uniform(0.1, 3.0))
            database.execute("ROLLBACK")

    def _fill_disk(self) -> None:
        self.disk.fill()
        try:
            self._change()
            time.sleep(self.random.uniform(0.1, 1.0))
        finally:
            self.disk.free()

    def _jump(self) -> None:
        self.offset.write_text(self.random.choice(["+3600", "-3600", "+86400", "-86400", "-600", "+0"]))

    def _change(self) -> None:
        """Ask for another rule; who does not hear that it was done cannot know."""
        dscp, asked = self.random.randrange(1, 64), self.controller
        try:
            answer = asked.send("PUT", "rules/r", {"name": "r", "class_id": 3, "dscp": dscp}, wait=0)
        except httpx.HTTPError as error:
            self.rules.append(dscp)
            self._asked.append(f"{dscp}: {error!r}")
            return
        self._asked.append(f"{dscp}: {answer.status_code} {answer.text}")
        assert answer.status_code in (200, 201, 502, 503), f"{answer.text}\n{asked.errors.read_text()}"
        if answer.status_code < 300:
            self.rules = [dscp]

    def fault(self, kinds: Sequence[str] = ()) -> str:
        """Cause one fault at a random moment, each of the kinds (all: `()`) in its turn; returns the kind. Raises
        AssertionError."""
        if not self._bag:
            self._bag = list(kinds or self.kinds)
            self.random.shuffle(self._bag)
        kind = self._bag.pop()
        time.sleep(self.random.uniform(0.0, 0.3))
        changing = self._aside.submit(self._change)
        time.sleep(self.random.uniform(0.0, 0.05))
        self.kinds[kind]()
        if self.random.random() < 0.3:
            # And again, before it has recovered.
            time.sleep(self.random.uniform(0.0, 0.5))
            again = self.random.choice(list(kinds or self.kinds))
            self.kinds[again]()
            kind = f"{kind}, {again}"
        changing.result()
        wait_for(self._is_well)
        self._check(kind)
        return kind

    def _check(self, kind: str) -> None:
        rules = self.controller.get("rules")
        found = rules[0]["dscp"] if rules else 0
        assert found in self.rules, f"after {kind}: dscp {found}, not one of {self.rules}: {self._asked}"
        self.rules, self._asked = [found], []
        wrong = unlike(self.made, rules=rules)
        assert not wrong, f"after {kind}: {wrong}"
        with contextlib.closing(sqlite3.connect(self.disk.path / "controller.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], kind

    def _is_well(self) -> bool:
        """Return True while the loop ticks, and flows and stations are known."""
        before = self._look()
        if before is None:
            return False
        time.sleep(0.1)
        after = self._look()
        return after is not None and after["loop"]["ticks"] > before["loop"]["ticks"]

    def _look(self) -> Any:
        answer = self.controller.send("GET", "")
        if answer.status_code != 200 or answer.json()["state"] != "ready":
            return None
        known = answer.json()
        return known if known["stations"] >= 1 and known["flows"] >= 1 else None


def faketime_library() -> str | None:
    """Return the library that gives a process a clock of its own, or None."""
    if not shutil.which(FAKETIME):
        return None
    script = [FAKETIME, "-f", "+0", "printenv", "LD_PRELOAD"]
    return subprocess.run(script, capture_output=True, text=True, check=True).stdout.strip()


def survive(
    made: SwitchLab,
    count: int | None,
    seed: int,
    kinds: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """So many faults in a row, None: one of each kind; returns how many were survived, which is all of them, or raises
    AssertionError."""
    made.start_switch()
    trial = Trial(made, seed)
    count = len(trial.kinds) if count is None else count
    try:
        trial.begin()
        with Numbered(made.wires):
            wait_for(lambda: trial._look())
            for number in range(1, count + 1):
                say(f"{number}: {trial.fault(kinds)}")
    except AssertionError as error:
        error.add_note(trial.controller.errors.read_text())
        raise
    finally:
        trial.close()
    return count


def main(
    count: Annotated[int, typer.Option(help="How many faults.")] = 100,
    seed: Annotated[int, typer.Option(help="Of what happens when.")] = 1,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only this kind, as 'controller killed'; may be repeated.")
    ] = None,
) -> None:
    """Let a controller and its switch fail again and again."""
    with tempfile.TemporaryDirectory() as directory, lab("apswitch", Path(directory)) as made:
        print(f"survived {survive(made, count, seed, kind or (), say)} faults")


def say(line: str) -> None:
    """At once, also into a file."""
    print(line, flush=True)


if __name__ == "__main__":
    typer.run(main)
