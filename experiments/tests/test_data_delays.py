# SPDX-License-Identifier: Apache-2.0
"""One-way delays of flows' data, from the logs of both ends."""

from types import SimpleNamespace
from typing import Any

import pytest

from accesspoint.experiments.catalogue.ncr.delays import EXPERIMENT
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs import plan
from accesspoint.experiments.scenes.data_delays import DataDelays, data_delay

LOGS = {  # of host and port
    ("sta", "5201"): "ready\n1000 7 12.1000\n2000 8 12.3\n3000 9 13.0\n",
    ("srv", "5201"): "ready\n1000 7 12.0\n2000 8 12.0\n3000 10 12.9\n",  # 3000 was sent again, and is under way
    ("sta", "5202"): "ready\n500 1 11.5\n",
    ("srv", "5202"): "ready\n500 1 12.75\n",
}


def test_delay_of_a_segment_is_between_the_ends_whichever_sends() -> None:
    found: list[tuple[float, str, float, float, str]] = []

    def program(host: Any, *command: str, take: Any) -> Any:
        for line in LOGS[host.name, command[-1]].splitlines()[1:]:
            take(line)
        return SimpleNamespace(await_line=lambda start: None)

    hosts = [SimpleNamespace(name=name, defaultIntf=lambda: "eth0") for name in ("sta", "srv")]
    stage: Any = SimpleNamespace(
        station=lambda number: hosts[0], server=hosts[1], program=program, started=11.9, seconds=4.0, scale=1.0,
        at=lambda second, action: action(), sample=lambda *sample: found.append(sample),
    )  # fmt: skip
    DataDelays(("download", "upload")).prepare(stage)
    assert [(*sample[:2], pytest.approx(sample[2]), *sample[3:]) for sample in found] == [
        (0.25, "data_delay_ms", 200.0, 0.5, "download"),
        (0.25, "data_packets", 2, 0.5, "download"),
        (0.75, "data_delay_ms", 1250.0, 0.5, "upload"),
        (0.75, "data_packets", 1, 0.5, "upload"),
    ]


def test_mean_delay_is_over_segments_not_over_flows() -> None:
    samples = [
        Sample(time, quantity, value, 0.5, flow)
        for time, flow, delay, packets in ((0.25, "download 1", 10.0, 9), (0.25, "upload 1", 110.0, 1))
        for quantity, value in (("data_delay_ms", delay), ("data_packets", float(packets)))
    ]
    raw = Raw(samples, 1.0)
    assert data_delay("*load*")(raw) == pytest.approx(20.0)
    assert data_delay("upload*")(raw) == pytest.approx(110.0)
    assert data_delay("nobody")(raw) is None


def test_all_flows_of_a_point_are_logged() -> None:
    point = {"downloads": 2, "uploads": 3, "queue": 50}
    traffic = EXPERIMENT.scene_of(point, EXPERIMENT.arm("fifo")).traffic
    (logged,) = (one for one in traffic if isinstance(one, DataDelays))
    assert logged.flows == ("download 1", "download 2", "upload 1", "upload 2", "upload 3")
    assert len(plan.make(EXPERIMENT, quick=True).orders()) == 90
