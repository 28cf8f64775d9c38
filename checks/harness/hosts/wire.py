# SPDX-License-Identifier: Apache-2.0
"""TCP segments made and seen by hand, within a network namespace: what kernels never send, and what they do.

python checks/harness/hosts/wire.py capture IFACE...          a JSON line for each SYN and SYN-ACK
python checks/harness/hosts/wire.py syn DST PORT OPTIONS...   sends a SYN for each (options as hex); prints the
SYN-ACK's options
python checks/harness/hosts/wire.py respond IFACE ADDRESS     answers SYNs to an address that nobody has; reads how
from stdin
"""

import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

SYN, RST, ACK = 0x02, 0x04, 0x10
ETHERNET, ETH_P_ALL = 14, 3  # bytes of the frame's header; every protocol, both directions
MSS = "020405b4"


@dataclass
class Segment:
    """The fields of an IPv4 TCP segment that these tests look at; options without their padding, as hex."""

    src: str
    dst: str
    sport: int
    dport: int
    seq: int
    ack: int
    flags: int
    options: str = ""
    interface: str = ""

    @classmethod
    def parse(cls, packet: bytes) -> "Segment | None":
        """Reads an IPv4 packet; None if it is no TCP."""
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
            return None
        tcp = packet[(packet[0] & 15) * 4 :]
        sport, dport, seq, ack, offset, flags = struct.unpack("!HHIIBB", tcp[:14])
        src, dst = (socket.inet_ntoa(packet[i : i + 4]) for i in (12, 16))
        return cls(src, dst, sport, dport, seq, ack, flags, tcp[20 : (offset >> 4) * 4].hex())

    def tcp(self) -> bytes:
        options = bytes.fromhex(self.options)
        options += bytes(-len(options) % 4)
        offset = (20 + len(options)) // 4 << 4
        tcp = struct.pack("!HHIIBBHHH", self.sport, self.dport, self.seq, self.ack, offset, self.flags, 65535, 0, 0)
        tcp += options
        pseudo = socket.inet_aton(self.src) + socket.inet_aton(self.dst) + struct.pack("!HH", 6, len(tcp))
        return tcp[:16] + struct.pack("!H", _checksum(pseudo + tcp)) + tcp[18:]

    def ip(self) -> bytes:
        tcp = self.tcp()
        addresses = socket.inet_aton(self.src) + socket.inet_aton(self.dst)
        header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0)
        return header[:10] + struct.pack("!H", _checksum(header + addresses)) + addresses + tcp


def batcp(options: str) -> list[bytes]:
    """The contents of all options of kind 254, those that reach beyond the end cut off."""
    raw, at, found = bytes.fromhex(options), 0, []
    while at < len(raw) and raw[at] != 0:
        if raw[at] == 1:
            at += 1
            continue
        length = raw[at + 1] if at + 1 < len(raw) else 0
        if raw[at] == 254:
            found.append(raw[at + 2 : at + length])
        if length < 2:
            break
        at += length
    return found


def _checksum(data: bytes) -> int:
    words = struct.unpack(f"!{len(data) // 2}H", data[: len(data) // 2 * 2])
    total = sum(words) + (data[-1] << 8 if len(data) % 2 else 0)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _packet_socket(interface: str = "") -> socket.socket:
    """Listen on an interface, or on all, whose frames then come in one order."""
    listening = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    if interface:
        listening.bind((interface, ETH_P_ALL))
    return listening


def _segments(listening: socket.socket) -> Iterator[tuple[Segment, bytes]]:
    while True:
        frame, address = listening.recvfrom(65535)
        segment = Segment.parse(frame[ETHERNET:]) if frame[12:14] == b"\x08\0" else None
        if segment:
            segment.interface = address[0]
            yield segment, frame


def capture(interfaces: list[str]) -> None:
    listening = _packet_socket()
    print("ready", flush=True)
    for segment, _ in _segments(listening):
        if segment.interface in interfaces and segment.flags & SYN:
            print(json.dumps(asdict(segment)), flush=True)


def syn(dst: str, port: int, options: list[str]) -> None:
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    probe.connect((dst, port))
    src = probe.getsockname()[0]
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    raw.settimeout(60)
    for index, some in enumerate(options):
        sport = 20000 + index
        raw.sendto(Segment(src, dst, sport, port, 1, 0, SYN, MSS + some).tcp(), (dst, 0))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = Segment.parse(raw.recv(65535))
            if answer and answer.dport == sport and answer.flags & ACK:
                print(answer.options, flush=True)
                break
        else:
            sys.exit(f"no answer to a SYN with the options {some}")


def respond(interface: str, address: str) -> None:
    """Each line on stdin tells how SYNs to one port are answered: `PORT OPTIONS` (hex, with `digits` for the SYN's own
    six); `PORT drop` ignores SYNs with an option 254."""
    rules = dict(line.split(" ", 1) for line in sys.stdin.read().splitlines())
    through = _packet_socket(interface)
    for segment, frame in _segments(through):
        rule = rules.get(str(segment.dport))
        if segment.dst != address or segment.flags & (SYN | ACK) != SYN or rule is None:
            continue
        digits = batcp(segment.options)
        if rule == "drop":
            if digits:
                continue
            rule = ""
        options = MSS + rule.replace("digits", digits[0].hex() if digits else "")
        answer = Segment(
            segment.dst, segment.src, segment.dport, segment.sport, 1000, segment.seq + 1, SYN | ACK, options
        )
        through.send(frame[6:12] + frame[0:6] + frame[12:14] + answer.ip())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["capture", *names]:
            capture(names)
        case ["syn", to, number, *some]:
            syn(to, int(number), some)
        case ["respond", name, whom]:
            respond(name, whom)
        case _:
            sys.exit(__doc__)
