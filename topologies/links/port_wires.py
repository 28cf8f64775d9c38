# SPDX-License-Identifier: Apache-2.0
"""Links behind the ports of a switch that models none itself: `apswitch` as a wire, in place of a port's bare veth."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accesspoint.topologies.links.paths import WIRE
from accesspoint.topologies.links.profiles import link_options
from accesspoint.topologies.links.veth import OFFLOADS
from accesspoint.topologies.namespaces.contain import end_with_parent, stop_process
from accesspoint.topologies.namespaces.namespace import Namespace
from accesspoint.topologies.processes import last_line, run
from accesspoint.topologies.requirements import LabError, apswitch


class PortWires:
    """The wires of one switch. directory: takes what they print, in files that begin with `name`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._namespaces: list[Namespace] = []
        self._made: list[str] = []
        self._processes: list[tuple[subprocess.Popen[Any], Path]] = []

    def put(self, interface: str, model: Mapping[str, object]) -> None:
        """Puts a wire between a host and the switch's interface, which keeps its name. model: of what leaves the
        switch.

        The wire is in a namespace of its own, so its interfaces go with it.
        """
        wire = Namespace()
        self._namespaces.append(wire)
        run("ip", "link", "set", interface, "netns", str(wire.pid), "name", "host")
        run("ip", "link", "add", interface, "type", "veth", "peer", "name", "switch", "netns", str(wire.pid))
        run("ip", "link", "set", interface, "up")
        for end in ("host", "switch"):
            for command in _bare(end):
                wire.run(*command)
        output = self._output(interface)
        with output.open("wb") as file:
            options: dict[str, Any] = {"stdout": file, "stderr": file, "stdin": subprocess.DEVNULL}
            process = wire.popen(*_command("host", "switch", model), **options)
        self._processes.append((process, output))

    def put_behind(self, interface: str, name: str, model: Mapping[str, object]) -> None:
        """Puts a wire between an interface that cannot leave its namespace, as a radio's, and a new one, `name`, which
        is the switch's. model: of what leaves the switch."""
        wire = f"{name}-wire"
        run("ip", "link", "add", name, "type", "veth", "peer", "name", wire)
        self._made.append(name)
        for end in (name, wire):
            for command in _bare(end):
                run(*command)
        output = self._output(interface)
        with output.open("wb") as file:
            options: dict[str, Any] = {"stdout": file, "stderr": file, "stdin": subprocess.DEVNULL}
            command = list(map(str, _command(interface, wire, model)))
            process = subprocess.Popen(command, start_new_session=True, preexec_fn=end_with_parent, **options)
        self._processes.append((process, output))

    def require_running(self) -> None:
        """Raises LabError when one has ended."""
        for process, output in self._processes:
            if process.poll() is not None:
                raise LabError(f"{self._name}: a wire ended: {last_line(output) or f'see {output}'}")

    def close(self) -> None:
        while self._processes:
            stop_process(self._processes.pop()[0])
        while self._namespaces:
            self._namespaces.pop().close()
        while self._made:
            subprocess.run(["ip", "link", "delete", self._made.pop()], check=False, capture_output=True)

    def _output(self, interface: str) -> Path:
        return self._directory / f"{self._name}-wire-{interface}.out"


def _bare(interface: str) -> list[list[str]]:
    """Return the commands that make an interface carry single packets and none of the kernel's."""
    disable_ipv6 = f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"
    return [
        ["sh", "-c", f"[ ! -e {disable_ipv6} ] || echo 1 > {disable_ipv6}"],
        ["ethtool", "-K", interface, *OFFLOADS],
        ["ip", "link", "set", interface, "up"],
    ]


def _command(host: str, switch: str, model: Mapping[str, object]) -> list[str | Path]:
    ports = ["-i", f"1@{host}", "-i", f"2@{switch}", "--link", f"1:{link_options(model)}"]
    return [apswitch(), WIRE, *ports, "--", "--grpc-server-addr", "127.0.0.1:0"]  # any port: nobody asks it
