# SPDX-License-Identifier: Apache-2.0
"""TCP segments of a modelled connection, and the frames that carry them.

Sequence numbers do not wrap here: they are integers from the initial number on, and a frame carries them modulo 2^32.
So nothing that judges a program compares serial numbers as the program has to.
"""

import struct
from dataclasses import dataclass
from functools import cache

from accesspoint.ptf_tests.model.frames import ACK, FIN, IPV4, IPV6, PSH, RST, SYN, TCP, UDP

SERIAL = 1 << 32
ECE, CWR = 0x40, 0x80
OPENS_OR_ENDS = SYN | FIN | RST
ECT0, CE = 2, 3
ETHERNET, IP_SIZE, TCP_SIZE = 14, {4: 20, 6: 40}, 20
FULL_FRAME = 1000  # bytes
MAX_SEGMENT = 1460  # bytes, as a SYN says; segments here are shorter
HOST = 0x020000000000
NAMES = ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST"), (PSH, "PSH"), (ECE, "ECE"), (CWR, "CWR"))


@dataclass(slots=True)
class Segment:
    """A segment as both ends understand it.

    window: in bytes, scaled. sack: blocks; dsack: whether the first reports a duplicate (RFC 2883). ts: value and echo.
    episode: of ECE, from a CE mark to CWR (RFC 3168, 6.1.3). marks: CE marks counted so far (RFC 9768). ce: this
    segment is marked. start: both initial numbers, for a reader. scale, sack_permitted: options of a SYN.
    """

    seq: int
    ack: int = 0
    flags: int = ACK
    length: int = 0
    window: int = 0
    raw_window: int = 0
    options: bytes = b""
    sack: tuple[tuple[int, int], ...] = ()
    dsack: bool = False
    ts: tuple[int, int] | None = None
    accurate: int = 0
    episode: int = 0
    marks: int = 0
    ce: bool = False
    ecn_capable: bool = False
    start: tuple[int, int] = (0, 0)
    scale: int = 0
    sack_permitted: bool = False

    @property
    def pure_ack(self) -> bool:
        """It carries no data, and opens and ends nothing."""
        return self.flags & (OPENS_OR_ENDS | ACK) == ACK and not self.length

    @property
    def end(self) -> int:
        """The sequence number behind it."""
        return self.seq + self.length + (self.flags & SYN > 0) + (self.flags & FIN > 0)

    def __str__(self) -> str:
        flags = " ".join(name for bit, name in NAMES if self.flags & bit)
        words = [flags] if flags else []
        words.append(f"{self.length} bytes at +{self.seq - self.start[0]}" if self.length else "no data")
        if self.flags & ACK:
            words.append(f"ack +{self.ack - self.start[1]} ({self.ack % SERIAL:#010x})")
        words.append(f"window {self.window}")
        if self.sack:
            blocks = ", ".join(f"+{one - self.start[1]} to +{other - self.start[1]}" for one, other in self.sack)
            words.append(f"{'DSACK' if self.dsack else 'SACK'} {blocks}")
        if self.accurate:
            words.append(f"ACE {self.accurate & 7}")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a 5-tuple: hosts are named by their ports, as in lib/packets.py."""

    source: int
    target: int
    source_port: int
    target_port: int
    version: int = 4

    def reverse(self) -> "Way":
        """Return the other direction."""
        return Way(self.target, self.source, self.target_port, self.source_port, self.version)


def max_payload(version: int, timestamps: bool) -> int:
    """Bytes of data in a full frame."""
    return FULL_FRAME - ETHERNET - IP_SIZE[version] - TCP_SIZE - (12 if timestamps else 0)


def address(host: int, version: int) -> bytes:
    """The host's IP address."""
    return (10 << 24 | host).to_bytes(4) if version == 4 else (0xFD << 120 | host).to_bytes(16)


@cache
def ethernet(source: int, target: int, version: int) -> bytes:
    """The Ethernet header between two hosts."""
    ether_type = IPV4 if version == 4 else IPV6
    return (HOST + target).to_bytes(6) + (HOST + source).to_bytes(6) + ether_type.to_bytes(2)


def ip_packet(way: Way, protocol: int, number: int, ecn: int, payload: bytes) -> bytes:
    """A frame with its number as IPv4 identification or IPv6 flow label; checksums are 0, as nobody verifies them."""
    head = ethernet(way.source, way.target, way.version)
    ends = address(way.source, way.version) + address(way.target, way.version)
    if way.version == 4:
        ip = struct.pack(">BBHHHBBH", 0x45, ecn, 20 + len(payload), number, 0x4000, 64, protocol, 0)
    else:
        ip = struct.pack(">IHBB", 6 << 28 | ecn << 20 | number, len(payload), protocol, 64)
    return head + ip + ends + payload


def number_of(frame: bytes) -> int:
    """The number that `ip_packet` gave the frame."""
    return int.from_bytes(frame[18:20] if frame[12:14] == b"\x08\0" else frame[16:18])


def build_frame(way: Way, number: int, segment: Segment) -> bytes:
    """The frame of a segment."""
    flags, reserved = segment.flags, 0
    if segment.accurate:
        flags |= (segment.accurate & 3) << 6
        reserved = segment.accurate >> 2 & 1
    header = struct.pack(
        ">HHIIBBHI",
        way.source_port,
        way.target_port,
        segment.seq % SERIAL,
        segment.ack % SERIAL,
        (TCP_SIZE + len(segment.options)) // 4 << 4 | reserved,
        flags,
        segment.raw_window,
        0,
    )
    ecn = CE if segment.ce else ECT0 if segment.ecn_capable and segment.length else 0
    return ip_packet(way, TCP, number, ecn, header + segment.options + bytes(segment.length))


def build_bulk(way: Way, number: int) -> bytes:
    """A full frame of somebody else's bulk, which is of no connection."""
    room = FULL_FRAME - ETHERNET - IP_SIZE[way.version] - 8
    header = struct.pack(">HHHH", way.source_port, way.target_port, 8 + room, 0)
    return ip_packet(way, UDP, number, 0, header + bytes(room))


def option_bytes(segment: Segment) -> bytes:
    """Timestamps and SACK blocks as Linux pads them (RFC 7323, appendix A); a SYN has the options of Linux's SYN."""
    words = b""
    if segment.flags & SYN:
        words = struct.pack(">BBH", 2, 4, MAX_SEGMENT)
        if segment.sack_permitted:
            words += bytes([4, 2]) if segment.ts else bytes([1, 1, 4, 2])
        elif segment.ts:
            words += bytes([1, 1])
        if segment.ts:
            words += struct.pack(">BBII", 8, 10, segment.ts[0] % SERIAL, segment.ts[1] % SERIAL)
        words += bytes([1, 3, 3, segment.scale])
    elif segment.ts:
        value, echo = segment.ts
        words += struct.pack(">BBBBII", 1, 1, 8, 10, value % SERIAL, echo % SERIAL)
    if segment.sack:
        words += bytes([1, 1, 5, 2 + 8 * len(segment.sack)])
        for one, other in segment.sack:
            words += struct.pack(">II", one % SERIAL, other % SERIAL)
    return words
