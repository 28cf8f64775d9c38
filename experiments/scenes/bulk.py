# SPDX-License-Identifier: Apache-2.0
"""Many TCP connections in one process at each end: hundreds of iperf3 take a user-mode kernel minutes to start.

`python -m accesspoint.experiments.scenes.bulk receive ADDRESS PORT` prints `ready`, and four times a second
`time Mb/s name` for each name (s since the epoch, the end of the interval; payload of all its connections);
`... send ADDRESS PORT NAME CONNECTIONS TIME` opens so many at that time, and sends as much as goes.
"""

import selectors
import socket
import sys
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

PORT = 5401
STAGGER = 0.1  # s within which stations begin, as the run's seed has it
INTERVAL = 0.25  # s
PIECE = 131_072  # bytes
MAX_NAME = 16  # bytes: what a connection begins with, padded


@dataclass(frozen=True)
class Uploads:
    """TCP from each station to the server, from the beginning to the end: samples `streams` and `rate_mbps` of
    source `upN` for station N. connections: of each station, in their order."""

    connections: tuple[int, ...]

    def prepare(self, stage: "Stage") -> None:
        words = (sys.executable, "-m", "accesspoint.experiments.scenes.bulk")
        receive = (*words, "receive", stage.address, str(PORT))
        stage.program(stage.server, *receive, take=stage.take_rate).await_line("ready")
        for number, count in enumerate(self.connections, start=1):
            name = f"up{number}"
            begins = stage.started + STAGGER * Random(f"{stage.seed} {name}").random()
            stage.sample(begins - stage.started, "streams", float(count), source=name)
            station = stage.station(number)
            stage.program(station, *words, "send", stage.address, str(PORT), name, str(count), f"{begins:.3f}")


def receive(address: str, port: int) -> None:
    """Receive from whoever connects, until the process ends."""
    listening = socket.create_server((address, port), backlog=1024)
    listening.setblocking(False)
    buffer = bytearray(PIECE)
    volumes: dict[str, int] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(listening, selectors.EVENT_READ)
        print("ready", flush=True)
        due = time.time() + INTERVAL
        while True:
            for key, _ in ready.select(max(0.0, due - time.time())):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection is listening:
                    accepted, _ = listening.accept()
                    ready.register(accepted, selectors.EVENT_READ, bytearray())
                elif not (count := connection.recv_into(buffer)):
                    ready.unregister(connection)
                    connection.close()
                elif isinstance(key.data, str):
                    volumes[key.data] += count
                else:
                    key.data.extend(buffer[: min(count, MAX_NAME - len(key.data))])
                    if len(key.data) == MAX_NAME:
                        name = key.data.decode().rstrip()
                        volumes.setdefault(name, 0)
                        ready.modify(connection, selectors.EVENT_READ, name)
            if time.time() >= due:
                for name, volume in volumes.items():
                    print(f"{due:.3f} {volume * 8 / INTERVAL / 1e6:.4f} {name}")
                sys.stdout.flush()
                due, volumes = due + INTERVAL, dict.fromkeys(volumes, 0)


def send(address: str, port: int, name: str, connections: int, at: float) -> None:
    """Send on all connections, until the process ends."""
    time.sleep(max(0.0, at - time.time()))
    nothing = bytes(PIECE)
    with selectors.DefaultSelector() as ready:
        for _ in range(connections):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex((address, port))
            ready.register(connection, selectors.EVENT_WRITE, name.ljust(MAX_NAME).encode())
        while True:
            for key, _ in ready.select():
                connection = key.fileobj  # type: ignore[assignment]
                connection.send(key.data or nothing)
                if key.data:
                    ready.modify(connection, selectors.EVENT_WRITE, b"")


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], int(sys.argv[3]))
    else:
        send(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), float(sys.argv[6]))
