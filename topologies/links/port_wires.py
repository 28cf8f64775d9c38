# SPDX-License-Identifier: Apache-2.0
"""Links behind the ports of a switch that models none itself: `apswitch` as a wire, in place of a port's bare veth."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accesspoint.topologies.links.paths import WIRE
from accesspoint.topologies.links.profiles import link_options
from accesspoint.topologies.links.veth import OFFLOADS
from accesspoint.topologies.namespaces.namespace import Namespace
from accesspoint.topologies.processes import last_line, run
from accesspoint.topologies.requirements import LabError, apswitch


class PortWires:
    """The wires of one switch. directory: takes what they print, in files that begin with `name`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._namespaces: list[Namespace] = []
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
            disable_ipv6 = f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6"
            wire.run("sh", "-c", f"[ ! -e {disable_ipv6} ] || echo 1 > {disable_ipv6}")
            wire.run("ethtool", "-K", end, *OFFLOADS)
            wire.ip("link", "set", end, "up")
        command: list[str | Path] = [apswitch(), WIRE, "-i", "1@host", "-i", "2@switch", "--link"]
        output = self._directory / f"{self._name}-wire-{interface}.out"
        with output.open("wb") as file:
            process = wire.popen(
                *command, f"1:{link_options(model)}", stdout=file, stderr=file, stdin=subprocess.DEVNULL
            )
        self._processes.append((process, output))

    def require_running(self) -> None:
        """Raises LabError when one has ended."""
        for process, output in self._processes:
            if process.poll() is not None:
                raise LabError(f"{self._name}: a wire ended: {last_line(output) or f'see {output}'}")

    def close(self) -> None:
        while self._namespaces:
            self._namespaces.pop().close()
