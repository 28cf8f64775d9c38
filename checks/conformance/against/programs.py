# SPDX-License-Identifier: Apache-2.0
"""The programs that are compared, and their packets."""

import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from accesspoint.checks.conformance.fixture import PROGRAMS, request_frame
from accesspoint.topologies import targets
from accesspoint.topologies.requirements import ROOT

OWN = ROOT / "switch/testdata/programs"
PORTS = (0, 1, 2, 3)  # 0 is where a packet goes that nobody sends elsewhere
CPU_PORT = targets.CPU_PORT
CLONE = 0x15  # request of entities.p4
WINDOW = 8  # packets at once: BMv2 drops what comes faster than it works

Frame = tuple[int, bytes]  # port, bytes


@dataclass(frozen=True)
class Reason:
    """concerns: packets that may differ, and then only in these bytes of what leaves."""

    name: str
    concerns: Callable[[bytes], bool]
    bytes_: tuple[slice, ...]

    def without(self, frames: Counter[Frame] | None) -> Counter[Frame]:
        """The frames with zeros in the place of those bytes."""
        masked: Counter[Frame] = Counter()
        for (port, frame), count in (frames or Counter()).items():
            changed = bytearray(frame)
            for part in self.bytes_:
                changed[part] = bytes(len(changed[part]))
            masked[(port, bytes(changed))] += count
        return masked


@dataclass(frozen=True)
class Case:
    """A program with its packets.

    program: without its suffix. window: packets at once; 1 where what one does matters to the next. round: packets with
    the same entries; not so many packet-ins at once that a switch drops some. reasons: why what leaves may differ.
    """

    name: str
    program: Path
    packet: Callable[[random.Random], bytes]
    window: int = WINDOW
    round: int = 4000
    value: Callable[[str, random.Random], int | None] = lambda _name, _rng: None
    reasons: tuple[Reason, ...] = ()

    @property
    def json(self) -> Path:
        return self.program.with_suffix(".json")


def access_point_packet(rng: random.Random) -> bytes:
    """IPv4 and IPv6, UDP and TCP, few addresses and ports; some cut or changed."""
    mac = lambda: b"\x02\0\0\0\0" + bytes([rng.randrange(4)])  # noqa: E731
    ports = struct.pack("!HH", rng.choice([80, 443, 5000 + rng.randrange(4)]), rng.choice([80, 443, 5000]))
    payload = rng.randbytes(rng.randrange(40))
    if rng.random() < 0.5:
        protocol, layer = 17, ports + struct.pack("!HH", 8 + len(payload), 0) + payload
    else:
        offset, flags = rng.choice([0x50, 0x50, 0x80, 0x40]), rng.choice([0x10, 0x10, 0x18, 0x02, rng.randrange(256)])
        protocol = 6
        layer = ports + struct.pack("!IIBBHHH", rng.getrandbits(32), rng.getrandbits(32), offset, flags, 1000, 0, 0)
        layer += rng.choice([b"", payload])
    kind = rng.random()
    tos, length = rng.choice([0, 1, 2, 3, 0xB8, 0xBA]), len(layer)
    if kind < 0.6:
        address = lambda: bytes([10, 0, 0, rng.randrange(4)])  # noqa: E731
        head = struct.pack("!BBHHHBBH", 0x45, tos, 20 + length, 0, 0, 64, protocol, 0) + address() + address()
        total = sum(struct.unpack("!10H", head))
        total = (total & 0xFFFF) + (total >> 16)
        head = head[:10] + struct.pack("!H", 0xFFFF - ((total & 0xFFFF) + (total >> 16))) + head[12:]
        frame = mac() + mac() + b"\x08\x00" + head + layer
    elif kind < 0.9:
        address = lambda: bytes(15) + bytes([rng.randrange(4)])  # noqa: E731
        head = struct.pack("!IHBB", 6 << 28 | tos << 20, length, protocol, 64) + address() + address()
        frame = mac() + mac() + b"\x86\xdd" + head + layer
    else:
        frame = mac() + mac() + rng.choice([b"\x08\x06", b"\x08\x00", rng.randbytes(2)]) + payload
    if rng.random() < 0.1:
        frame = frame[: rng.randrange(14, len(frame) + 1)]
    if rng.random() < 0.1:
        at = rng.randrange(12, len(frame))
        frame = frame[:at] + rng.randbytes(1) + frame[at + 1 :]
    return frame


def access_point_value(name: str, rng: random.Random) -> int | None:
    """Marks that are certain or impossible: the two switches draw other random numbers and wait otherwise."""
    if name in ("feedback", "scalable_feedback"):
        return rng.choice([0, 65535])
    if name == "threshold":
        return 1 << 31 | rng.getrandbits(31)  # us: longer than any packet waits
    return {"egress_port": rng.choice(PORTS), "role": rng.randrange(4)}.get(name)


