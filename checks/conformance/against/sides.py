# SPDX-License-Identifier: Apache-2.0
"""The two servers, and what leaves them.

Both get each packet at the same time, a few at once: the next ones when as much has left the one as the other, or when
nothing more comes.
"""

import collections
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r

from accesspoint.checks.conformance.against.programs import CPU_PORT, PORTS, Case, Frame
from accesspoint.checks.conformance.server import START, OwnServer, ServerError
from accesspoint.checks.harness.p4runtime import Client, Program
from accesspoint.topologies.links.veth import Wires

MAGIC = b"\xd1\xff"  # begins the mark at the end of each packet, the number follows
MARK = 6  # bytes
TAGS = (b"\x81\x00", b"\x88\xa8")  # of VLANs; the kernel takes them from what sockets receive
ETHERNET = 14  # bytes; no interface carries less
POLL = 0.001  # s
QUIET = 0.02  # s; packets of which nothing has left by then are taken as dropped by both
PATIENCE = 1.0  # s; for what has left the one server, and not the other

Outputs = dict[int | None, collections.Counter[Frame]]  # by the packet's number; None where its mark is gone


def numbered(packet: bytes, number: int) -> bytes:
    return packet + MAGIC + struct.pack("!I", number)


def number_of(frame: bytes) -> int | None:
    mark = frame[-MARK:]
    return struct.unpack("!I", mark[2:])[0] if len(mark) == MARK and mark.startswith(MAGIC) else None


class Side:
    """One of the two: its server, a primary client, raw sockets at its ports, and the frames that have left it."""

    def __init__(self, target: str, number: int) -> None:
        log = Path(f"out/conformance/{target}-{number}.log").resolve()
        self.server = OwnServer(target, START, log, PORTS, number)
        self.wires = Wires(self.server.place.ports)
        self.client: Client
        self.outputs: Outputs = {}
        self.taken: list[bool] = []

    def begin(self, program: Program, updates: Sequence[p4r.Update]) -> None:
        """Start the server anew, with a program and updates, which it may refuse one by one."""
        self.server.revive()
        self.client = Client(self.server.place.address, program, wait=self.server.place.wait)
        self.client.become_primary()
        self.client.push(program=program)
        self.taken = [self._takes(one) for one in updates]
        while self.receive(10 * QUIET):
            pass
        self.outputs = {}

    def end(self) -> None:
        self.client.close()

    def _takes(self, one: p4r.Update) -> bool:
        try:
            self.client.write(one)
        except grpc.RpcError:
            return False
        return True

    def receive(self, seconds: float) -> int:
        """Keep the frames that are there, waiting for the first; return their number. Raises ServerError."""
        frames = self.wires.receive(seconds)
        while not self.client.received.empty():
            message = self.client.received.get()
            if isinstance(message, grpc.RpcError) or message is None:
                raise ServerError(f"{self.server.name} has ended the stream: see {self.server.log}")
            if message.WhichOneof("update") == "packet":
                frames.append((CPU_PORT, message.packet.payload))
        for port, frame in frames:
            if len(frame) >= ETHERNET:
                self.outputs.setdefault(number_of(frame), collections.Counter())[(port, frame)] += 1
        return len(frames)

    def count(self, number: int) -> int:
        """Return how many frames of a packet have left."""
        return self.outputs.get(number, collections.Counter()).total()

    def counters(self, program: Program) -> dict[str, Any]:
        """Return every counter, and every direct counter by its entry."""
        found: dict[str, Any] = {}
        for counter in program.p4info.counters:
            cells = self.client.read(counter_entry=p4r.CounterEntry(counter_id=counter.preamble.id))
            found[counter.preamble.name] = [(c.data.packet_count, c.data.byte_count) for c in cells]
        for direct in program.p4info.direct_counters:
            entry = p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=direct.direct_table_id))
            cells = self.client.read(direct_counter_entry=entry)
            found[direct.preamble.name] = sorted(
                (str(sorted(map(str, c.table_entry.match))), c.data.packet_count, c.data.byte_count) for c in cells
            )
        return found


def pass_frames(sides: Sequence[Side], case: Case, frames: Sequence[Frame]) -> None:
    """Send all frames into both servers, a window of them at a time. Raises ServerError."""
    for start in range(0, len(frames), case.window):
        window = frames[start : start + case.window]
        for side in sides:
            for port, frame in window:
                side.wires.send(port, frame)
        numbers = [number for _, frame in window if (number := number_of(frame)) is not None]
        begin = last = time.monotonic()
        while True:
            came = sum(side.receive(POLL) for side in sides)
            now = time.monotonic()
            last = now if came else last
            counts = [[side.count(number) for number in numbers] for side in sides]
            if counts[0] == counts[1] and not came and (all(counts[0]) or now - last > QUIET):
                break
            if now - begin > PATIENCE:
                for side in sides:
                    if ended := side.server.ended():
                        raise ServerError(f"{case.name}: {side.server.name}: {ended}, at packets {numbers}")
                break
    while sum(side.receive(10 * QUIET) for side in sides):
        pass


def settled_counters(sides: Sequence[Side], program: Program) -> list[dict[str, Any]]:
    """Return the counters of both. Dropped packets are counted, too, and nothing tells when they are."""
    before: list[dict[str, Any]] = []
    while (now := [side.counters(program) for side in sides]) != before and now[0] != now[1]:
        before = now
        time.sleep(PATIENCE / 2)
    return now
