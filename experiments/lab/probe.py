# SPDX-License-Identifier: Apache-2.0
"""A round-trip probe over UDP with the kernel's receive timestamps, in the manner of TWAMP (RFC 5357).

`python -m accesspoint.experiments.lab.probe reflect ADDRESS PORT` answers, `... send ADDRESS PORT SECONDS [SEED]` asks
20 times a
second and prints one line per answer: `sequence sent rtt up down late`. `sent` is s since the epoch, the rest s: the
round trip without the reflector's own time, its two ways (one clock serves both ends of a lab), and how late the
sender's timer was. Probes of which no line comes were lost.
"""

import contextlib
import random
import socket
import struct
import sys
import time

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
PER_SECOND = 20
PACKET = struct.Struct("!Qqqq")  # sequence, then ns: sent, received by the reflector, sent by the reflector
TIMESPEC = struct.Struct("@ll")


def _socket() -> socket.socket:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return udp


def _receive(udp: socket.socket) -> tuple[bytes, int, tuple[str, int]]:
    """Payload, time of arrival (ns since the epoch, by the kernel), sender."""
    data, ancillary, _flags, address = udp.recvmsg(PACKET.size, socket.CMSG_SPACE(TIMESPEC.size))
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = TIMESPEC.unpack(value)
            return data, seconds * 10**9 + nanoseconds, address
    raise OSError("the kernel gave no receive timestamp")


def reflect(address: str, port: int) -> None:
    """Answers for ever."""
    udp = _socket()
    udp.bind((address, port))
    while True:
        data, received, sender = _receive(udp)
        if len(data) == PACKET.size:
            sequence, sent, _, _ = PACKET.unpack(data)
            udp.sendto(PACKET.pack(sequence, sent, received, time.time_ns()), sender)


def send(address: str, port: int, seconds: float, seed: int | None = None) -> None:
    """Asks at a random time in each twentieth of a second: a strict rhythm could beat with the lab's own."""
    udp = _socket()
    udp.connect((address, port))
    chance = random.Random(seed)
    start = time.time()
    late: dict[int, float] = {}
    for sequence in range(round(seconds * PER_SECOND)):
        due = start + (sequence + chance.random()) / PER_SECOND
        _print_answers(udp, due, late)
        late[sequence] = time.time() - due
        with contextlib.suppress(OSError):  # the reflector is not up yet, or the lab is going down: a lost probe
            udp.send(PACKET.pack(sequence, time.time_ns(), 0, 0))
    _print_answers(udp, start + seconds, late)


def _print_answers(udp: socket.socket, until: float, late: dict[int, float]) -> None:
    while (left := until - time.time()) > 0:
        udp.settimeout(left)
        try:
            data, received, _ = _receive(udp)
        except (TimeoutError, ConnectionRefusedError):
            continue
        sequence, sent, there, back = PACKET.unpack(data)
        up, down = there - sent, received - back
        values = (sent / 1e9, (up + down) / 1e9, up / 1e9, down / 1e9, late[sequence])
        print(sequence, *(f"{value:.6f}" for value in values), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "reflect":
        reflect(sys.argv[2], int(sys.argv[3]))
    else:
        send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:]))
