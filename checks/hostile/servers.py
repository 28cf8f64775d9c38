# SPDX-License-Identifier: Apache-2.0
"""The project's servers as they are started for an attack, each in the network namespace of this run.

A server says what its other client asks for (`bystander`, a name of `accesspoint.checks.hostile.bystander`) and what an
attacker may know of it (`places`). Nothing of it is kept: every attack meets a new one.
"""

import ctypes
import functools
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from scapy.utils import RawPcapReader, RawPcapWriter

from accesspoint.topologies import targets
from accesspoint.topologies.links import veth
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.processes import family, last_line
from accesspoint.topologies.requirements import ROOT, LabError

HOSTS = Path(os.environ.get("HOSTS", ROOT / "target/release/hosts"))
START = 120.0  # s; a busy machine takes its time
TRAFFIC_FLOWS, FRAME_BYTES = 100, 200
PACKETS_PER_S = 10_000  # a modest rate, which a busy machine carries too
SETTLE = 0.3  # s
MARK = bytes.fromhex("5eadfa57")
ETHERNET, ETH_P_ALL, SO_ATTACH_FILTER, SOL_PACKET, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING = 1, 3, 26, 263, 6, 23
STATION_PORT, UPLINK_PORT, SPOOFER_PORT, RADIO_PORT = 1, 2, 3, 4
KEY = "hostile but well known to both sides"


@dataclass(frozen=True)
class Packets:
    """Sent into the switch and received behind it, so far."""

    sent: int = 0
    received: int = 0

    def __sub__(self, other: "Packets") -> "Packets":
        return Packets(self.sent - other.sent, self.received - other.received)

    @property
    def part(self) -> float:
        """Part of the packets that came through."""
        return self.received / self.sent if self.sent else 0.0


class Server(ABC):
    """A server under attack. directory: for its files. options: those of the attack."""

    name: ClassVar[str]
    bystander: ClassVar[str]

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        self.directory = directory
        self.options = options
        self.address = ""
        self.places: dict[str, Any] = {}
        self.process: subprocess.Popen[Any] | None = None
        self._stack = ExitStack()

    @abstractmethod
    def start(self) -> None:
        """Start the server and wait until it answers. Raises LabError."""

    def pids(self) -> list[int]:
        """Ids of the server's processes."""
        if self.process is None or self.process.poll() is not None:
            return []
        return family(self.process.pid)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ending(self) -> str:
        """Return the signal or exit code that the server ended with."""
        assert self.process is not None
        code = self.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"{how} ({last_line(self.directory / 'server.log')[:200]})"

    def kill(self) -> None:
        """Kill the server."""
        if self.process:
            self.process.kill()

    def high_water(self) -> int:
        """Bytes that the server's own process had at most in memory (proc_pid_status(5))."""
        with suppress(OSError, StopIteration):
            assert self.process is not None
            status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024
        return 0

    def packets(self, settle: bool = False) -> Packets:
        """Return the counts of the server's ports; zero without ports. settle: wait until no packet is under way."""
        return Packets()

    def refuses(self) -> str:
        """Return the reason why a new client is not served, even when it retries; empty if it is."""
        command = [
            sys.executable,
            "-m",
            "accesspoint.checks.hostile.bystander",
            "--once",
            self.bystander,
            self.address,
            json.dumps(self.places),
        ]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * START)
        except subprocess.TimeoutExpired:
            return "no answer"
        return "" if done.returncode == 0 else (done.stdout.strip() or done.stderr.strip() or "no answer")[-200:]

    def run(self, *command: "str | Path", log: str = "server.log", **options: Any) -> "subprocess.Popen[Any]":
        """Starts a program that ends with this server."""
        path = self.directory / log
        file = self._stack.enter_context(path.open("wb"))
        outputs: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
        process = subprocess.Popen([str(word) for word in command], cwd=ROOT, **(outputs | options))
        self._stack.callback(stop_process, process)
        return process

    def until(self, ready: Callable[[], object], log: str = "server.log") -> None:
        """Wait until the server is ready. Raises LabError."""
        deadline = time.monotonic() + START
        while not ready():
            if not self.alive() or time.monotonic() > deadline:
                raise LabError(f"{self.name} does not start: {last_line(self.directory / log) or 'it says nothing'}")
            time.sleep(0.02)

    def file(self, name: str, text: str) -> Path:
        """A file that only its owner reads."""
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    def close(self) -> None:
        """Ends what was started."""
        self._stack.close()


