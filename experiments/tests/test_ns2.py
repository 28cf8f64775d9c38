# SPDX-License-Identifier: Apache-2.0
"""Scenes in ns-2: a short form of each of its experiments, in simulated time."""

from pathlib import Path
from statistics import fmean

import pytest

from accesspoint.experiments.catalogue.fairness import ns2 as fairness
from accesspoint.experiments.catalogue.fairness import radio
from accesspoint.experiments.experiment import Point
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.runs import plan, provenance, registry
from accesspoint.experiments.scenes.ns2 import Stage, Transfer
from accesspoint.topologies.kernels.kernel import REAL, SIMULATED
from accesspoint.topologies.ns2 import cell
from accesspoint.topologies.requirements import LabError


def simulate(name: str, arm: str, seconds: float, point: Point, seed: int = 1) -> dict[str, float | None]:
    """Return the measures of a run."""
    experiment = registry.find(name)
    scene = experiment.scene_of(point, experiment.arm(arm))
    samples, _ = scene.simulate(experiment.arm(arm), point, seconds, seed, Path("."))  # type: ignore[attr-defined]
    raw = Raw(samples, seconds, seconds / scene.seconds, point, arm)
    return {one.name: one.of(raw) for one in experiment.measures}


def test_flow_of_a_shorter_run_keeps_its_place_in_the_timeline() -> None:
    stage = Stage(scale=0.5, seed=1)
    for part in (Transfer(1, "up", start=20, end=40, name="upload"), Transfer(2, "down", within=10, length=1000)):
        part.prepare(stage)
    upload, sessions = stage.flows
    assert (upload.name, upload.up, upload.start, upload.stop) == ("upload", True, 10, 20)
    assert (sessions.name, sessions.up, sessions.stop, sessions.period) == ("sta2", False, 0, 10)
    assert 0 < sessions.start < 10
    again = Stage(scale=0.5, seed=2)
    Transfer(2, "down", within=10, length=1000).prepare(again)
    assert again.flows[0].start != sessions.start


def test_missing_ns2_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan.make(registry.find("ns2-wlan"), quick=True)
    assert made.clock == SIMULATED
    with pytest.raises(LabError, match="'ns2-wlan' is a simulation"):
        plan.require(plan.make(registry.find("ns2-wlan"), quick=True, clock=REAL))
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LabError, match="install it with `apt install ns2`"):
        plan.require(made)


@pytest.mark.usefixtures("ns2")
def test_run_keeps_the_version_of_its_simulator() -> None:
    versions = provenance.versions_of_a_simulation("ns-2")
    assert versions["ns-2"] == cell.version() and "ns-3" not in versions


@pytest.mark.usefixtures("ns2")
def test_paper_000_in_short_an_upload_starves_a_download() -> None:
    found = simulate("ns2-wlan", "normal", 15.0, {})
    assert found["download_alone"] == pytest.approx(3.4, rel=0.05)
    assert found["download_during"] is not None and found["download_during"] < 1


@pytest.mark.usefixtures("ns2")
def test_paper_001_in_short_fast_headers_carry_what_its_udp_carries() -> None:
    point: Point = {"protocol": "UDP", "direction": "down", "nodes": 1, "size": 1460}
    found = {arm: simulate("ns2-effective", arm, 8.0, point)["total"] for arm in ("plcp-11", "basic-1")}
    assert found["plcp-11"] == pytest.approx(radio.PAPER["UDP", "down"][0], rel=0.01)
    assert found["basic-1"] == pytest.approx(6.0, rel=0.02)  # as much as of ns-3's cell


@pytest.mark.usefixtures("ns2")
@pytest.mark.parametrize(("direction", "nodes"), [("down", 2), ("up", 8)])
def test_fair_share_is_what_the_cell_carries(direction: str, nodes: int) -> None:
    point: Point = {"protocol": "TCP", "direction": direction, "nodes": nodes, "size": 1000}
    seeds = [plan.Order("ns2-effective", "plcp-11", point, repeat, 15.0, "apswitch").seed for repeat in range(1, 6)]
    totals = [simulate("ns2-effective", "plcp-11", 15.0, point, seed)["total"] or 0.0 for seed in seeds]
    assert round(fmean(totals), 2) == fairness.EFFECTIVE[direction]


@pytest.mark.usefixtures("ns2")
def test_paper_001_in_short_vegas_shares_sooner_than_reno() -> None:
    point: Point = {"direction": "down", "nodes": 4, "bytes": 10_000}
    found = {arm: simulate("ns2-fairness", arm, 40.0, point) for arm in ("reno", "vegas")}
    reno, vegas = (found[arm]["if"] or 0.0 for arm in ("reno", "vegas"))
    assert 0 < reno < 0.7 * vegas < 1 and found["reno"]["unfinished"] == 0
