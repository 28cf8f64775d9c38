# SPDX-License-Identifier: Apache-2.0
"""Segments on their way between the first station and the server, logged where they leave and where they arrive."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accesspoint.experiments.lab.traffic import IPERF_PORT

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage


@dataclass(frozen=True)
class Crossing:
    """The time that each full segment of the scene's first flow takes from the first station to the server: samples
    `crossing_ms` at the timeline's end, `end`."""

    end: float

    def prepare(self, stage: "Stage") -> None:
        left, arrived = (watch(stage, host, str(host.defaultIntf())) for host in (stage.station(1), stage.server))

        def end() -> None:
            for segment, when in list(arrived.items()):
                if segment in left:
                    stage.sample(when - stage.started, "crossing_ms", (when - left[segment]) * 1e3)

        stage.at(self.end, end)


@dataclass(frozen=True)
class Reordered:
    """The full segments of the scene's flows that come after one that was sent later (RFC 4737, section 3): a sample
    `reordered` of each flow, at the timeline's end. directions: of the flows, in their order. interface: that has IP at
    both hosts."""

    directions: tuple[str, ...]
    interface: str

    def prepare(self, stage: "Stage") -> None:
        hosts = (stage.server, stage.station(1))
        logs = []
        for number, direction in enumerate(self.directions):
            ends = hosts if direction == "down" else hosts[::-1]
            logs.append(tuple(watch(stage, host, self.interface, IPERF_PORT + number) for host in ends))

        def end() -> None:
            for direction, (left, arrived) in zip(self.directions, logs, strict=True):
                stage.sample(stage.seconds, "reordered", reordered(list(left), list(arrived)), source=direction)

        stage.at(stage.seconds / stage.scale, end)


def reordered(left: Iterable[object], arrived: Iterable[object]) -> int:
    """Count what arrived after something that left later; what was never seen to leave does not count."""
    order = {one: number for number, one in enumerate(left)}
    count = latest = 0
    for number in (order[one] for one in arrived if one in order):
        count += number < latest
        latest = max(latest, number)
    return count


def watch(stage: "Stage", host: Any, interface: str, port: int = IPERF_PORT) -> dict[str, float]:
    """Log when each segment passes the host's interface, in this order; the log is filled from now on."""
    passed: dict[str, float] = {}

    def take(line: str) -> None:
        segment, _, when = line.strip().rpartition(" ")
        if segment:
            passed[segment] = float(when)

    words = (sys.executable, "-m", "accesspoint.experiments.scenes.arrival_log", interface, str(port))
    stage.program(host, *words, take=take).await_line("ready")
    return passed
