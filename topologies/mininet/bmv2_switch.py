# SPDX-License-Identifier: Apache-2.0
"""The target BMv2 in Mininet: `simple_switch_grpc`, with a wire behind each port that keeps the link's model."""

from collections.abc import Mapping
from typing import Any

from accesspoint.topologies import bmv2
from accesspoint.topologies.links.port_wires import PortWires
from accesspoint.topologies.mininet.nodes import ApSwitch
from accesspoint.topologies.targets import TARGETS, Port


class Bmv2Switch(ApSwitch):
    """`simple_switch_grpc` as the access point."""

    target = TARGETS["bmv2"]

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **params)
        self._wires = PortWires(self.log.parent, self.log.stem)

    def start(self, controllers: list[Any]) -> None:
        for port, intf in self.wired.items():
            if model := self.model(port):
                self.put_wire(port, intf.name, model)
        super().start(controllers)
        self._wires.require_running()

    def put_wire(self, port: int, interface: str, model: Mapping[str, object]) -> None:
        """Put a wire with the link's model behind a port."""
        self._wires.put(interface, model)

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
        self._wires.close()
