# SPDX-License-Identifier: Apache-2.0
"""Traffic in tags, sessions and tunnels (accesspoint.topologies.links.encapsulation), and TCP's own counters of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accesspoint.experiments.scenes.scene import Flow
from accesspoint.topologies.links.encapsulation import INNER, tunnel, wrap

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage


@dataclass(frozen=True)
class Wrapped:
    """All traffic between the first station and the server goes in tags or in a session. First in its scene."""

    kind: str

    def prepare(self, stage: "Stage") -> None:
        wrap(self.kind, stage.station(1), stage.server, stage.arm.cc)


@dataclass(frozen=True)
class Tunnel:
    """A tunnel between the first station and the server, for the flows that are `InTunnel`. Before them in its
    scene."""

    kind: str

    def prepare(self, stage: "Stage") -> None:
        tunnel(self.kind, stage.station(1), stage.server, stage.arm.cc)


@dataclass(frozen=True)
class InTunnel(Flow):
    """A flow within the scene's tunnel."""

    def prepare(self, stage: "Stage") -> None:
        stage.transfer(self, [], f"{INNER}.{1 if self.direction == 'down' else 2}")


@dataclass(frozen=True)
class Counters:
    """TCP counters of the hosts from `start` to the end: samples `out_of_order` (segments that came before an earlier
    one) and `retransmitted` of each host."""

    start: float = 0.0

    def prepare(self, stage: "Stage") -> None:
        hosts = [stage.station(1), stage.server]
        before: dict[str, dict[str, int]] = {}

        def begin() -> None:
            before.update({host.name: counters(host) for host in hosts})

        def end() -> None:
            for host in hosts:
                for name, count in counters(host).items():
                    stage.sample(stage.seconds, name, count - before[host.name][name], source=host.name)

        stage.at(self.start, begin)
        stage.at(stage.seconds / stage.scale, end)


def counters(host: Any) -> dict[str, int]:
    """TCP counters of a host's network namespace."""
    found = _table(Path(f"/proc/{host.pid}/net/netstat").read_text())
    found |= _table(Path(f"/proc/{host.pid}/net/snmp").read_text())
    return {"out_of_order": found["TcpExt.TCPOFOQueue"], "retransmitted": found["Tcp.RetransSegs"]}


def _table(text: str) -> dict[str, int]:
    """Pairs of lines, names and values, as `TcpExt: A B` and `TcpExt: 1 2`."""
    lines = [line.split() for line in text.splitlines()]
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return {
        f"{names[0].rstrip(':')}.{name}": int(value)
        for names, values in pairs
        for name, value in zip(names[1:], values[1:], strict=True)
    }
