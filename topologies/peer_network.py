# SPDX-License-Identifier: Apache-2.0
"""The lab of a peer: the same stations, server and links, with a bridge of Linux
and its queue discipline in place of the switch and its controller."""

from typing import Any

from mininet.net import Mininet

from topologies import contain, peers
from topologies.network import ACCESS_POINT, Lab
from topologies.nodes import Bridge, run
from topologies.requirements import LabError


class PeerLab(Lab):
    """A running lab, as `Lab` is, without switch, controller and REST. peer: the queue discipline, by name.

    The discipline stands where the switch has its queues: before the station's link and before the uplink. Half of the
    base round trip is spent on each host's way out (netem), not behind the queues: the sum is the same. The lab is in
    a network namespace of its own and ends with it.
    """

    def __init__(self, *args: Any, peer: str, **named: Any) -> None:
        super().__init__(*args, **named)
        self.peer = peers.find(peer)
        self.stats = None
        if self.profile.down_trace or self.profile.up_trace:
            raise LabError(f"{self.peer.title} cannot replay a trace: take the links' rates")
        if missing := [kind for kind in sorted(self.peer.needs()) if not peers.has(kind)]:
            raise LabError(f"this kernel has no {', '.join(missing)}, which {self.peer.title} needs")

    def require_running(self) -> None:
        """Nothing to ask for: the kernel does all of it."""

    def _network(self) -> Mininet:
        contain.own_network()
        return super()._network()

    def _switch(self) -> dict[str, Any]:
        return {"cls": Bridge}

    def _take_up(self) -> None:
        for number, port in self.ports.items():
            for words in self.peer.commands(port):
                run("tc", "qdisc", "add", "dev", self.net[ACCESS_POINT].intfs[number].name, *words.split())
        for host in [*self.stations, self.server] if self.profile.rtt else []:
            delay = f"{self.profile.rtt * 1e6 / 2:.0f}us"
            add = ["tc", "qdisc", "add", "dev", str(host.defaultIntf()), "root"]
            host.run(*add, peers.DELAY, "delay", delay, "limit", "20000")
