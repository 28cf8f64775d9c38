# SPDX-License-Identifier: Apache-2.0
"""Mininet classes: end hosts with plain packets, links whose model the switch runs, and the switch itself."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from mininet.link import Link
from mininet.node import Host, Switch

from accesspoint.topologies.links.mininet_words import link_model
from accesspoint.topologies.links.profiles import link_options
from accesspoint.topologies.links.veth import OFFLOADS
from accesspoint.topologies.namespaces.contain import end_with_parent, stop_process
from accesspoint.topologies.namespaces.namespace import entered, inside
from accesspoint.topologies.processes import last_line, run
from accesspoint.topologies.requirements import ROOT, LabError, python
from accesspoint.topologies.targets import TARGETS, Port, Wiring

START_TIMEOUT = 120.0  # s, of a busy machine, too


class Namespaced(Host):
    """A node with a network namespace of its own, which ends with everything in it."""

    def terminate(self) -> None:
        """Ends the shell and every other process in this host's network namespace, and so the namespace."""
        namespace = os.stat(f"/proc/{self.pid}/ns/net").st_ino if self.shell else None
        for process in Path("/proc").glob("[0-9]*"):
            # Processes come and go while we look.
            with contextlib.suppress(OSError):
                if os.stat(process / "ns/net").st_ino == namespace:
                    os.kill(int(process.name), signal.SIGKILL)
        self.cleanup()

    def run(self, *command: str) -> str:
        """Runs a command in this host to its end and returns what it printed. Raises LabError when it fails."""
        out, err, code = self.pexec(list(command))
        if code != 0:
            raise LabError(f"{self.name}: `{' '.join(command)}` failed: {(err or out).strip() or code}")
        return str(out)


