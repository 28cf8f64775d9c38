# SPDX-License-Identifier: Apache-2.0
"""Fixture of a check: a primary client with a program, entities that are removed afterwards, packets and their
answers."""

import contextlib
import re
import struct
import subprocess
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.suite import Check, NotApplicable, expect, fail, show
from accesspoint.checks.harness.p4runtime import Client, Program, binary, describe, details, name_of, update
from accesspoint.topologies.links.veth import Wires

PROGRAMS = Path(__file__).parent / "programs"
HOST = bytes.fromhex("020000000002")  # where all frames go
ETHER_TYPE = b"\x88\xb5"  # for experiments (IEEE 802)
WINDOW = 16  # frames under way: a software switch drops what comes faster than it works
PADDING = bytes(40)  # so that no interface adds any
QUIET = 0.02  # s; what should not come has come by then, after what was sent later
REQUEST = struct.Struct("!BBHI")
ANSWER = struct.Struct("!IBBHHHI")
ANSWER_FIELDS = ("value", "hit", "instance_type", "replica", "error_code", "ingress_port", "packet_length")
FIELDS = {
    "TableEntry": "table_entry",
    "ActionProfileMember": "action_profile_member",
    "ActionProfileGroup": "action_profile_group",
    "CounterEntry": "counter_entry",
    "DirectCounterEntry": "direct_counter_entry",
    "MeterEntry": "meter_entry",
    "DirectMeterEntry": "direct_meter_entry",
    "RegisterEntry": "register_entry",
    "ValueSetEntry": "value_set_entry",
    "DigestEntry": "digest_entry",
    "ExternEntry": "extern_entry",
    "PacketReplicationEngineEntry": "packet_replication_engine_entry",
}


@dataclass(frozen=True)
class Place:
    """A server's address and ports. ports: the far end's interface of each; empty: packets go through the CPU port.

    wait: for an answer that must come (s).
    """

    address: str
    device_id: int = 1
    cpu_port: int = 510
    ports: dict[int, str] = field(default_factory=dict)
    credentials: grpc.ChannelCredentials | None = None
    wait: float = 5.0
    programs: Path = PROGRAMS


@dataclass(frozen=True)
class Answer:
    """A program's answer to a packet: its fields, the frame that had them, and the `port` that it left through."""

    port: int
    frame: bytes
    value: int
    hit: int
    instance_type: int
    replica: int
    error_code: int
    ingress_port: int
    packet_length: int
    rest: bytes  # after the answer: request and what follows


def answer_of(port: int, frame: bytes) -> Answer:
    """Takes a frame apart. Raises Failed for one that is too short."""
    if len(frame) < 14 + ANSWER.size:
        fail(f"a frame of {len(frame)} bytes left through port {port}, too short for an answer: {frame.hex()}")
    fields = dict(zip(ANSWER_FIELDS, ANSWER.unpack_from(frame, 14), strict=True))
    return Answer(port=port, frame=frame, rest=frame[14 + ANSWER.size :], **fields)


@cache
def load(directory: Path, name: str) -> Program:
    """A compiled program of the suite."""
    return Program(directory / f"{name}.json", directory / f"{name}.p4info.txtpb")


def entity(message: Any) -> dict[str, Any]:
    """The message as a field of `p4r.Entity`."""
    kind = type(message).__name__
    if kind in ("MulticastGroupEntry", "CloneSessionEntry"):
        inner = "multicast_group_entry" if kind.startswith("M") else "clone_session_entry"
        return entity(p4r.PacketReplicationEngineEntry(**{inner: message}))
    return {FIELDS[kind]: message}


def request_frame(source: bytes, op: int, a: int = 0, b: int = 0, c: int = 0, payload: bytes = PADDING) -> bytes:
    """Return a request to a program of the suite, from that MAC address."""
    return HOST + source + ETHER_TYPE + REQUEST.pack(op, a, b, c) + payload


def lpm(field_id: int, value: int, length: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, lpm={"value": binary(value), "prefix_len": length})


def ternary(field_id: int, value: int, mask: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, ternary={"value": binary(value), "mask": binary(mask)})


def between(field_id: int, low: int, high: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, range={"low": binary(low), "high": binary(high)})


def optional(field_id: int, value: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, optional={"value": binary(value)})