def features_packet(rng: random.Random) -> bytes:
    """A request of features.p4, with an index that its arrays have."""
    kind, value = rng.randrange(0x44), rng.choice([rng.randrange(8), rng.getrandbits(32)])
    if kind == 0x12:
        value |= 0x100  # its `assert` holds: a failed one ends BMv2
    return struct.pack("!BBI", kind, rng.randrange(16), value) + rng.randbytes(rng.randrange(12, 40))


def operators_packet(rng: random.Random) -> bytes:
    """A request of operators.p4, with extreme operands more often than not."""
    op, width = rng.choice([(rng.randrange(1, 28), rng.choice([5, 13, 33, 48, 64, 128])), (rng.randrange(40, 71), 0)])
    some = rng.choice([(0, 0xFF, 0x80, 0x7F), tuple(range(256))])
    return request_frame(rng.randbytes(6), op, width, rng.getrandbits(16), 0, bytes(rng.choices(some, k=32)))


def entities_packet(rng: random.Random) -> bytes:
    """A request of entities.p4, with an index that its arrays have."""
    a, b = rng.randrange(8), rng.choice([rng.randrange(9), rng.getrandbits(16)])
    return request_frame(
        rng.randbytes(6), rng.randrange(27), a, b, rng.getrandbits(32), rng.randbytes(rng.randrange(40))
    )


def entities_value(name: str, rng: random.Random) -> int | None:
    return {"port": rng.choice(PORTS)}.get(name)


def stacks_packet(rng: random.Random) -> bytes:
    """A command of stacks.p4 with elements; no index beyond a stack, as BMv2 does not survive it."""
    command = rng.choice([*range(0x10, 0x1D), *range(0x20, 0x24), *range(0x30, 0x33), 0x05])
    packet = bytes([command, rng.randrange(256)])
    if command in (0x15, 0x16, 0x1C):
        packet = bytes([command, 0, rng.randrange(256), 0])
    for _ in range(rng.randrange(6)):
        if command >> 4 == 1:
            packet += bytes([rng.choice([0x80, 1, 3, rng.randrange(256)]), rng.randrange(3)])
        else:
            packet += rng.choice([b"\x01" + rng.randbytes(1), b"\x02" + rng.randbytes(4)])
    if command >> 4 == 2 and len(packet) == 2:
        packet += b"\x01\x07"
    return packet + bytes(13)  # ends the options


def variable_packet(rng: random.Random) -> bytes:
    command = rng.randrange(1, 9)
    packet = bytes([command, rng.randrange(64 if command == 2 else 24)]) + rng.randbytes(rng.randrange(24, 60))
    if command == 3 and rng.random() < 0.8:
        packet = packet[:18] + bytes(7) + b"\x0a" + packet[26:]  # one of the ways
    if command == 1:
        packet = packet[:2] + bytes([0x70 | packet[2] & 0x0F]) + packet[3:]  # its varbit does not become valid again
    return packet


def wide_packet(rng: random.Random) -> bytes:
    """A command of wide.p4; its asserts hold, and no index is beyond an array."""
    command = rng.choice([*range(34)] * 4 + [0x80, 0x81, 0x82, 0x83])
    some = rng.choice([(0, 0xFF, 0x80, 0x7F), (0, 1), tuple(range(256))])
    body = bytes(rng.choice(some) for _ in range(118))
    if command == 33:
        body = b"\x01" + body[1:-30] + bytes(30)
    argument = rng.randrange(8) if command in (19, 20) else rng.randrange(256)
    if command == 0x80:
        argument, body = rng.randrange(16), body + bytes(40)
    if command == 0x83:
        argument = rng.randrange(4)
    return bytes([command, argument]) + body


CASES = (
    Case("ap", ROOT / "p4src/compiled/ap", access_point_packet, window=1, round=450, value=access_point_value),
    Case(
        "features",
        OWN / "features",
        features_packet,
        window=1,
        reasons=(
            Reason("`random` draws other numbers", lambda frame: frame[0] == 0x0B, (slice(0, 4),)),
            Reason("copies keep `ingress_port`", lambda frame: frame[0] in (0x0D, 0x0E, 0x17, 0x18), (slice(8, 10),)),
            Reason("queue depths", lambda frame: frame[0] == 0x1A, (slice(0, 4), slice(10, 14))),
        ),
    ),
    Case("operators", PROGRAMS / "operators", operators_packet),
    Case(
        "entities",
        PROGRAMS / "entities",
        entities_packet,
        window=1,
        value=entities_value,
        reasons=(Reason("copies keep `ingress_port`", lambda frame: frame[14] == CLONE, (slice(24, 26),)),),
    ),
    Case(
        "stacks",
        OWN / "stacks",
        stacks_packet,
        reasons=(Reason("`packet_length` counts every header", lambda _frame: True, (slice(4, 6),)),),
    ),
    Case(
        "variable",
        OWN / "variable",
        variable_packet,
        reasons=(Reason("`error.NoMatch` is raised", lambda frame: frame[0] in (3, 7), (slice(1, 2),)),),
    ),
    Case("wide", OWN / "wide", wide_packet, window=1),
)
