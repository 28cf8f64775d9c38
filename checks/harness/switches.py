# SPDX-License-Identifier: Apache-2.0
"""Real switches on veth pairs of their own, with a controller beside them; everything is gone at the end.

Packets go through raw sockets on the far ends of the pairs, so nothing of the machine's own network is touched. These
ends are in a namespace that ends with this process, and so do the pairs, the switches and the controllers.
"""

import contextlib
import json
import math
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from accesspoint.checks.harness.waiting import eventually, free_port
from accesspoint.topologies import targets
from accesspoint.topologies.links.veth import SO_RCVBUFFORCE
from accesspoint.topologies.namespaces.namespace import Namespace, end_with_parent
from accesspoint.topologies.requirements import ROOT, LabError

TARGETS = ("apswitch", "bmv2")
ETH_P_ALL = 3
WAIT_SECONDS = 240.0

STATION = bytes.fromhex("020000000001")
SERVER = bytes.fromhex("020000000002")


def missing(target: str) -> str | None:
    """Return the reason why a target cannot run here, or None."""
    if os.geteuid() != 0:
        return "needs root, for veth pairs"
    try:
        targets.find(target)
    except LabError as error:
        return str(error)
    return None


def wait_for(what: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """Wait until `what()` is true; returns it."""
    value = eventually(what, seconds)
    assert value, f"still {value!r} after {seconds} s"
    return value


def end(process: subprocess.Popen[Any]) -> int:
    """End a process that a test started."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(120)
    return process.returncode


class End:
    """An interface in a namespace, from which frames go into a switch."""

    def __init__(self, within: Namespace, interface: str) -> None:
        with within.entered():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            # Nothing is lost while this process has no processor.
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
            self.socket.bind((interface, 0))
        self.socket.settimeout(0.2)

    def close(self) -> None:
        """The interface stays."""
        self.socket.close()

    def send(self, frame: bytes) -> None:
        """Send one frame into the switch."""
        self.socket.send(frame)

    def received(self, seconds: float = 0.3) -> list[bytes]:
        """Return the frames that come out of the switch within some time."""
        frames: list[bytes] = []
        deadline = time.monotonic() + seconds
        # What has come by then counts, however late this process looks.
        while select.select([self.socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
            frame, address = self.socket.recvfrom(2048)
            if address[2] != socket.PACKET_OUTGOING:
                frames.append(frame)
        return frames

    def gathered(self, count: int, fits: Callable[[bytes], bool]) -> list[bytes]:
        """Return all frames that fit, once so many have come, with those right after them."""
        frames: list[bytes] = []

        def came() -> bool:
            frames.extend(filter(fits, self.received()))
            return len(frames) >= count

        wait_for(came)
        came()
        return frames


class Wire(End):
    """The far end of one switch port, in a namespace of `wires_apart`."""

    def __init__(self, number: int, apart: Namespace) -> None:
        self.near, self.far = f"ct{os.getpid() % 100000}n{number}", f"far{number}"
        made = ["ip", "link", "add", self.near, "type", "veth", "peer", "name", self.far, "netns", str(apart.pid)]
        subprocess.run(made, check=True)
        settings = Path(f"/proc/sys/net/ipv6/conf/{self.near}/disable_ipv6")
        if settings.exists():
            settings.write_text("1")
        subprocess.run(["ip", "link", "set", self.near, "up"], check=True)
        apart.ip("link", "set", self.far, "up")
        super().__init__(apart, self.far)

    def close(self) -> None:
        """Take the pair away."""
        super().close()
        subprocess.run(["ip", "link", "del", self.near], check=False, capture_output=True)


def wires_apart() -> Namespace:
    """Make the namespace of the wires' far ends; nothing in it sends by itself."""
    apart = Namespace()
    apart.run("bash", "-c", "for each in all default; do f=/proc/sys/net/ipv6/conf/$each/disable_ipv6; "
              "[ ! -e $f ] || echo 1 >$f; done")  # fmt: skip
    return apart


def checksum(data: bytes) -> int:
    """RFC 1071."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp(src: bytes, dst: bytes, src_port: int, dst_port: int, size: int = 100, ecn: int = 2) -> bytes:
    """Return an Ethernet frame with UDP over IPv4 of `size` bytes; the addresses follow from the MAC addresses."""
    addresses = bytes([10, 0, 0, src[5], 10, 0, 0, dst[5]])
    header = struct.pack(">BBHHHBBH", 0x45, ecn, size - 14, 0, 0x4000, 64, 17, 0) + addresses
    header = header[:10] + struct.pack(">H", checksum(header)) + header[12:]
    body = struct.pack(">HHHH", src_port, dst_port, size - 34, 0)
    return (dst + src + b"\x08\x00" + header + body).ljust(size, b"\0")


def udp6(src: bytes, dst: bytes, src_port: int, dst_port: int) -> bytes:
    """Return an Ethernet frame with UDP over IPv6."""
    prefix = bytes.fromhex("fd000000000000000000000000000000")[:15]
    header = struct.pack(">IHBB", 6 << 28, 58, 17, 64) + prefix + src[5:] + prefix + dst[5:]
    return dst + src + b"\x86\xdd" + header + struct.pack(">HHHH", src_port, dst_port, 58, 0).ljust(58, b"\0")


class SwitchLab:
    """One switch, whose port 2 is the uplink and whose others are stations', and the controllers that a test starts."""

    def __init__(self, target: str, directory: Path, ports: int = 2) -> None:
        self.target = target
        self.directory = directory
        self.grpc = free_port()
        self.apart = wires_apart()
        self.wires = {number: Wire(number, self.apart) for number in range(1, ports + 1)}
        self.switch: subprocess.Popen[bytes] | None = None
        self.controllers: list[Controller] = []

    def start_switch(self, *links: str, options: Sequence[str] = ()) -> None:
        """Start the switch; `links` are apswitch's `--link` values, `options` more of its words."""
        interfaces = {number: wire.near for number, wire in self.wires.items()}
        models = {int(port): model for port, _, model in (link.partition(":") for link in links)}
        wiring = targets.Wiring(interfaces, f"127.0.0.1:{self.grpc}", free_port(), links=models)
        log = (self.directory / "switch.log").open("wb")
        command = [*targets.TARGETS[self.target].command(wiring), *options]
        self.switch = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=end_with_parent)

    def stop_switch(self) -> None:
        """End the switch."""
        if self.switch:
            end(self.switch)
            self.switch = None

    def config(self, **access_point: Any) -> dict[str, Any]:
        """Return a configuration for this switch."""
        return {
            "access_points": [
                {
                    "name": "ap1",
                    "address": f"127.0.0.1:{self.grpc}",
                    "ports": [
                        {"port": 1, "role": "station", "capacity_bps": 14_000_000},
                        {"port": 2, "role": "uplink", "capacity_bps": 1_000_000},
                        *(
                            {"port": number, "role": "station", "capacity_bps": 14_000_000}
                            for number in self.wires
                            if number > 2
                        ),
                    ],
                    **access_point,
                }
            ]
        }

    def controller(
        self,
        *arguments: str,
        ready: bool = True,
        root: Path = ROOT,
        before: Sequence[str] = (),
        **access_point: Any,
    ) -> "Controller":
        """Start a controller, that of the checkout `root`; `before` as in `Controller`."""
        number = len(self.controllers)
        path = self.directory / f"config{number}.json"
        path.write_text(json.dumps(self.config(**access_point)))
        controller = Controller(path, *arguments, before=before, root=root)
        self.controllers.append(controller)
        if ready:
            controller.wait_ready()
        return controller

    def introduce(self, controller: "Controller") -> None:
        """Let the station and the server be learned: each says something once a second until it is, since a list of
        digests may be lost with its session (P4Runtime 1.4, section 9.6)."""
        for mac, number, peer in ((STATION, 1, SERVER), (SERVER, 2, STATION)):
            deadline = time.monotonic() + WAIT_SECONDS
            said = -math.inf
            while not controller.knows(mac):
                now = time.monotonic()
                assert now < deadline, f"{mac.hex(':')} is not learned\n{controller.errors.read_text()}"
                if now >= said + 1:
                    self.wires[number].send(udp(mac, peer, 9, 9))
                    said = now
                time.sleep(0.02)

    def close(self) -> None:
        """End everything that was started."""
        for controller in self.controllers:
            end(controller.process)
        self.stop_switch()
        for wire in self.wires.values():
            wire.close()
        self.apart.close()


