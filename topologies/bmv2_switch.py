# SPDX-License-Identifier: Apache-2.0
"""The target BMv2 in Mininet: `simple_switch_grpc`, with a wire behind each port that keeps the link's model."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topologies import bmv2
from topologies.namespace import Namespace
from topologies.nodes import OFFLOADS, ApSwitch, last_line, link_options
from topologies.paths import WIRE
from topologies.requirements import LabError, apswitch
from topologies.targets import TARGETS, Port


class Bmv2Switch(ApSwitch):
    """`simple_switch_grpc` as the access point."""

    target = TARGETS["bmv2"]

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **params)
        self._wires: list[Namespace] = []
        self._wire_processes: list[tuple[subprocess.Popen[Any], Path]] = []

    def start(self, controllers: list[Any]) -> None:
        for intf in self.wired.values():
            if intf.link.model:
                self._put_wire(intf.name, intf.link.model)
        super().start(controllers)
        for process, output in self._wire_processes:
            if process.poll() is not None:
                raise LabError(f"{self.name}: a wire did not start: {last_line(output) or f'see {output}'}")

    def fit(self, ports: Mapping[int, Port], ack_priority: bool) -> None:
        """Sets the queues' limits and the bulk queues' pace, so that they stand in the switch.

        Without ACK priority there is no pace, and the queue is the wire's, as good a FIFO: ACKs and data in one queue
        cannot be paced by packets.
        """
        for number, port in ports.items():
            bmv2.set_depth(self.thrift, number, port.limit)
            if ack_priority:
                bmv2.set_pace(self.thrift, number, bmv2.bulk_pace(port.rate, port.opposite), queue=0)

    def stop(self, deleteIntfs: bool = True) -> None:
        super().stop(deleteIntfs)
        while self._wires:
            self._wires.pop().close()

    def _put_wire(self, name: str, model: dict[str, object]) -> None:
        """Puts a wire between the host and the switch's interface, which keeps its name.

        The wire is in a namespace of its own, so its interfaces go with it.
        """
        wire = Namespace()
        self._wires.append(wire)
        _ip("link", "set", name, "netns", str(wire.pid), "name", "host")
        _ip("link", "add", name, "type", "veth", "peer", "name", "switch", "netns", str(wire.pid))
        _ip("link", "set", name, "up")
        for end in ("host", "switch"):
            disable_ipv6 = f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6"
            wire.run("sh", "-c", f"[ ! -e {disable_ipv6} ] || echo 1 > {disable_ipv6}")
            wire.run("ethtool", "-K", end, *OFFLOADS)
            wire.ip("link", "set", end, "up")
        command: list[str | Path] = [apswitch(), WIRE, "-i", "1@host", "-i", "2@switch", "--link"]
        output = self.log.with_name(f"{self.log.stem}-wire-{name}.out")
        with output.open("wb") as file:
            process = wire.popen(
                *command, f"1:{link_options(model)}", stdout=file, stderr=file, stdin=subprocess.DEVNULL
            )
        self._wire_processes.append((process, output))


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")
