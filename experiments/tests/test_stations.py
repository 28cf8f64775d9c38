# SPDX-License-Identifier: Apache-2.0
"""Shares and limits of stations: what is counted, and what the stations are set to."""

from dataclasses import replace
from types import MethodType, SimpleNamespace
from typing import Any

import pytest

from accesspoint.experiments.catalogue.peers import limits, stations
from accesspoint.experiments.experiment import Experiment
from accesspoint.experiments.lab.stage import Stage
from accesspoint.experiments.measure.run_data import Point, Raw
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs import registry
from accesspoint.experiments.scenes.bulk import Uploads


def steady(seconds: float, **rates: float) -> list[Sample]:
    """Samples of flows with a rate each, and that they were started."""
    started = [Sample(0.0, "streams", 1.0, source=name) for name in rates]
    return started + [
        Sample(t + 0.5, "rate_mbps", rate, 1.0, name) for t in range(round(seconds)) for name, rate in rates.items()
    ]


def measured(experiment: Experiment, samples: list[Sample], point: Point | None = None) -> dict[str, float | None]:
    seconds = experiment.scene_of(point or next(experiment.points()), experiment.arms[0]).seconds
    raw = Raw(samples, seconds, point=point)
    return {measure.name: measure.of(raw) for measure in experiment.measures}


@pytest.mark.parametrize(("name", "many"), [("hosts", "uploads"), ("hosts-down", "downloads")])
def test_share_is_counted_past_the_start_up_and_pings_by_station(name: str, many: str) -> None:
    samples = steady(stations.SETTLED, one=0.1, **{many: 0.9})
    samples += [Sample(t + 0.5, "rate_mbps", 0.5, 1.0, flow) for t in range(25, 60) for flow in ("one", many)]
    samples += [Sample(t, "ping_ms", 9.0 if t % 2 else 11.0, source="one" if t % 2 else "many") for t in range(60)]
    found = measured(registry.find(name), samples)
    assert (found["share"], found["both"]) == (pytest.approx(0.5), pytest.approx(1.0))
    assert found["share_starting"] == pytest.approx(0.1)
    assert (found["ping_one"], found["ping_many"]) == (9.0, 11.0)


def but(samples: list[Sample], when: float, rate: float) -> list[Sample]:
    """The samples with another rate in one second."""
    return [replace(sample, value=rate) if sample.time == when else sample for sample in samples]


@pytest.mark.parametrize(("way", "limit"), [("down", 2.0), ("up", 0.3)])
@pytest.mark.parametrize(("traffic", "payload"), [("tcp-4", 1448), ("udp", 1472)])
def test_limit_counts_frames_in_the_worst_window(way: str, limit: float, traffic: str, payload: int) -> None:
    """A second without anything, or with twice as much, counts in the five seconds around it; not at the start."""
    rates = steady(30, down=2.0 * payload / 1514, up=0.3 * payload / 1514)
    point: Point = {"traffic": traffic, "ecn": "on", "rtt": 20}
    twice = 2 * limit * payload / 1514
    for odd, least, most in ((0.0, 0.8, 1.0), (twice, 1.0, 1.2)):
        found = measured(limits.EXPERIMENT, but(rates, 17.5, odd), point)
        assert (found[f"{way}_least"], found[f"{way}_most"]) == (pytest.approx(least), pytest.approx(most))
        found = measured(limits.EXPERIMENT, but(rates, 4.5, odd), point)
        assert found[f"{way}_least"] == pytest.approx(1.0) == found[f"{way}_most"]


def test_limit_on_the_wire_counts_what_arrives_twice() -> None:
    """Payload stands still behind a lost segment, and the wire is as busy as before."""
    rates = steady(30, **{"down": 0.0, "up": 0.0, "wire-down": 2.0, "wire-up": 0.3})
    found = measured(limits.EXPERIMENT, rates, {"traffic": "tcp-32", "ecn": "off", "rtt": 20})
    for way in ("down", "up"):
        assert found[f"{way}_least"] == 0.0 == found[f"{way}_most"]
        assert found[f"wire_{way}_least"] == pytest.approx(1.0) == found[f"wire_{way}_most"]


