# SPDX-License-Identifier: Apache-2.0
"""The lab of a peer: the same stations, server and links, with a bridge of Linux
and its queue discipline in place of the switch and its controller."""

from collections.abc import Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from mininet.net import Mininet

from accesspoint.topologies.links import peers, traces
from accesspoint.topologies.links.autorate import Autorate, Limits
from accesspoint.topologies.links.port_wires import PortWires
from accesspoint.topologies.links.station_classes import StationClass
from accesspoint.topologies.links.veth import OFFLOADS
from accesspoint.topologies.mininet.network import ACCESS_POINT, Lab
from accesspoint.topologies.mininet.nodes import Bridge
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.processes import run
from accesspoint.topologies.requirements import LabError


class PeerLab(Lab):
    """A running lab, as `Lab` is, without switch, controller and REST. peer: the queue discipline, by name. classes: of
    stations, for one that has them.

    The discipline stands where the switch has its queues: before the station's link and before the uplink. Half of the
    base round trip is spent on each host's way out (netem), not behind the queues: the sum is the same. Where the
    profile has a trace, a link that replays it follows the discipline, with the profile's limit as a queue of its own.
    The lab is in a network namespace of its own and ends with it.
    """

    def __init__(self, *args: Any, peer: str, classes: Sequence[StationClass] = (), **named: Any) -> None:
        super().__init__(*args, **named)
        self._classes = classes
        self.peer = peers.find(peer)
        self.stats = None
        self._wires = PortWires(self.directory, ACCESS_POINT)
        self._autorates: list[Autorate] = []
        if missing := [kind for kind in sorted(self.peer.needs()) if not peers.has(kind)]:
            raise LabError(f"this kernel has no {', '.join(missing)}, which {self.peer.title} needs")

    def require_running(self) -> None:
        """Raises LabError when a link has ended, or what a shaper follows it by; the kernel does all the rest."""
        self._wires.require_running()
        if not all(each.running for each in self._autorates):
            raise LabError("what a shaper follows its link by has ended: pings, or tc that sets its rate")

    def stop(self) -> None:
        for each in self._autorates:
            each.close()
        super().stop()
        self._wires.close()

    def _network(self) -> Mininet:
        contain.own_network()
        return super()._network()

    def _switch(self) -> dict[str, Any]:
        return {"cls": Bridge}

    def _take_up(self) -> None:
        for number, port in self.ports.items():
            self._put_trace(self.net[ACCESS_POINT].intfs[number])
            interface = self.net[ACCESS_POINT].intfs[number].name
            for what, words in self.peer.commands(port, number == max(self.ports), self._classes, self.profile.rtt):
                run("tc", what, "add", "dev", interface, *words.split())
        for host in [*self.stations, self.server] if self.profile.rtt else []:
            delay = f"{self.profile.rtt * 1e6 / 2:.0f}us"
            add = ["tc", "qdisc", "add", "dev", str(host.defaultIntf()), "root"]
            host.run(*add, peers.DELAY, "delay", delay, "limit", "20000")
        if self.peer.follows:
            self._follow()

    def _follow(self) -> None:
        """Have the rates of the discipline follow links with a trace, by pings from the bridge to their hosts."""
        network = ip_interface(self.server.params["ip"]).network
        run("ip", "address", "add", f"{network[-2]}/{network.prefixlen}", "dev", ACCESS_POINT)
        for number in self.ports:
            interface = self.net[ACCESS_POINT].intfs[number]
            host = self.server if number == max(self.ports) else self.stations[number - min(self.ports)]
            if trace := interface.link.model.get("trace"):
                self._autorates.append(Autorate(interface.name, host.IP(), Limits.of(traces.read(Path(trace)))))

    def _put_trace(self, interface: Any) -> None:
        model = {name: value for name, value in interface.link.model.items() if name in ("trace", "limit")}
        if "trace" in model:
            self._wires.put(interface.name, model)
            run("ethtool", "-K", interface.name, *OFFLOADS)
            run("ip", "link", "set", interface.name, "master", ACCESS_POINT)
