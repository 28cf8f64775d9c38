# SPDX-License-Identifier: Apache-2.0
"""A transport in the manner of QUIC: everything in UDP datagrams, so that the network cannot distinguish an ACK from
data.

`python -m accesspoint.experiments.scenes.datagrams receive ADDRESS PORT [ECN]` prints `ready`, and `time Mb/s` four
times a second (s since the epoch, the end of the interval; payload), `... send ADDRESS PORT SECONDS [ECN]` sends to it,
as much as goes. NewReno with ECN (RFC 9002, sections 6 and 7, appendix B), an ACK for every second packet (RFC 9000,
section 13.2.2), packets of 1250 bytes. Nothing is retransmitted: new data takes the place of what was lost. ECN: the
two bits of the IP header, 2 for ECT(0) (the default), 0 for none.
"""

import select
import socket
import struct
import sys
import time
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

DATA, ACK = 0, 1
HEADER = struct.Struct("!BQ")  # kind, packet number
# kind, largest number received, which of the 256 before it were received (a bit each), packets with CE so far
ACKNOWLEDGEMENT = struct.Struct("!BQ32sQ")
PACKET = 1250  # bytes of UDP payload
HISTORY = 256
NOT_ECT, ECT0, CE, ECN_MASK = 0, 2, 3, 3
INITIAL_WINDOW, MIN_WINDOW = 10 * PACKET, 2 * PACKET
PACKET_THRESHOLD = 3
INITIAL_RTT = 0.333  # s
GRANULARITY = 0.001  # s
MAX_ACK_DELAY = 0.025  # s
INTERVAL = 0.25  # s


@dataclass(frozen=True)
class Datagrams:
    """A transfer between a station and the server over the whole timeline, with ECN where the arm's hosts have it.
    Samples are `rate_mbps` of source `name`. port: one for each transfer of a scene."""

    name: str
    direction: Literal["down", "up"]
    station: int
    port: int

    def prepare(self, stage: "Stage") -> None:
        words = (sys.executable, "-m", "accesspoint.experiments.scenes.datagrams")
        sender, receiver = stage.ends(self.direction, self.station)
        address, port, ecn = receiver.IP(), str(self.port), str(ECT0 if stage.arm.ecn else NOT_ECT)

        receive = (*words, "receive", address, port, ecn)
        stage.program(receiver, *receive, take=lambda line: stage.take_rate(line, self.name)).await_line("ready")

        def begin() -> None:
            stage.program(sender, *words, "send", address, port, f"{stage.seconds + 10:g}", ecn)

        stage.at(0.0, begin)


def receive(address: str, port: int, ecn: int = ECT0) -> None:
    """Receive and acknowledge, until the process ends."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, port))
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ecn)
    print("ready", flush=True)
    largest, seen, marked, unacknowledged, volume = -1, 0, 0, 0, 0
    peer: tuple[str, int] = ("", 0)
    due = time.time() + INTERVAL
    while True:
        wait = due - time.time() if not unacknowledged else min(due - time.time(), MAX_ACK_DELAY)
        readable, _, _ = select.select([udp], [], [], max(0.0, wait))
        if readable:
            data, ancillary, _, peer = udp.recvmsg(2048, 64)
            kind, number = HEADER.unpack_from(data)
            if kind != DATA:
                continue
            if number > largest:
                seen, largest = (seen << (number - largest)) | 1, number
            else:
                seen |= 1 << (largest - number)
            seen &= (1 << HISTORY) - 1
            congested = any(value and value[0] & ECN_MASK == CE for _, _, value in ancillary)
            marked += congested
            unacknowledged += 1
            volume += len(data)
        if unacknowledged >= 2 or (unacknowledged and not readable):
            udp.sendto(ACKNOWLEDGEMENT.pack(ACK, largest, seen.to_bytes(HISTORY // 8, "big"), marked), peer)
            unacknowledged = 0
        if time.time() >= due:
            print(f"{due:.3f} {volume * 8 / INTERVAL / 1e6:.3f}", flush=True)
            due, volume = due + INTERVAL, 0


class Sender:
    """The sending side. Time is an argument, in s."""

    def __init__(self) -> None:
        self.window, self.threshold = float(INITIAL_WINDOW), float("inf")
        self.in_flight: dict[int, float] = {}  # number -> when it was sent
        self.next, self.probes = 0, 0
        self._recovery, self._marked = 0, 0  # a packet before `_recovery` reduces the window no more
        self._rtt, self._variation, self._measured = INITIAL_RTT, INITIAL_RTT / 2, False
        self._heard = 0.0

    def may_send(self) -> bool:
        return self.probes > 0 or (len(self.in_flight) + 1) * PACKET <= self.window

    def send(self, now: float) -> bytes:
        """The next packet."""
        if not self.in_flight:
            self._heard = now
        packet = HEADER.pack(DATA, self.next) + bytes(PACKET - HEADER.size)
        self.in_flight[self.next] = now
        self.next += 1
        self.probes = max(0, self.probes - 1)
        return packet

    def timeout(self) -> float:
        """Time (s) at which to send even without an ACK."""
        return self._heard + self._rtt + max(4 * self._variation, GRANULARITY) + MAX_ACK_DELAY

    def probe(self, now: float) -> None:
        """Allow two packets past the window, after a time without ACKs."""
        self._heard, self.probes = now, 2

    def acknowledge(self, datagram: bytes, now: float) -> None:
        """Process an ACK."""
        kind, largest, bits, marked = ACKNOWLEDGEMENT.unpack(datagram)
        if kind != ACK:
            return
        self._heard = now
        seen = int.from_bytes(bits, "big")
        older = list(takewhile(lambda number: number <= largest, self.in_flight))
        fresh = [number for number in older if seen >> (largest - number) & 1]
        if largest in fresh:
            self._measure(now - self.in_flight[largest])
        for number in fresh:
            del self.in_flight[number]
            if number >= self._recovery:
                slow_start = self.window < self.threshold
                self.window += PACKET if slow_start else PACKET * PACKET / self.window
        lost = [number for number in older if number in self.in_flight and number <= largest - PACKET_THRESHOLD]
        for number in lost:
            del self.in_flight[number]
        congested = largest if marked > self._marked else max(lost, default=-1)
        self._marked = max(marked, self._marked)
        if congested >= self._recovery:
            self._recovery = self.next
            self.window = self.threshold = max(self.window / 2, MIN_WINDOW)

    def _measure(self, rtt: float) -> None:
        if not self._measured:
            self._rtt, self._variation, self._measured = rtt, rtt / 2, True
        self._variation += (abs(rtt - self._rtt) - self._variation) / 4
        self._rtt += (rtt - self._rtt) / 8


def send(address: str, port: int, seconds: float, ecn: int = ECT0) -> None:
    """Send for so many seconds."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.connect((address, port))
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ecn)
    sender, end = Sender(), time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        while sender.may_send():
            udp.send(sender.send(now))
        readable, _, _ = select.select([udp], [], [], max(0.0, min(sender.timeout(), end) - now))
        if readable:
            sender.acknowledge(udp.recv(2048), time.monotonic())
        elif time.monotonic() >= sender.timeout():
            sender.probe(time.monotonic())


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], int(sys.argv[3]), *map(int, sys.argv[4:]))
    else:
        send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:]))