def listens(address: str) -> bool:
    """Return whether a TCP port is open."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError:
        return False
    return True


@functools.cache
def veths() -> tuple[dict[int, str], dict[int, str]]:
    """The switch's ports, and their far ends, by number: one pair of each for the whole run."""
    near, far = veth.make((STATION_PORT, UPLINK_PORT, SPOOFER_PORT, RADIO_PORT))
    for name in (*near.values(), *far.values()):
        subprocess.run(["ethtool", "-K", name, "tx", "off", "rx", "off"], check=False, capture_output=True)
    return near, far


class Carries:
    """The steady packets through a switch."""

    def __init__(self, server: Server) -> None:
        from accesspoint.checks.bench.switch.program import write_frames

        near, far = veths()
        frames = server.directory / "frames.pcap"
        write_frames(frames, TRAFFIC_FLOWS, FRAME_BYTES)
        mark(frames)
        self._counters = Counter(near[STATION_PORT]), Counter(far[UPLINK_PORT])
        source = ROOT / "target/release/apswitch-bench"
        rate = ("--rate", str(PACKETS_PER_S), "--seconds", "600")
        server.run("nice", "-n", "-10", source, "send", far[STATION_PORT], frames, *rate, log="traffic.log")

    def packets(self, settle: bool) -> Packets:
        """Sent and received so far. settle: once nothing is under way."""
        if settle:
            # What has been sent up to now arrives within so long, or is lost; the source goes on at the same rate.
            time.sleep(SETTLE)
        sent, received = self._counters
        return Packets(sent.count(), received.count())

    def close(self) -> None:
        """Count no more."""
        for counter in self._counters:
            counter.close()


class Switch(Server):
    """apswitch with the access point's program, 100 flows and a steady stream of packets through it.

    options: `stderr="full"` for a log that nobody reads; `spare`: names of interfaces beside its ports.
    places: device_id, cpu_port, ports (the far ends' interfaces), spare.
    """

    name, bystander = "switch", "p4runtime"

    def start(self) -> None:
        self.address = "127.0.0.1:9559"
        near, far = ({port: end[port] for port in (STATION_PORT, UPLINK_PORT)} for end in veths())
        spare = self.options.get("spare", ())
        for name in spare:
            subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}-far"], check=True)
            self._stack.callback(subprocess.run, ["ip", "link", "delete", name], check=False)
            subprocess.run(["ip", "link", "set", name, "up"], check=True)
        command = targets.find("apswitch").command(targets.Wiring(near, self.address))
        outputs: dict[str, Any] = {}
        if self.options.get("stderr") == "full":
            unread, full = os.pipe()
            self._stack.callback(os.close, unread)
            self._stack.callback(os.close, full)
            outputs = {"stderr": full}
        self.process = self.run(*command, **outputs)
        self.until(lambda: listens(self.address))
        program = [sys.executable, "-m", "accesspoint.checks.bench.switch.program", self.address, str(TRAFFIC_FLOWS)]
        done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=2 * START)
        if done.returncode:
            raise LabError(f"the access point's program is not taken: {done.stderr.strip()[-200:]}")
        self.places = {"device_id": 1, "cpu_port": targets.CPU_PORT, "ports": far, "spare": spare}
        self._carries = Carries(self)
        self._stack.callback(self._carries.close)

    def packets(self, settle: bool = False) -> Packets:
        return self._carries.packets(settle)


