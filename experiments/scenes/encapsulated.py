# SPDX-License-Identifier: Apache-2.0
"""Traffic in tags, sessions and tunnels (accesspoint.topologies.links.encapsulation), and TCP's own counters of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accesspoint.experiments.scenes.scene import Flow
from accesspoint.topologies.links.encapsulation import INNER, shape, tunnel, wrap
from accesspoint.topologies.links.profiles import LinkProfile

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage


@dataclass(frozen=True)
class Wrapped:
    """All traffic between the first station and the server goes in tags or in a session. First in its scene.

    shaped: each end shapes what it sends with CAKE, at the link's rate, where IP shows."""

    kind: str
    shaped: LinkProfile | None = None

    def prepare(self, stage: "Stage") -> None:
        station, server = stage.station(1), stage.server
        wrap(self.kind, station, server, stage.arm.cc)
        if self.shaped:
            shape(self.kind, station, self.shaped.up, "ack-filter dual-srchost")
            shape(self.kind, server, self.shaped.down, "dual-dsthost")


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
class Retransmitted:
    """TCP segments that the hosts send again: a sample `retransmitted` of each host, at the timeline's end."""

    def prepare(self, stage: "Stage") -> None:
        hosts = [stage.station(1), stage.server]
        before: dict[str, int] = {}
        stage.at(0.0, lambda: before.update({host.name: retransmitted(host) for host in hosts}))

        def end() -> None:
            for host in hosts:
                count = retransmitted(host) - before[host.name]
                stage.sample(stage.seconds, "retransmitted", count, source=host.name)

        stage.at(stage.seconds / stage.scale, end)


def retransmitted(host: Any) -> int:
    """Return the counter of a host's network namespace."""
    return _table(Path(f"/proc/{host.pid}/net/snmp").read_text())["Tcp.RetransSegs"]


def _table(text: str) -> dict[str, int]:
    """Pairs of lines, names and values, as `TcpExt: A B` and `TcpExt: 1 2`."""
    lines = [line.split() for line in text.splitlines()]
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return {
        f"{names[0].rstrip(':')}.{name}": int(value)
        for names, values in pairs
        for name, value in zip(names[1:], values[1:], strict=True)
    }
