# SPDX-License-Identifier: Apache-2.0
"""Hosts joined by links of their own, without an access point: for multihomed hosts and end-to-end measurements.

    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        link = paths.link(a, b, rate="633kbit", delay="20ms", limit=50, back={"rate": "128kbit"})
        a.run("ping", "-c1", link.b_ip)

Every host is a network namespace, a link is a switch with two ports that models both directions, a wire a bare veth.
"""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from accesspoint.topologies.links.veth import OFFLOADS
from accesspoint.topologies.namespaces.namespace import START_TIMEOUT, Namespace
from accesspoint.topologies.requirements import LabError, apswitch

WIRE = Path(__file__).parent / "wire.json"


class PathHost(Namespace):
    """A host; its interfaces are eth0, eth1, ... in the order of its links."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self._interfaces = 0
        self.set("net.ipv4.tcp_no_metrics_save", 1)  # a connection must not start with what an earlier one learned

    def next_interface(self) -> str:
        self._interfaces += 1
        return f"eth{self._interfaces - 1}"

    def set(self, sysctl: str, value: object) -> None:
        """Writes a sysctl of this host's network. Raises LabError."""
        self.run("sysctl", "-qw", f"{sysctl}={value}")


@dataclass
class PathLink:
    """A link between `a` and `b`: the name and the IPv4 and IPv6 address of either end."""

    a: PathHost
    b: PathHost
    a_if: str
    b_if: str
    a_ip: str
    b_ip: str
    a_ip6: str
    b_ip6: str
    _namespace: Namespace | None = None
    _switch: "subprocess.Popen[Any] | None" = None

    def blackhole(self) -> None:
        """Drop all packets from now on, without an error to anybody."""
        self._signal(signal.SIGSTOP)
        assert self._switch
        # The signal comes to a busy process late.
        os.waitid(os.P_PID, self._switch.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def restore(self) -> None:
        """End `blackhole`: packets pass again; those that wait in the interfaces' own buffers pass late."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if not self._switch:
            raise LabError("a bare wire cannot be a black hole: make a link")
        self._switch.send_signal(number)


class Paths:
    """The hosts and links of one experiment or test, as a context manager. seed: of the links' random numbers; None:
    another one each time."""

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed
        self._namespaces: list[Namespace] = []
        self._links = 0

    def __enter__(self) -> "Paths":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._namespaces:
            with contextlib.suppress(OSError):
                self._namespaces.pop().close()

    def host(self, name: str) -> PathHost:
        host = PathHost(name)
        self._namespaces.append(host)
        return host

    def wire(self, a: PathHost, b: PathHost) -> PathLink:
        """A bare veth between two hosts, with its offloads: as fast as the machine goes."""
        link = self._plan(a, b)
        run = ["ip", "link", "add", link.a_if, "netns", str(a.pid), "type", "veth"]
        _run(*run, "peer", "name", link.b_if, "netns", str(b.pid))
        self._configure(link, offloads=True)
        return link

    def link(self, a: PathHost, b: PathHost, back: dict[str, object] | None = None, **model: object) -> PathLink:
        """A link with a model.

        model: how packets travel from `a` to `b`, the settings of `apswitch --link`: rate="1mbit" or trace=FILE,
        limit=100 (packets), limit_bytes=N, delay="10ms", jitter="2ms", loss=0.01, overhead=0 (bytes a frame). back:
        what differs from `b` to `a`. Raises LabError.
        """
        link = self._plan(a, b)
        namespace = Namespace()
        self._namespaces.append(namespace)
        for port, host, name in ((1, a, link.a_if), (2, b, link.b_if)):
            run = ["ip", "link", "add", name, "netns", str(host.pid), "type", "veth"]
            _run(*run, "peer", "name", f"port{port}", "netns", str(namespace.pid))
            namespace.run("sysctl", "-qw", f"net.ipv6.conf.port{port}.disable_ipv6=1")
            namespace.run("ethtool", "-K", f"port{port}", *OFFLOADS)
            namespace.ip("link", "set", f"port{port}", "up")
        command: list[str | Path] = [apswitch(), WIRE, "--log-level", "warn"]
        command += ["--seed", str(self._seed)] if self._seed is not None else []
        for port, settings in ((1, {**model, **(back or {})}), (2, model)):
            command += ["-i", f"{port}@port{port}"]
            if settings:
                words = ",".join(f"{key.replace('_', '-')}={value}" for key, value in settings.items())
                command += ["--link", f"{port}:{words}"]
        link._namespace = namespace
        link._switch = namespace.popen(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self._configure(link, offloads=False)
        self._await_switch(link)
        return link

    def _plan(self, a: PathHost, b: PathHost) -> PathLink:
        self._links += 1
        v4, v6 = f"10.1.{self._links}", f"fd01:{self._links:x}:"
        a_if, b_if = a.next_interface(), b.next_interface()
        return PathLink(a, b, a_if, b_if, f"{v4}.1", f"{v4}.2", f"{v6}:1", f"{v6}:2")

    def _configure(self, link: PathLink, offloads: bool) -> None:
        ends = ((link.a, link.a_if, link.a_ip, link.a_ip6), (link.b, link.b_if, link.b_ip, link.b_ip6))
        for host, name, v4, v6 in ends:
            if not offloads:
                host.run("ethtool", "-K", name, *OFFLOADS)
            host.ip("address", "add", f"{v4}/24", "dev", name)
            host.ip("address", "add", f"{v6}/64", "dev", name, "nodad")
            host.ip("link", "set", name, "up")

    def _await_switch(self, link: PathLink) -> None:
        assert link._switch
        assert link._namespace
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if link._switch.poll() is not None:
                error = link._switch.stderr.read().strip() if link._switch.stderr else ""
                raise LabError(f"the switch of a link ended: {error}")
            if _answers(link):
                return
            time.sleep(0.02)
        raise LabError(f"a link between {link.a.name} and {link.b.name} did not come up within {START_TIMEOUT:.0f} s")


def _answers(link: PathLink) -> bool:
    """Return whether a ping over the link is answered."""
    words = ["ping", "-c1", "-W1", "-i0.2", "-I", link.a_if, link.b_ip]
    return " 0% packet loss" in link.a.run(*words, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()}; network namespaces need root")