class Counter:
    """Counts the steady packets that an interface receives, by a filter in the kernel: they end with `MARK`, whatever a
    program has put in front of them, and no attacker's packets do."""

    def __init__(self, interface: str) -> None:
        load_length, subtract_4, length_to_x, load_word, if_mark, take, leave = (
            (0x80, 0, 0, 0), (0x14, 0, 0, 4), (0x07, 0, 0, 0), (0x40, 0, 0, 0),
            (0x15, 0, 1, int.from_bytes(MARK, "big")), (0x06, 0, 0, 1), (0x06, 0, 0, 0),
        )  # fmt: skip
        code = (load_length, subtract_4, length_to_x, load_word, if_mark, take, leave)
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self._socket.setsockopt(
            socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(code), ctypes.addressof(program))
        )
        self._socket.bind((interface, ETH_P_ALL))
        self._total = 0

    def count(self) -> int:
        """Count the packets so far, those that the socket had no room for included; the kernel's count is reset by each
        read."""
        self._total += struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[0]
        return self._total

    def close(self) -> None:
        self._socket.close()


def mark(frames: Path) -> None:
    """Lets all frames of a pcap file end with `MARK`."""
    marked = [frame[: -len(MARK)] + MARK for frame, _ in RawPcapReader(str(frames))]
    with RawPcapWriter(str(frames), linktype=ETHERNET) as file:
        for frame in marked:
            file.write(frame)


class Rest(Server):
    """The controller's REST API with one access point that is switched off. places: token, an admin's; other, the
    other client's own, for what a token may ask is bounded for each."""

    name, bystander = "rest", "rest"

    def access_point(self) -> dict[str, Any]:
        """Return the controller's configuration of its access point."""
        ports = [
            {"port": 1, "role": "station", "capacity_bps": 14_000_000},
            {"port": 2, "role": "uplink", "capacity_bps": 1_000_000},
        ]
        return {"name": "ap1", "address": "127.0.0.1:9", "enabled": False, "ports": ports}

    def start(self) -> None:
        path = self.file("controller.json", json.dumps({"access_points": [self.access_point()]}))
        self.process = self.run(
            sys.executable,
            "-m",
            "accesspoint.controller",
            "--config",
            path,
            "--rest",
            "127.0.0.1:8080",
            start_new_session=True,
        )
        self.address = "127.0.0.1:8080"
        self.until(lambda: listens(self.address) and (self.directory / "controller.token").exists())
        token = (self.directory / "controller.token").read_text().strip()
        self.places = {"token": token, "other": self._token(token)}

    def _token(self, admin: str) -> str:
        """A new token of a viewer."""
        body = json.dumps({"name": "other", "role": "viewer"})
        headers = {"authorization": f"Bearer {admin}", "content-type": "application/json"}
        connection = http.client.HTTPConnection(self.address, timeout=START)
        try:
            connection.request("POST", "/api/v1/tokens", body, headers)
            token: str = json.load(connection.getresponse())["token"]
        finally:
            connection.close()
        return token


class RestWithSwitch(Rest):
    """The controller with a switch: a station from which a steady stream of packets goes to the uplink, and two ports
    of other stations, to one of which they roam. places: those of `Rest`; ports (the far ends' interfaces)."""

    name, bystander = "access-point", "rest"

    def access_point(self) -> dict[str, Any]:
        """Links on which nothing waits, as `carried` is of nothing but addresses."""
        stations = (STATION_PORT, SPOOFER_PORT, RADIO_PORT)
        ports = [
            {"port": UPLINK_PORT, "role": "uplink", "capacity_bps": 10**10},
            *(
                {"port": port, "role": "station", "capacity_bps": 10**10, "roaming": port == RADIO_PORT}
                for port in stations
            ),
        ]
        return {"name": "ap1", "address": self._p4runtime, "ports": ports}

    def start(self) -> None:
        self._p4runtime = "127.0.0.1:9559"
        near, far = veths()
        command = targets.find("apswitch").command(targets.Wiring(near, self._p4runtime))
        self._switch = self.run(*command, log="switch.log")
        super().start()
        self.until(lambda: "ready ap1" in (self.directory / "server.log").read_text())
        self.places["ports"] = far
        self._carries = Carries(self)
        self._stack.callback(self._carries.close)

    def pids(self) -> list[int]:
        return super().pids() + (family(self._switch.pid) if self._switch.poll() is None else [])

    def alive(self) -> bool:
        return super().alive() and self._switch.poll() is None

    def packets(self, settle: bool = False) -> Packets:
        return self._carries.packets(settle)