class Controller:
    """`python -m accesspoint.controller` as people start it."""

    def __init__(self, config: Path, *arguments: str, before: Sequence[str] = (), root: Path = ROOT) -> None:
        """`arguments` are its own; `before` is a command that runs the one that follows it."""
        self.errors = config.with_suffix(".stderr")
        self._said = b""
        # One client, as each reads the system's certificates; a connection a request, as people's are.
        self._http = httpx.Client(timeout=WAIT_SECONDS, limits=httpx.Limits(max_keepalive_connections=0))
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "accesspoint.controller", "--config", str(config), *arguments],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=self.errors.open("wb"),
            preexec_fn=end_with_parent,
        )
        line = self.line()
        if line.startswith("token "):
            line = self.line()
        assert line.startswith(("rest http://", "rest https://")), line
        self.url = line.split()[1]
        self.token = config.with_suffix(".token").read_text().strip()

    def line(self) -> str:
        """Wait for the next line of output, and return it."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._said:
                assert selector.select(WAIT_SECONDS), f"nothing said; {self.errors.read_text()}"
                said = os.read(self.process.stdout.fileno(), 4096)
                assert said, f"it has ended; {self.errors.read_text()}"
                self._said += said
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def wait_ready(self) -> None:
        """Wait for the line that says so."""
        assert self.line() == "ready ap1"

    def get(self, what: str = "") -> Any:
        """GET something of the access point."""
        answer = self.send("GET", what)
        answer.raise_for_status()
        return answer.json()

    def knows(self, mac: bytes) -> bool:
        """Return True when a MAC address was learned."""
        return mac.hex(":") in {entry["address"] for entry in self.get("stations")}

    def send(self, method: str, what: str, body: object = None, wait: float = 60.0) -> httpx.Response:
        """GET or change something of the access point, and wait so many seconds for the effect."""
        path = f"/api/v1/access-points/ap1/{what}".rstrip("/")
        return self.request(method, path, json=body, params={"wait": wait} if method in ("PATCH", "PUT") else None)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request, as an admin."""
        headers = {"authorization": f"Bearer {self.token}"} | options.pop("headers", {})
        return self._http.request(method, self.url + path, headers=headers, **options)

    def counter(self, name: str, port: int) -> int:
        """Packets of one counter of a port, all classes together."""
        return sum(cell["packets"] for cell in self.get("counters") if cell["counter"] == name and cell["port"] == port)


@contextlib.contextmanager
def lab(target: str, directory: Path, ports: int = 2) -> Iterator[SwitchLab]:
    """A lab that is taken down whatever happens."""
    made = SwitchLab(target, directory, ports)
    try:
        yield made
    finally:
        made.close()
