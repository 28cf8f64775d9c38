# SPDX-License-Identifier: Apache-2.0
"""Calls: small datagrams both ways at a steady rate, as voice over RTP.

`python -m accesspoint.experiments.scenes.calls ADDRESS PEER PORT SECONDS` sends a packet every PERIOD from that address
to the same port of the peer, and drops what it receives.
"""

import select
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

PERIOD = 0.02  # s
PAYLOAD = 72  # bytes: Opus at 24 kbit/s, and RTP's header
RATE = 8 * (PAYLOAD + 42) / PERIOD  # bit/s of Ethernet frames, each way


@dataclass(frozen=True)
class Call:
    """A call between a station and the server over the whole timeline, without a DSCP. It is load, and has no
    samples. port: one for each call of a scene."""

    station: int
    port: int

    def prepare(self, stage: "Stage") -> None:
        words = (sys.executable, "-m", "accesspoint.experiments.scenes.calls")
        ends = [stage.server, stage.station(self.station)]

        def begin() -> None:
            for host, peer in (ends, ends[::-1]):
                stage.program(host, *words, host.IP(), peer.IP(), str(self.port), f"{stage.seconds + 10:g}")

        stage.at(0.0, begin)


def talk(address: str, peer: str, port: int, seconds: float) -> None:
    """Send and receive for so many seconds."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, port))
    start = time.monotonic()
    for number in range(round(seconds / PERIOD)):
        due = start + number * PERIOD
        while select.select([udp], [], [], max(0.0, due - time.monotonic()))[0]:
            udp.recv(2048)
        udp.sendto(bytes(PAYLOAD), (peer, port))


if __name__ == "__main__":
    talk(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
