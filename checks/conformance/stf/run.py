# SPDX-License-Identifier: Apache-2.0
"""Runs one case on a switch: its statements in their order, then what has left is what is expected."""

import operator
import time
from collections import defaultdict
from pathlib import Path

import grpc
from finsy.proto import p4r

from accesspoint.checks.conformance.stf.entities import Entities, Updates, wrapped
from accesspoint.checks.conformance.stf.language import (
    Add,
    CheckCounter,
    Command,
    Expect,
    Packet,
    RemoveAll,
    SetDefault,
    Statement,
    Wait,
)
from accesspoint.checks.conformance.stf.piped import PipedServer
from accesspoint.checks.conformance.suite import Failed, expect, fail
from accesspoint.checks.harness.p4runtime import Client, Program, delete, describe, errors, name_of
from accesspoint.topologies import targets

QUIET = 0.1  # s; what should not leave has left by then, after the last packet was taken
COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def run(target: targets.Target, program: Program, statements: list[Statement], directory: Path, wait: float) -> None:
    """Raises Failed. directory: empty, for the switch's files. wait: for what must come (s)."""
    ports = {one.port for one in statements if isinstance(one, Packet | Expect)}
    with PipedServer(target, ports, directory, wait) as server:
        client = Client(server.place.address, device_id=server.place.device_id, wait=wait)
        try:
            client.become_primary()
            client.push(program=program)
            Case(server, client, program, wait).run(statements)
        except grpc.RpcError as failure:
            fail(server.ended() or describe(failure))
        except (AssertionError, Failed) as why:
            ended = server.ended()
            fail(f"{ended} ({why})" if ended else str(why))
        finally:
            client.close()
        ended = server.ended()
        if ended:
            fail(ended)


class Case:
    """A case under way."""

    def __init__(self, server: PipedServer, client: Client, program: Program, wait: float) -> None:
        self.server = server
        self.client = client
        self.entities = Entities(program)
        self.wait = wait
        self.expected: dict[int, list[Expect]] = defaultdict(list)
        self.under_way = False

    def run(self, statements: list[Statement]) -> None:
        for one in statements:
            if isinstance(one, Packet):
                self.server.send(one.port, one.frame)
                self.under_way = True
            elif isinstance(one, Expect):
                self.expected[one.port].append(one)
            else:
                self.settle()
                self.command(one)
        all_read = self.server.has_read_all()
        self.server.close_inputs()
        self.arrive()
        time.sleep(QUIET if all_read else 10 * QUIET)
        self.compare()

    def settle(self) -> None:
        """Wait until the packets that were sent have met the entries so far, and none of the later ones."""
        if self.under_way and self.server.has_read_all():
            self.arrive()
            time.sleep(QUIET)
        self.under_way = False

    def arrive(self) -> None:
        """Waits for as many frames as are expected."""
        deadline = time.monotonic() + self.wait
        while time.monotonic() < deadline and self.server.runs():
            sent = self.server.sent()
            if all(len(sent[port]) >= len(expected) for port, expected in self.expected.items()):
                return
            time.sleep(0.01)

    def compare(self) -> None:
        for port, frames in self.server.sent().items():
            expected = self.expected[port]
            for one, frame in zip(expected, frames, strict=False):
                why = difference(one, frame)
                if why:
                    fail(f"line {one.line}, port {port}: {why}")
            if len(frames) > len(expected):
                rest = len(frames) - len(expected)
                fail(f"{rest} frames too many left through port {port}: {frames[len(expected)].hex()}")
            if len(frames) < len(expected):
                missing = expected[len(frames)]
                fail(f"line {missing.line}: {len(frames)} of {len(expected)} frames left through port {port}")

    # Commands

    def command(self, one: Statement) -> None:
        match one:
            case Add():
                self.write(one.line, self.entities.add(one))
            case SetDefault():
                self.write(one.line, self.entities.set_default(one))
            case RemoveAll():
                entries = [entry for entry in self.client.read(table_entry=p4r.TableEntry()) if not entry.is_const]
                self.write(one.line, [delete(entry) for entry in entries if not entry.is_default_action])
            case CheckCounter():
                self.check_counter(one)
            case Command(word="counter_read" | "register_read" | "meter_get_rates" | "mirroring_get"):
                self.read(one)
            case Command(word=word) if word.startswith(("mc_", "mirroring_")):
                self.write(one.line, self.entities.replication(one))
            case Command():
                self.write(one.line, self.entities.state(one))
            case Wait():
                pass

    def write(self, line: int, updates: Updates) -> None:
        for one in updates:
            try:
                self.client.write(one)
            except grpc.RpcError as failure:
                said = [f"{name_of(e.canonical_code)} {e.message}" for e in errors(failure) if e.canonical_code]
                fail(f"line {line} is refused: {'; '.join(said)}")

    def read(self, one: Command) -> None:
        """Cells are read for whoever looks on; they only have to be there."""
        if one.word == "counter_read":
            found = self.client.read(counter_entry=self.entities.counter_cell(one.name, one.numbers[0]))
        elif one.word == "mirroring_get":
            session = wrapped(clone_session_entry=p4r.CloneSessionEntry(session_id=one.numbers[0]))
            found = self.client.read(packet_replication_engine_entry=session)
        elif one.word == "register_read":
            register = p4r.RegisterEntry(register_id=self.entities.find("registers", one.name).preamble.id)
            register.index.index = one.numbers[0]
            found = self.client.read(register_entry=register)
        else:
            meter = p4r.MeterEntry(meter_id=self.entities.find("meters", one.name).preamble.id)
            meter.index.index = one.numbers[0]
            found = self.client.read(meter_entry=meter)
        expect(len(found), 1, f"line {one.line}: what {one.word} finds")

    def check_counter(self, one: CheckCounter) -> None:
        """Poll a counter until it agrees: a packet that leaves nowhere is counted at an unknown time."""
        deadline = time.monotonic() + self.wait
        while True:
            count = self.count(one)
            if not one.unit or COMPARE[one.comparison](count, one.value):
                return
            if time.monotonic() > deadline:
                fail(f"line {one.line}: {one.counter} has {count} {one.unit}, not {one.comparison} {one.value}")
            time.sleep(0.01)

    def count(self, one: CheckCounter) -> int:
        if isinstance(one.cell, str):
            found = self.client.read(direct_counter_entry=self.entities.direct_cell(one.cell.removeprefix("$")))
        else:
            found = self.client.read(counter_entry=self.entities.counter_cell(one.counter, one.cell))
        expect(len(found), 1, f"line {one.line}: cells that are read")
        data = found[0].data
        return int(data.byte_count if one.unit == "bytes" else data.packet_count)


def difference(one: Expect, frame: bytes) -> str:
    """Return the difference between a frame and the expected one; empty if there is none."""
    if one.digits is None:
        return ""
    digits = frame.hex()
    if len(digits) < len(one.digits) or (one.exact and len(digits) > len(one.digits)):
        wanted = f"{len(one.digits) / 2:g} bytes{'' if one.exact else ' or more'}"
        return f"{len(frame)} bytes instead of {wanted}: {digits}"
    for at, (wanted, found) in enumerate(zip(one.digits, digits, strict=False)):
        if wanted not in ("*", found):
            return f"digit {at} is {found} instead of {wanted}: {digits} instead of {one.digits}"
    return ""
