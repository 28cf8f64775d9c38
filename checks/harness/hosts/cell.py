# SPDX-License-Identifier: Apache-2.0
"""Terminals that share one slow uplink with a deep buffer, and the CWND middleware on some of them.

terminals --bridge (they hear each other's broadcasts)-- access point --slow link-- server
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.links.paths import PathHost, Paths
from accesspoint.topologies.requirements import ROOT, LabError

HOSTS = ROOT / "target/release/hosts"
FLOW = Path(__file__).parent / "flow.py"
KEY = "the key of the cell"
PORT = 5000
UNBOUNDED = 0x7FFFFFFF


class Flow:
    """Connections of one sender, made but silent until `go`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._read()

    def go(self) -> "Flow":
        self._write("go")
        return self

    def info(self) -> list[dict[str, int]]:
        """Return the kernel's TCP_INFO of each: rtt and min_rtt in µs, cwnd and ssthresh in segments, acked in
        bytes."""
        self._write("info")
        return json.loads(self._read())

    def thresholds(self) -> set[int]:
        """Slow-start thresholds. Without losses that is how a bound shows: it is the threshold, too."""
        return {connection["ssthresh"] for connection in self.info()}

    def ratios(self) -> list[float]:
        return [connection["rtt"] / connection["min_rtt"] for connection in self.info()]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _read(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the sender ended"
        return line


class Terminal:
    def __init__(self, host: PathHost, address: str, address6: str, server: str, folder: Path) -> None:
        self.host, self.address, self.address6 = host, address, address6
        self._server = server
        self.key_file = folder / f"{address}.key"

    def write_key(self, key: str = KEY) -> None:
        self.key_file.touch(mode=0o600)
        self.key_file.write_text(f"{key}\n")

    def middleware(
        self, *options: str, key: str = KEY, through: tuple[str, ...] = (), **popen: Any
    ) -> "subprocess.Popen[str]":
        """Starts `hosts cwnd run` and waits until it announces itself. through: a command that runs it."""
        daemon = self._start(options, key, through, **popen)
        if not eventually(lambda: daemon.poll() is not None or self.announces()) or daemon.poll() is not None:
            daemon.kill()
            raise AssertionError(f"the middleware does not run: {daemon.communicate()[1]}")
        return daemon

    def refusal(self, *options: str) -> str:
        """The one line of a `hosts cwnd run` that does not start."""
        daemon = self._start(options, KEY, ())
        said = str(daemon.communicate(timeout=120)[1])
        assert daemon.returncode == 2, said
        return said

    def _start(
        self, options: tuple[str, ...], key: str, through: tuple[str, ...], **popen: Any
    ) -> "subprocess.Popen[str]":
        self.write_key(key)
        command: list[str | Path] = [*through, HOSTS, "cwnd", "run", "--interface", "eth0"]
        command += ["--key-file", self.key_file, *options]
        return self.host.popen(*command, stderr=subprocess.PIPE, text=True, **popen)

    def announces(self) -> bool:
        with contextlib.suppress(LabError):
            return bool(self.status()["announcing"])
        return False

    def status(self) -> dict[str, Any]:
        return json.loads(self.host.run(HOSTS, "cwnd", "status", "--json"))

    def bounds(self) -> list[int]:
        """The bounds in force, segments."""
        bounds = (connection["bound"] for connection in self.status()["connections"])
        return [bound for bound in bounds if bound is not None]

    def connect(self, *options: str, to: str | None = None) -> Flow:
        """Starts a sender, by default to the server."""
        command: list[str | Path] = [sys.executable, FLOW, "send", to or self._server, str(PORT), *options]
        return Flow(self.host.popen(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))


class Cell:
    """`terminals` behind an access point whose uplink has `rate`, `delay` (one way) and room for `limit` packets."""

    SERVER, SERVER6 = "10.3.0.2", "fd03::2"

    def __init__(self, terminals: int, rate: str = "5mbit", delay: str = "10ms", limit: int = 1000) -> None:
        self._number, self._model = terminals, {"rate": rate, "delay": delay, "limit": limit}
        self.terminals: list[Terminal] = []

    def __enter__(self) -> "Cell":
        with contextlib.ExitStack() as building:
            folder = Path(building.enter_context(tempfile.TemporaryDirectory()))
            paths = building.enter_context(Paths())
            point, server = paths.host("point"), paths.host("server")
            point.set("net.ipv4.ip_forward", 1)
            point.ip("link", "add", "br0", "type", "bridge")
            point.set("net.ipv6.conf.all.forwarding", 1)
            point.ip("address", "add", "10.2.255.254/16", "dev", "br0")
            point.ip("address", "add", "fd02::ffff/64", "dev", "br0", "nodad")
            point.ip("link", "set", "br0", "up")
            uplink = paths.link(point, server, back={"rate": "1gbit", "limit": 10_000}, **self._model)
            for address, terminals, to, back in (
                (f"{self.SERVER}/32", "10.2.0.0/16", uplink.b_ip, uplink.a_ip),
                (f"{self.SERVER6}/128", "fd02::/64", uplink.b_ip6, uplink.a_ip6),
            ):
                server.ip("address", "add", address, "dev", "lo")
                server.ip("route", "add", terminals, "via", back)
                point.ip("route", "add", address, "via", to)
            for number in range(1, self._number + 1):
                host = paths.host(f"terminal{number}")
                wire = paths.wire(host, point)
                host.ip("address", "flush", "dev", wire.a_if, "scope", "global")
                point.ip("address", "flush", "dev", wire.b_if)
                point.ip("link", "set", wire.b_if, "master", "br0")
                address, address6 = f"10.2.0.{number}", f"fd02::{number}"
                host.ip("address", "add", f"{address}/16", "dev", wire.a_if)
                host.ip("address", "add", f"{address6}/64", "dev", wire.a_if, "nodad")
                host.ip("route", "add", "default", "via", "10.2.255.254")
                host.ip("route", "add", "default", "via", "fd02::ffff")
                self.terminals.append(Terminal(host, address, address6, self.SERVER, folder))
            receiver = server.popen(sys.executable, FLOW, "receive", str(PORT), stdout=subprocess.PIPE, text=True)
            assert receiver.stdout
            assert receiver.stdout.readline() == "listening\n"
            self._stack = building.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