def test_station_that_never_came_up_has_nothing_of_its_share() -> None:
    samples = steady(50, **{f"up{number}": 0.1 for number in range(1, 64)})
    assert measured(stations.STATIONS_64, samples)["least"] == pytest.approx(1.0)
    found = measured(stations.STATIONS_64, [*samples, Sample(0.0, "streams", 8.0, source="up64")])
    assert found["least"] == 0.0 and found["most"] == pytest.approx(64 / 63)


def test_64_stations_have_1_to_8_uploads_each() -> None:
    scene = stations.STATIONS_64.scene_of({}, stations.OUR_ARM)
    (uploads,) = (part for part in scene.traffic if isinstance(part, Uploads))
    assert uploads.connections == tuple(range(1, 9)) * 8


def test_uploads_that_never_connect_count_as_nothing() -> None:
    started: list[Sample] = []
    stage: Any = SimpleNamespace(
        server=None, station=lambda number: None, address="10.0.0.1", started=1000.0, seed=1,
        sample=lambda when, quantity, value, source: started.append(Sample(when, quantity, value, source=source)),
        program=lambda *words, **_: SimpleNamespace(await_line=lambda line: None), take_rate=None,
    )  # fmt: skip
    Uploads((1, 8)).prepare(stage)
    assert [(one.quantity, one.value, one.source) for one in started] == [
        ("streams", 1.0, "up1"),
        ("streams", 8.0, "up2"),
    ]
    assert Raw(started, seconds=50).rates("up*") == [0.0, 0.0]


@pytest.mark.parametrize("experiment", [limits.EXPERIMENT, stations.WEIGHTS_OF_TWO], ids=lambda one: one.name)
def test_settings_are_those_of_the_labs_stations(experiment: Experiment, tmp_path: Any) -> None:
    pytest.importorskip("mininet")
    from accesspoint.topologies.mininet.network import AccessPointTopo

    arm, point = experiment.arm("ours"), next(experiment.points())
    lab: Any = experiment.scene_of(point, arm).lab(arm, "apswitch", tmp_path)
    topo = AccessPointTopo(stations=2)
    assert list(lab._settings["stations"]) == [topo.nodeInfo(name)["mac"] for name in ("sta1", "sta2")]


@pytest.mark.parametrize("ecn", ["on", "off"])
def test_datagrams_of_a_limited_station_fill_the_link_in_each_direction(ecn: str) -> None:
    host = {name: SimpleNamespace(IP=lambda name=name: name) for name in ("server", "sta1", "sta2")}
    started: list[tuple[Any, ...]] = []

    def program(at: Any, *words: str, **_: Any) -> Any:
        started.append((at.IP(), *words[3:]))
        return SimpleNamespace(await_line=lambda line: None)

    stage = SimpleNamespace(
        server=host["server"], station=lambda n: host[f"sta{n}"], program=program, seconds=31.0,
        at=lambda second, action: action(),
    )  # fmt: skip
    stage.ends = MethodType(Stage.ends, stage)
    point: Point = {"traffic": "udp", "ecn": ecn, "rtt": 2}
    for part in limits.EXPERIMENT.scene_of(point, limits.OUR_ARM).traffic:
        if isinstance(part, limits.Steady):
            part.prepare(stage)  # type: ignore[arg-type]
    bits = "2" if ecn == "on" else "0"
    assert started == [
        ("sta1", "receive", "sta1", "sta1", "5004"),
        ("server", "send", "server", "sta1", "5004", "14000000", "31.0", bits),
        ("server", "receive", "server", "server", "5004"),
        ("sta2", "send", "sta2", "server", "5004", "1000000", "31.0", bits),
    ]
