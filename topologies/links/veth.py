# SPDX-License-Identifier: Apache-2.0
"""Veth pairs between a switch and raw sockets, in a network namespace of their own, and a switch on them."""

import errno
import json
import select
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from accesspoint.topologies.requirements import LabError

ETH_P_ALL = 3
SO_RCVBUFFORCE = 33  # socket(7)
MTU = 9216  # bytes
MAX_FRAME = 1 << 16  # bytes
# Segments must cross the lab one by one, as they would cross the air: no segmentation or merging in between.
OFFLOADS = ["tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off", "sg", "off"]


def make(ports: tuple[int, ...], ends: tuple[str, str] = ("switch", "host")) -> tuple[dict[int, str], dict[int, str]]:
    """Make a pair for each port; return the switch's ends and the far ones, by port. Within `contain.own_network`.

    ends: how their names begin. The pairs carry no traffic of the kernel's own. Raises LabError."""
    switch, host = ({port: f"{end}{port}" for port in ports} for end in ends)
    for scope in ("all", "default"):
        disable_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if disable_ipv6.exists():
            disable_ipv6.write_text("1")
    commands = []
    for port in ports:
        commands.append(f"link add {switch[port]} mtu {MTU} type veth peer name {host[port]} mtu {MTU}")
        commands += [f"link set {end[port]} up" for end in (switch, host)]
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, capture_output=True)
    if done.returncode != 0:
        raise LabError(f"no veth pairs: {done.stderr.strip().splitlines()[0]}")
    return switch, host


def are_up(links: str) -> bool:
    """Check that all veths have a carrier; until the kernel has noticed it, what is sent is lost.

    links: the output of `ip -json link show type veth`."""
    return all(link["operstate"] == "UP" for link in json.loads(links))


class Wires:
    """Raw sockets on interfaces. interfaces: by port. Raises LabError."""

    def __init__(self, interfaces: Mapping[int, str]) -> None:
        self.sockets: dict[int, socket.socket] = {}
        self.ports: dict[int, int] = {}
        self.poll = select.epoll()
        for port, name in interfaces.items():
            try:
                end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
                end.bind((name, 0))
            except OSError as error:
                raise LabError(f"port {port}: interface {name} cannot be opened ({error.strerror})") from None
            end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
            end.setblocking(False)
            self.sockets[port], self.ports[end.fileno()] = end, port
            self.poll.register(end, select.EPOLLIN)

    def send(self, port: int, frame: bytes) -> None:
        """Send a frame into the switch."""
        self.sockets[port].send(frame)

    def receive(self, timeout: float) -> list[tuple[int, bytes]]:
        """Return the frames that are there, each with its port; wait up to `timeout` s for the first."""
        frames = []
        for number, _ in self.poll.poll(timeout):
            port = self.ports[number]
            while True:
                try:
                    frame, address = self.sockets[port].recvfrom(MAX_FRAME)
                except BlockingIOError:
                    break
                except OSError as error:  # reported once when the interface goes down
                    if error.errno != errno.ENETDOWN:
                        raise
                    break
                if address[2] != socket.PACKET_OUTGOING:
                    frames.append((port, frame))
        return frames


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a switch while the block runs. log: takes its output."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
