# SPDX-License-Identifier: Apache-2.0
"""One-way delays of flows' data between the first station and the server, by the one clock of a lab's kernel."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from accesspoint.experiments.lab.traffic import IPERF_PORT
from accesspoint.experiments.measure.run_data import Of, Raw
from accesspoint.experiments.scenes.crossing import watch

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

BIN = 0.5  # s


@dataclass(frozen=True)
class DataDelays:
    """Time that the full segments of the scene's flows take from one host's interface to the other's: for each flow
    and BIN of arrivals samples `data_delay_ms`, their mean, and `data_packets`, their number. A lost segment has no
    delay. flows: names of all, in their order, each of one stream."""

    flows: tuple[str, ...]

    def prepare(self, stage: "Stage") -> None:
        logs = {
            flow: [
                watch(stage, host, str(host.defaultIntf()), IPERF_PORT + number)
                for host in (stage.station(1), stage.server)
            ]
            for number, flow in enumerate(self.flows)
        }

        def end() -> None:
            for flow, (one, other) in logs.items():
                bins: dict[int, list[float]] = defaultdict(list)
                for arrived, delay in crossings(dict(one), dict(other)):
                    bins[int((arrived - stage.started) // BIN)].append(delay * 1e3)
                for number, delays in bins.items():
                    middle = (number + 0.5) * BIN
                    stage.sample(middle, "data_delay_ms", fmean(delays), BIN, flow)
                    stage.sample(middle, "data_packets", len(delays), BIN, flow)

        stage.at(stage.seconds / stage.scale, end)


def crossings(one: Mapping[str, float], other: Mapping[str, float]) -> Iterator[tuple[float, float]]:
    """Time of arrival and delay (s) of each segment in the logs of both ends; it left where it was seen first."""
    for segment in one.keys() & other.keys():
        times = one[segment], other[segment]
        yield max(times), max(times) - min(times)


def data_delay(source: str) -> Of:
    """Mean delay (ms) of all segments of the flows whose name matches the pattern."""

    def of(raw: Raw) -> float | None:
        packets = raw.values("data_packets", source)
        return fmean(raw.values("data_delay_ms", source), packets) if packets else None

    return of