class Fixture:
    """Client, program and packets of the checks, one for a run; `begin` and `end` are called around each check."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.wires = Wires(place.ports) if place.ports else None
        self.home = next(iter(place.ports), place.cpu_port)
        self.client: Client
        self.program: Program
        self._clients: list[Client] = []
        self._last_election = 0
        self._number = 0
        self._inserted: list[Any] = []
        self._frames: list[tuple[int, bytes]] = []
        self._messages: dict[str, deque[Any]] = defaultdict(deque)
        self._replica_field = ""

    # Around a check

    def begin(self, check: Check) -> None:
        """Clean state: the check's program without entries, no packets under way. Raises NotApplicable."""
        if len(self.place.ports) < check.ports:
            there = f"{len(self.place.ports)} are named" if self.place.ports else "none is named"
            raise NotApplicable(f"needs {check.ports} ports with interfaces, and {there}")
        if check.since != "1.0.0" and numbers(self.version) < numbers(check.since):
            raise NotApplicable(f"asked for since P4Runtime {check.since}, and the server has {self.version}")
        self._frames.clear()
        self._messages.clear()
        if check.program:
            self.client = self.connect().become_primary(self.next_election())
            self.load(check.program)
            if self.wires:
                while self.wires.receive(0):
                    pass

    def nothing_more(self) -> None:
        """Fail if a packet has had more answers than the check expects."""
        if self._frames or self.wires:
            self._take(QUIET)
        if self._frames:
            port, frame = self._frames[0]
            fail(f"a frame too many left through port {port}: {frame.hex()}")

    def end(self) -> None:
        """Takes back what the check inserted: some servers keep it beyond the next program."""
        for message in reversed(self._inserted):
            with contextlib.suppress(grpc.RpcError, AssertionError):
                self.client.write(update("DELETE", **entity(message)))
        self._inserted.clear()
        for client in self._clients:
            client.close()
        self._clients.clear()

    # Clients

    @cached_property
    def version(self) -> str:
        """Version of P4Runtime, from the server's Capabilities; 1.0.0 where it has none, as before 1.1.0."""
        try:
            said = self.connect().stub.Capabilities(p4r.CapabilitiesRequest(), timeout=self.place.wait)
        except grpc.RpcError:
            return "1.0.0"
        return said.p4runtime_api_version

    def connect(self, **options: Any) -> Client:
        """Another client. options: those of Client."""
        place = self.place
        options = {"device_id": place.device_id, "credentials": place.credentials, "wait": place.wait} | options
        self._clients.append(Client(place.address, **options))
        return self._clients[-1]

    def next_election(self) -> int:
        """An election id of the default role above all that the server has seen."""
        if not self._last_election:
            probe = self.connect()
            probe.arbitrate(None)
            self._last_election = probe.status()[1] or 0
            probe.close()
            self._clients.remove(probe)
        self._last_election += 10
        return self._last_election

    @property
    def election(self) -> int:
        """The election id of the primary client."""
        return self.client.election_id or 0

    def remember_election(self, number: int) -> None:
        """The server has seen an id that is not of `next_election`."""
        self._last_election = number

    def load(self, name: str) -> Program:
        """Loads one of the suite's programs."""
        self.program = self.client.program = load(self.place.programs, name)
        self.client.push(program=self.program)
        return self.program

    # Entities

    def entry(self, table: str, match: Sequence[Any] = (), action: Any = None, **fields: Any) -> p4r.TableEntry:
        return self.program.entry(table, match, action, **fields)

    def insert(self, *messages: Any) -> None:
        """All in one batch; the check has failed if one is refused."""
        self._write("INSERT", messages)
        self._inserted += messages

    def modify(self, *messages: Any) -> None:
        self._write("MODIFY", messages)

    def delete(self, *messages: Any) -> None:
        self._write("DELETE", messages)
        self._inserted = [one for one in self._inserted if one not in messages]

    def _write(self, operation: str, messages: tuple[Any, ...]) -> None:
        try:
            self.client.write(*(update(operation, **entity(message)) for message in messages))
        except grpc.RpcError as failure:
            said = {f"{name_of(e.canonical_code)} {e.message}".strip() for e in details(failure) if e.canonical_code}
            fail(f"{operation} of a valid {what(messages[0])} is refused: {'; '.join(said) or describe(failure)}")

    def refused(self, operation: str, message: Any, *codes: int, why: str) -> None:
        """The server has to refuse the update with one of the codes."""
        code = self.outcome(operation, message)
        if code not in codes:
            wanted = " or ".join(map(name_of, codes))
            fail(f"{operation} of {why}: {name_of(code)} instead of {wanted}")

    def outcome(self, operation: str, message: Any) -> int:
        """The canonical code of one update, also from a server that sends no details."""
        try:
            self.client.write(update(operation, **entity(message)))
        except grpc.RpcError as failure:
            found = details(failure)
            return found[0].canonical_code if found else failure.code().value[0]
        if operation == "INSERT":
            self._inserted.append(message)
        return rpc_code.OK

    def read(self, message: Any) -> list[Any]:
        """The entities that a message finds."""
        return self.client.read(**entity(message))

    def found(self, message: Any, wanted: list[Any], what: str) -> None:
        """Exactly these entities are found, in any order."""
        found, wanted = list(map(in_order, self.read(message))), list(map(in_order, wanted))
        for one in wanted:
            if one not in found:
                fail(f"{what}: read are {show(str(found))}, and not {show(str(one))}")
        expect(len(found), len(wanted), f"{what}: entities that are read")

    def replica(self, port: int, instance: int = 0) -> p4r.Replica:
        """A replica with the port as bytes, or as a number where the server knows only that (before 1.4.0)."""
        if not self._replica_field:
            probe = p4r.MulticastGroupEntry(multicast_group_id=500, replicas=[p4r.Replica(port=binary(self.home))])
            self.outcome("INSERT", probe)
            with contextlib.suppress(grpc.RpcError):
                groups = self.read(p4r.MulticastGroupEntry(multicast_group_id=500))
                kept = any(one.port for g in groups for one in g.multicast_group_entry.replicas)
                self._replica_field = "port" if kept else "egress_port"
        if self._replica_field == "port":
            return p4r.Replica(port=binary(port), instance=instance)
        return p4r.Replica(egress_port=port, instance=instance)

    def group(self, number: int, *replicas: tuple[int, int]) -> p4r.MulticastGroupEntry:
        """A multicast group. replicas: ports and instances."""
        return p4r.MulticastGroupEntry(multicast_group_id=number, replicas=[self.replica(*one) for one in replicas])

    def session(self, number: int, *replicas: tuple[int, int], **fields: Any) -> p4r.CloneSessionEntry:
        """A clone session. replicas: ports and instances."""
        return p4r.CloneSessionEntry(session_id=number, replicas=[self.replica(*one) for one in replicas], **fields)

    # Packets

    def request(self, op: int, a: int = 0, b: int = 0, c: int = 0, payload: bytes = PADDING) -> tuple[int, bytes]:
        """A frame with a number of its own in the source address, and that number."""
        self._number += 1
        source = b"\x02\x00" + struct.pack("!I", self._number)
        return self._number, request_frame(source, op, a, b, c, payload)

    def send(self, frame: bytes, port: int | None = None) -> None:
        """Send a frame into the switch, by the first port unless another one is named."""
        if self.wires:
            self.wires.send(port or self.home, frame)
        else:
            self.packet_out(frame)

    def packet_out(self, frame: bytes, port: int = 0) -> None:
        """port: where it leaves; 0: the program decides."""
        metadata = [p4r.PacketMetadata(metadata_id=1, value=binary(port))]
        self.client.send(packet=p4r.PacketOut(payload=frame, metadata=metadata))

    def ask(self, op: int, a: int = 0, b: int = 0, c: int = 0, payload: bytes = PADDING) -> Answer:
        """Sends one request; exactly one answer has to come back to where it came from."""
        return self.ask_all(op, [(a, b, c)], payload)[0]

    def ask_all(self, op: int, requests: list[tuple[int, int, int]], payload: bytes = PADDING) -> list[Answer]:
        """Send many requests, as `ask` does; return their answers in the same order."""
        return [
            answer_of(self.home, frame) for frame in self.pass_all(self.request(op, *one, payload) for one in requests)
        ]

    def pass_all(self, numbered: Iterable[tuple[int, bytes]]) -> list[bytes]:
        """Send frames, some at a time; return the frame that comes back of each to its own port, in the same order."""
        came = []
        waiting = deque(numbered)
        while waiting:
            some = [waiting.popleft() for _ in range(min(WINDOW, len(waiting)))]
            for _, frame in some:
                self.send(frame)
            for number, frame in some:
                found = self.collect(number, 1, self.place.wait)
                if not found:
                    fail(f"no frame came back of one of {len(frame)} bytes")
                expect(found[0][0], self.home, "the port that a frame comes back through")
                came.append(found[0][1])
        return came

    def answers(
        self, count: int, op: int, a: int = 0, b: int = 0, c: int = 0, payload: bytes = PADDING
    ) -> list[Answer]:
        """Sends one request; so many answers have to come, and no more."""
        number, frame = self.request(op, a, b, c, payload)
        return [answer_of(*found) for found in self.exchange(number, frame, count)]

    def exchange(self, number: int, frame: bytes, count: int = 1) -> list[tuple[int, bytes]]:
        """Sends a frame; the frames of its number that come back, with their ports, which have to be so many."""
        self.send(frame)
        found = self.collect(number, count, self.place.wait)
        if len(found) != count:
            seen = ", ".join(f"port {port}: {one.hex()}" for port, one in found)
            fail(f"{len(found)} frames came back instead of {count}{f' ({show(seen)})' if seen else ''}")
        return sorted(found)

    def silent(self, op: int, a: int = 0, b: int = 0, c: int = 0, payload: bytes = PADDING) -> None:
        """Sends one request that must have no answer; a request that is sent after it has one."""
        number, frame = self.request(op, a, b, c, payload)
        self.send(frame)
        self.ask(0, payload=bytes(72))
        found = self.collect(number, 1, QUIET)
        if found:
            fail(f"the packet left through port {found[0][0]}, it should have been dropped")

    def collect(self, number: int, count: int, seconds: float) -> list[tuple[int, bytes]]:
        """Frames of that number with their ports; waits until so many came."""
        found: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + seconds
        while True:
            for one in self._frames[:]:
                if one[1][8:12] == struct.pack("!I", number):
                    self._frames.remove(one)
                    found.append(one)
            if len(found) >= count or time.monotonic() > deadline:
                return found
            self._take(0.005)

    @contextlib.contextmanager
    def down(self, port: int) -> Iterator[None]:
        """The port's far end is down, so the port has no carrier. Raises NotApplicable where that cannot be done."""
        name = self.place.ports[port]
        if subprocess.run(["ip", "link", "set", name, "down"], capture_output=True).returncode:
            raise NotApplicable(f"interface {name} cannot be set down")
        try:
            yield
        finally:
            subprocess.run(["ip", "link", "set", name, "up"], capture_output=True, check=True)

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Waits for a condition."""
        deadline = time.monotonic() + self.place.wait
        while not met():
            if time.monotonic() > deadline:
                fail(f"not so within {self.place.wait:g} s: {what}")

    def message(self, kind: str, seconds: float | None = None) -> Any:
        """The next stream message of that kind; the check has failed if none comes. seconds: of waiting."""
        seconds = self.place.wait if seconds is None else seconds
        deadline = time.monotonic() + seconds
        while not self._messages[kind]:
            if time.monotonic() > deadline:
                fail(f"no {kind} message came within {seconds:g} s")
            self._take(0.005)
        return self._messages[kind].popleft()

    def has(self, kind: str) -> bool:
        """Return whether a message of that kind has come."""
        self._take(QUIET)
        return bool(self._messages[kind])

    def no_message(self, kind: str, seconds: float = 0.3) -> None:
        """Fail when a message of that kind comes within `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._take(0.005)
        if self._messages[kind]:
            fail(f"a {kind} message came: {show(str(self._messages[kind][0]))}")

    def _take(self, seconds: float) -> None:
        """Sorts what has come, waiting for it."""
        if self.wires:
            self._frames += self.wires.receive(seconds)
        else:
            time.sleep(seconds / 5)
        while not self.client.received.empty():
            message = self.client.received.get()
            if isinstance(message, grpc.RpcError):
                raise message
            if message is None:
                fail("the server ended the stream")
            kind = message.WhichOneof("update")
            if kind == "packet" and message.packet.payload[6:8] == b"\x02\x00":
                self._frames.append((self.place.cpu_port, message.packet.payload))
                self._messages["packet"].append(message.packet)
            else:
                self._messages[kind].append(getattr(message, kind))


def numbers(version: str) -> tuple[int, ...]:
    """Numbers of a semantic version, to be compared."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def in_order(message: Any) -> Any:
    """Sort the parts of a message that have no order of their own, and return it."""
    if isinstance(message, p4r.PacketReplicationEngineEntry):
        getattr(message, message.WhichOneof("type")).replicas.sort(key=lambda one: one.SerializeToString())
    return message


def what(message: Any) -> str:
    """Return the name of a message's type."""
    return type(message).__name__