class Receiver(Server):
    """`hosts batcp receive`. places: its key."""

    name, bystander = "batcp-receive", "batcp_open"

    def start(self) -> None:
        self.address = "127.0.0.1:7000"
        received = self.directory / "received"
        received.mkdir()
        key = self.file("key", KEY)
        command = ("batcp", "receive", "--listen", self.address, "--output", received, "--key-file", key)
        self.process = self.run(HOSTS, *command)
        self.until(lambda: listens(self.address))
        self.places = {"key": KEY}


class Proxy(Server):
    """`hosts batcp proxy remote`, a SOCKS5 proxy in front of it and an echo server behind it, which its other client
    asks. places: the SOCKS proxy's port, the echo server's."""

    name, bystander = "batcp-proxy", "socks"

    def start(self) -> None:
        self.address, socks, echo = "127.0.0.1:7000", 1080, 7007
        key = self.file("key", KEY)
        keyed = ("--key-file", key)
        allow = ("--allow", f"127.0.0.0/8:{echo}")
        self.process = self.run(HOSTS, "batcp", "proxy", "remote", "--listen", self.address, *keyed, *allow)
        self.until(lambda: listens(self.address))
        self.run(sys.executable, "-m", "accesspoint.checks.hostile.echo", str(echo), log="echo.log")
        local = ("--listen", f"127.0.0.1:{socks}", "--via", self.address, "--interface", "lo")
        self.run(HOSTS, "batcp", "socks", *keyed, *local, log="socks.log")
        self.until(lambda: listens(f"127.0.0.1:{socks}") and listens(f"127.0.0.1:{echo}"))
        self.places = {"socks": socks, "echo": echo, "key": KEY}


class Sessions(Server):
    """`hosts sessions serve`."""

    name, bystander = "sessions", "sessions"

    def start(self) -> None:
        self.address = "127.0.0.1:8640"
        self.process = self.run(HOSTS, "sessions", "serve", "--listen", self.address)
        self.until(lambda: listens(self.address))


class Probe(Server):
    """`hosts probe-buffer serve`. places: its key."""

    name, bystander = "probe-buffer", "probe"

    def start(self) -> None:
        self.address = "127.0.0.1:8630"
        key = self.file("key", KEY)
        self.process = self.run(HOSTS, "probe-buffer", "serve", "--listen", self.address, "--key-file", key)
        self.until(lambda: listens(self.address))
        self.places = {"key": KEY}


class Cwnd(Server):
    """`hosts cwnd run` on a veth, which only counts. places: its interface, the far end's, the key."""

    name, bystander = "cwnd", "cwnd"

    def start(self) -> None:
        near, far = veths()
        key = self.file("key", KEY)
        for name, number in ((near[1], 1), (far[1], 2)):
            subprocess.run(["ip", "address", "replace", f"10.99.0.{number}/24", "dev", name], check=True)
        for name in ("all", near[1]):  # both ends are this host's
            Path(f"/proc/sys/net/ipv4/conf/{name}/accept_local").write_text("1")
            Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0")
        self.address = "10.99.0.1:24530"
        self.process = self.run(HOSTS, "cwnd", "run", "--interface", near[1], "--key-file", key, "--observe")
        self.places = {"hosts": str(HOSTS), "interface": near[1], "far": far[1], "key": KEY}
        self.until(lambda: not self.refuses())


SERVERS: dict[str, type[Server]] = {
    server.name: server for server in (Switch, Rest, RestWithSwitch, Receiver, Proxy, Sessions, Probe, Cwnd)
}