class EndHost(Namespaced):
    """A station or a server: IPv4 and IPv6, no offloads, its own congestion control and ECN setting."""

    def config(self, ipv6: str | None = None, cc: str = "cubic", ecn: bool = True, **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = super().config(**params)
        interface = str(self.defaultIntf())
        self.run("ethtool", "-K", interface, *OFFLOADS)
        # tcp_ecn: 1 asks for ECN and accepts it, 0 does neither (the kernel's default, 2, only accepts).
        # tcp_no_metrics_save: one connection must not start with what an earlier one has learned.
        for name, value in (("tcp_ecn", int(ecn)), ("tcp_no_metrics_save", 1)):
            self.run("sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{name}")
        # By route and not by sysctl: a network namespace may make its default only what the whole machine allows
        # (tcp_allowed_congestion_control), but root may choose any congestion control for a route.
        network = str(ip_interface(self.params["ip"]).network)
        self.run("ip", "route", "change", network, "dev", interface, "src", self.IP(), "congctl", cc)
        if ipv6 and Path("/proc/net/if_inet6").exists():
            self.run("ip", "-6", "address", "add", ipv6, "dev", interface, "nodad", "noprefixroute")
            network = str(ip_interface(ipv6).network)
            self.run("ip", "-6", "route", "add", network, "dev", interface, "congctl", cc)
        return result


class Air(Namespaced):
    """The medium that stations share in front of an access point's port: a bridge that takes no time."""

    BRIDGE = "air"

    def config(self, **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = super().config(**params)
        self.run("ip", "link", "add", self.BRIDGE, "type", "bridge", "mcast_snooping", "0")
        for interface in self.intfNames():
            self.run("ethtool", "-K", interface, *OFFLOADS)
            self.run("ip", "link", "set", interface, "master", self.BRIDGE)
        # It carries IPv6, but does not speak it.
        self.run("sh", "-c", "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do [ ! -e $f ] || echo 1 > $f; done")
        self.run("ip", "link", "set", self.BRIDGE, "up")
        return result


class ApLink(Link):
    """A veth between a host and the switch. `model` is what the switch's port does to the packets that leave it:
    the options of `apswitch --link`, as {"rate": "14000000bit", "limit": 100, "delay": "2ms"}. Mininet's own words
    (`bw`, `delay`, `jitter`, `loss`, `max_queue_size`) say the same. Raises LabError for other words."""

    def __init__(self, node1: Any, node2: Any, model: dict[str, object] | None = None, **params: Any) -> None:
        link_model(params)
        self.model = model or {}
        super().__init__(node1, node2, **params)

    def intfName(self, node: Any, n: int) -> str:
        # The switch's interfaces are in the machine's own namespace, beside those of other labs.
        return f"{node.prefix}-{node.name}-{n}" if isinstance(node, ApSwitch) else str(super().intfName(node, n))


class ApSwitch(Switch):
    """The target `apswitch` without a program: it waits for a controller to bring the pipeline over P4Runtime. Other
    targets are its subclasses.

    `prefix` makes the names of its interfaces unique on the machine, `directory` takes its log. P4Runtime answers at
    `grpc`, BMv2's own interface at TCP port `thrift`. seed: of the random numbers, where the target takes one.
    """

    target = TARGETS["apswitch"]
    radios: frozenset[int] = frozenset()
    """Ports to which stations roam from other access points."""
    isolated = True
    """Stations of one radio do not reach each other through the access point."""

    def __init__(
        self,
        name: str,
        prefix: str,
        directory: Path,
        grpc: str = "127.0.0.1:9559",
        thrift: int = 9090,
        device_id: int = 1,
        seed: int | None = None,
        **params: Any,
    ) -> None:
        super().__init__(name, **params)
        self.prefix = prefix
        self.seed = seed
        self.grpc = grpc
        self.thrift = thrift
        self.device_id = device_id
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def wired(self) -> dict[int, Any]:
        """Interfaces by port, without `lo`."""
        return {port: intf for port, intf in sorted(self.intfs.items()) if intf.name != "lo"}

    def wiring(self) -> Wiring:
        """Arguments of the switch's start."""
        names = {port: intf.name for port, intf in self.wired.items()}
        models = {port: self.model(port) for port in names}
        links = {port: link_options(model) for port, model in models.items() if model}
        return Wiring(names, self.grpc, self.thrift, self.device_id, self.log, links, self.seed)

    def model(self, port: int) -> Mapping[str, object]:
        """Return the link model of a port's egress: ApLink's, or Mininet's words of any link. Raises LabError."""
        intf = self.wired[port]
        try:
            return {**getattr(intf.link, "model", {}), **link_model(intf.params)}
        except LabError as error:
            raise LabError(f"{self.name}: port {port}: {error}") from None

    def start(self, controllers: list[Any]) -> None:
        """Starts the switch and returns once its P4Runtime port answers. Raises LabError."""
        command = [*self.target.command(self.wiring()), *shlex.split(self.opts)]
        if self.inNamespace:
            run(*self.inside("ip", "link", "set", "lo", "up"))
        for port, intf in self.wired.items():
            self.prepare(port, intf)
        output = self.log.with_suffix(".out")
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                self.inside(*command), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT
        while self.process.poll() is None and time.monotonic() < deadline:
            if self._answers():
                return
            time.sleep(0.02)
        raise LabError(f"{self.name}: the switch did not start: {last_line(output) or f'see {self.log}'}")

    def prepare(self, port: int, intf: Any) -> None:
        """Make an interface fit to be a port: a wire for single packets, without a word of the kernel's. Raises
        LabError."""
        # The access point is a bridge: the kernel must not speak on its ports (router solicitations, MLD).
        disable_ipv6 = f"/proc/sys/net/ipv6/conf/{intf.name}/disable_ipv6"
        run(*self.inside("sh", "-c", f"[ ! -e {disable_ipv6} ] || echo 1 > {disable_ipv6}"))
        run(*self.inside("ethtool", "-K", intf.name, *OFFLOADS))

    def inside(self, *command: str) -> list[str]:
        """Return the command that runs a command in the switch's network namespace."""
        return inside(self.pid, *command) if self.inNamespace else [*command]

    def dpctl(self, *words: str) -> str:
        """Return the ports and their counters, for `dpctl show` at the prompt."""
        if words not in (("show",), ("dump-ports",)):
            return f"{' '.join(words)}: unknown: choose show; tables are for P4Runtime's clients, at {self.grpc}\n"
        try:
            return self.client("ports")
        except LabError as problem:
            return f"{problem}\n"

    def client(self, *words: str) -> str:
        """Run a command of accesspoint.topologies.switch_client and return what it printed. Raises LabError."""
        command = self.inside(python(), "-m", "accesspoint.topologies.switch_client", self.grpc, *words)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stderr.strip() or f"ended with code {done.returncode}").splitlines()[-1]
            raise LabError(f"{self.name}: {said.removeprefix('error: ')}")
        return done.stdout

    def fit(self, ports: Mapping[int, Port], ack_priority: bool) -> None:
        """Called when the program runs, for what P4Runtime cannot set. Raises LabError."""

    def stop(self, deleteIntfs: bool = True) -> None:
        if self.process:
            process, self.process = self.process, None
            stop_process(process)
        super().stop(deleteIntfs)

    def deleteIntfs(self, checkName: bool = True) -> None:
        for intf in self.wired.values():
            subprocess.run(self.inside("ip", "link", "delete", intf.name), check=False, capture_output=True)

    def _answers(self) -> bool:
        host, _, port = self.grpc.rpartition(":")
        try:
            with entered(self.pid) if self.inNamespace else contextlib.nullcontext():
                socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True


class Bridge(Switch):
    """The kernel's bridge."""

    def start(self, controllers: list[Any]) -> None:
        ports = subprocess.run(["ip", "link", "show", "master", self.name], check=False, capture_output=True)
        if ports.returncode == 0 and not ports.stdout:  # what a killed script has left
            run("ip", "link", "delete", self.name, "type", "bridge")
        run("ip", "link", "add", self.name, "type", "bridge")
        for intf in self.intfList():
            if intf.name != "lo":
                run("ethtool", "-K", intf.name, *OFFLOADS)
                run("ip", "link", "set", intf.name, "master", self.name)
        run("ip", "link", "set", self.name, "up")

    def stop(self, deleteIntfs: bool = True) -> None:
        subprocess.run(["ip", "link", "delete", self.name], check=False, capture_output=True)
        super().stop(deleteIntfs)

    def dpctl(self, *_words: str) -> str:
        """Return the bridge's ports, for the prompt's `dpctl`."""
        command = ["ip", "-s", "link", "show", "master", self.name]
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout


class PortClaims:
    """TCP ports on 127.0.0.1 that no other lab takes, even between the choice and the use.

    A claim is an abstract Unix socket: the kernel takes it back when its holder ends, whatever way. A TCP socket beside
    it stays bound to the port, so that nobody else is given it: a server that sets SO_REUSEADDR may listen beside one
    that does not listen.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def claim(self, preferred: int) -> int:
        """`preferred` if it is free, else any free port."""
        candidate = preferred
        while True:
            claim, keeper = socket.socket(socket.AF_UNIX), socket.socket()
            try:
                claim.bind(f"\0apswitch-lab-port-{candidate}")
                keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                keeper.bind(("127.0.0.1", candidate))
            except OSError:
                claim.close()
                keeper.close()
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    candidate = free.getsockname()[1]
                continue
            self._held += [claim, keeper]
            return candidate

    def take(self, port: int, use: str) -> int:
        """`port`. Raises LabError when another one has it; use: of the port, in words."""
        if self.claim(port) != port:
            raise LabError(f"{use}: TCP port {port} is taken: give another one, or none for any that is free")
        return port

    def release(self) -> None:
        while self._held:
            self._held.pop().close()


def run_prefix() -> str:
    """A short random name for one run: interface names have room for 15 characters."""
    return os.urandom(2).hex()
