# SPDX-License-Identifier: Apache-2.0
"""Cells in ns-3: a short form of one experiment of each paper, each in a process of its own, as a run has one."""

import hashlib
import json
import subprocess
import sys
from statistics import fmean
from typing import Any

import pytest

from accesspoint.experiments.catalogue.cwnd import radio
from accesspoint.experiments.catalogue.fairness import cells as fairness
from accesspoint.experiments.experiment import Point
from accesspoint.experiments.runs import plan, registry
from accesspoint.topologies.kernels.kernel import REAL, SIMULATED
from accesspoint.topologies.requirements import ROOT, LabError

pytestmark = pytest.mark.usefixtures("ns3")

PROGRAM = """
import json, sys
from dataclasses import astuple
from pathlib import Path
from accesspoint.experiments.runs import registry
from accesspoint.experiments.measure.run_data import Raw
name, arm, seconds, seed, point = json.loads(sys.argv[1])
experiment = registry.find(name)
scene = experiment.scene_of(point, experiment.arm(arm))
samples, _ = scene.simulate(experiment.arm(arm), point, seconds, seed, Path("."))
raw = Raw(samples, seconds, seconds / scene.seconds, point, arm)
print(json.dumps([{one.name: one.of(raw) for one in experiment.measures}, [astuple(one) for one in samples]]))
"""


def simulate(name: str, arm: str, seconds: float, point: Point, seed: int = 1) -> tuple[dict[str, Any], str]:
    """The measures of a run, and a checksum of its samples."""
    told = json.dumps([name, arm, seconds, seed, dict(point)])
    command = [sys.executable, "-c", PROGRAM, told]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=300).stdout
    measures, samples = json.loads(said)
    return measures, hashlib.sha256(json.dumps(samples).encode()).hexdigest()


def test_paper_001_in_short_udp_fills_a_cell_of_802_11b() -> None:
    """A frame of 1472 bytes takes 1.9 ms with its acknowledgement and the mean backoff (IEEE Std 802.11, 15.2)."""
    measures, _ = simulate("cell-effective", "plain", 15.0, {"protocol": "UDP", "direction": "down", "nodes": 1})
    assert measures["total"] == pytest.approx(6.1, rel=0.05)


def test_a_seed_makes_the_same_run_to_the_byte() -> None:
    point = {"terminals": 2, "delay": 4}
    run = simulate("cell-terminals", "plain", 3.5, point)
    assert simulate("cell-terminals", "plain", 3.5, point) == run
    assert simulate("cell-terminals", "plain", 3.5, point, seed=2)[1] != run[1]


def test_paper_002_in_short_the_middleware_bounds_what_stands_in_queues() -> None:
    point = {"terminals": 1, "delay": 4}
    plain, bounded = (simulate("cell-terminals", arm, 10.0, point)[0] for arm in ("plain", "middleware"))
    assert plain["largest_ratio"] > 6 and bounded["most_rtt"] < plain["most_rtt"]
    assert bounded["kept_ratio"] < plain["kept_ratio"] / 2 and bounded["total"] > plain["total"] / 2


def test_paper_000_in_short_an_upload_halves_a_download_over_lte() -> None:
    fifo, ours = (simulate("cell-lte", arm, 12.0, {"queue": 80})[0] for arm in ("fifo", "ours"))
    assert fifo["download_during"] < 0.7 * fifo["download_alone"]
    assert ours["download_during"] > 0.9 * ours["download_after"] > 24 and ours["upload_during"] > 12


def test_paper_000_in_short_an_upload_starves_a_download_over_wimax() -> None:
    fifo, ours = (simulate("cell-wimax", arm, 60.0, {"queue": 1024})[0] for arm in ("fifo", "ours"))
    assert fifo["download_during"] < 0.7 * fifo["download_alone"]
    assert ours["download_during"] > 0.85 * ours["download_after"] > 3.2 and ours["upload_during"] > 0.9


def published(name: str, measure: str, arm: str, point: Point, repeat: int) -> float:
    summary = json.loads((ROOT / f"docs/results/summaries/{name}.json").read_text())
    found = [
        cell for cell in summary["cells"]
        if (cell["measure"], cell["arm"], cell["point"]) == (measure, arm, dict(point))
    ]  # fmt: skip
    return float(found[0]["values"][str(repeat)])


def test_a_published_run_is_made_again_to_its_last_digit() -> None:
    """The page's run was made by another process, another build, and perhaps another machine."""
    point: Point = {"protocol": "TCP", "direction": "up", "nodes": 8}
    seed = plan.Order("cell-effective", "plain", point, 2, 15.0, "apswitch").seed
    measures, _ = simulate("cell-effective", "plain", 15.0, point, seed)
    assert float(f"{measures['total']:.6g}") == published("cell-effective", "total", "plain", point, 2)


def test_the_fair_share_of_paper_001_is_what_the_cell_was_published_to_carry() -> None:
    def mean(direction: str, nodes: int) -> float:
        point: Point = {"protocol": "TCP", "direction": direction, "nodes": nodes}
        return fmean(published("cell-effective", "total", "plain", point, repeat) for repeat in range(1, 6))

    most = {way: round(max(mean(way, nodes) for nodes in (1, 2, 4, 8)), 2) for way in ("down", "up")}
    assert most == fairness.EFFECTIVE


def walked(settings: dict[str, Any], until: float = 8.0) -> list[float]:
    """Mb/s in each quarter of a second of a terminal that leaves an access point at 3 s and joins another at 4 s."""
    program = (
        "import json, sys\nfrom accesspoint.topologies.ns3.cell import Cell\n"
        "from accesspoint.experiments.scenes.cells import _configuration\n"
        "from accesspoint.experiments.experiment import OURS, Arm\n"
        "told, until = json.loads(sys.argv[1])\n"
        "with Cell(**told) as cell:\n"
        "    if 'ours_radio' in told:\n"
        "        cell.control(_configuration(Arm('ours', '', features=OURS), 20_000_000))\n"
        "    cell.add('flow', station=1, start=0.5, transport='ns3::TcpLinuxReno')\n"
        "    print(json.dumps([x.value for x in cell.run(until) if x.quantity == 'rate_mbps']))\n"
    )
    told = {
        "stations": 2, "beyond": 1, "apart": 20, "leaves": 3, "outage": 1, "arrives": 6, "distance": 0.3,
        "window": 1 << 18, "manager": "ns3::ConstantRateWifiManager", "seed": 1, **settings,
    }  # fmt: skip
    command = [sys.executable, "-c", program, json.dumps([told, until])]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=300).stdout
    return list(json.loads(said))


OURS_CELL = {
    "ours_radio": "limit=1000", "held": 4, "ours_uplink": "rate=20mbit,limit=1000", "ours_options": "--cpu-port 510",
}  # fmt: skip


@pytest.mark.parametrize("ours", [{}, OURS_CELL], ids=["bridges", "ours"])
def test_a_terminal_walks_to_the_next_access_point(ours: dict[str, Any]) -> None:
    rates = walked(ours)
    before, without, after = rates[4:10], rates[12:14], rates[-6:]
    assert min(before) > 10 and max(without) == 0 and min(after) > 10


def test_a_walk_in_half_of_its_time_is_the_same_walk() -> None:
    point: Point = {"place": "indoor", "protocol": "UDP"}
    measures, _ = simulate("cell-path", "alone", 22.0, point)
    for name in ("near", "mean"):
        assert measures[name] == pytest.approx(published("cell-path", name, "alone", point, 1), rel=0.1), name


def test_bursts_and_other_networks_cost_a_cell_what_they_take() -> None:
    still = {"leaves": 9, "arrives": 12}
    alone, foreign, lossy = (
        fmean(walked({**still, **disturbed}, 6.0)[4:])
        for disturbed in ({}, {"foreign_share": 0.33}, {"burst_every": 0.5, "burst_ms": 50})
    )
    assert 0.4 * alone < foreign < 0.8 * alone
    assert lossy < 0.95 * alone


def kept(told: dict[str, Any], flows: list[dict[str, Any]], until: float) -> list[tuple[str, str, float]]:
    """Samples of a cell with these flows: quantity, source, value."""
    program = (
        "import json, sys\nfrom accesspoint.topologies.ns3.cell import Cell\n"
        "told, flows, until = json.loads(sys.argv[1])\n"
        "with Cell(**told) as cell:\n"
        "    for flow in flows:\n"
        "        cell.add('flow', transport='ns3::TcpLinuxReno', **flow)\n"
        "    print(json.dumps([(x.quantity, x.source, x.value) for x in cell.run(until)]))\n"
    )
    command = [sys.executable, "-c", program, json.dumps([told, flows, until])]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=300).stdout
    return [tuple(one) for one in json.loads(said)]


def test_first_packets_of_a_session_wait_behind_a_download() -> None:
    """Two of each session, of downloads alone; longer than on the empty cell, where a frame takes under 1 ms."""
    sessions = {"start": 0.5, "first": 3, "stop": 6, "period": 1, "length": 10_000}
    told = {"stations": 3, "seed": 1, "manager": "ns3::ConstantRateWifiManager"}
    down, up = {"station": 1, "up": 0, **sessions}, {"station": 2, "up": 1, **sessions}
    waits: list[list[float]] = []
    for others in ([], [{"station": 3, "up": 0, "start": 0.5}]):
        found = kept(told, [down, up, *others], 9)
        assert {source for quantity, source, _ in found if quantity == "first_wait_ms"} == {"sta1"}
        waits.append([value for quantity, _, value in found if quantity == "first_wait_ms"])
    alone, behind = waits
    assert len(alone) == len(behind) == 6
    assert 0 < min(alone) <= max(alone) < 2 and fmean(behind) > 10 * fmean(alone)


def test_pipes_give_each_station_a_delay_of_its_own_that_changes() -> None:
    """From 0 to twice the mean, which is half of the wire's to one and a half of it; delayed ACKs add 40 ms."""
    told = {"stations": 3, "seed": 1, "delay_ms": 100, "manager": "ns3::ConstantRateWifiManager"}
    session = {"start": 0.5, "first": 1, "stop": 60, "period": 1, "length": 1000, "up": 1}
    sent = [{"station": number, **session} for number in (1, 2, 3)]
    for pipes, least, most in (({}, 99, 150), ({"pipes_every": 1}, 0, 350)):
        found = kept({**told, **pipes}, sent, 61)
        times = [[1e3 * v for q, s, v in found if (q, s) == ("session_s", f"sta{n}")] for n in (1, 2, 3)]
        assert all(len(own) >= 58 for own in times)
        assert least < min(map(min, times)) and max(map(max, times)) < most
        if pipes:
            assert fmean(times[0]) < fmean(times[2]) and max(times[0]) > 2 * min(times[0])


def test_paper_004_in_short_uploads_at_54_mbps_carry_what_its_target_asks_for() -> None:
    """23 Mb/s, "nearly equal to the maximum TCP throughput" (section IV.A.1), and nobody is left out so soon."""
    qos, _ = simulate("cell-buffers", "qos", 5.0, {"buffer": 37})
    assert qos["total"] == pytest.approx(23, rel=0.1) and qos["unlucky"] == 0
    assert qos["first"] + qos["others"] == pytest.approx(qos["total"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stations": 0}, "a cell has 1 to 200 stations"),
        ({"stations": 201}, "a cell has 1 to 200 stations"),
        ({"stations": 1, "colour": "red"}, "a cell knows no 'colour'"),
        ({"stations": 1, "ap_queue": "many"}, "ap_queue=many is no number"),
        (
            {"stations": 1, "standard": "802.11z"},
            "standard=802.11z is none of a cell: give 802.11a, 802.11b or 802.11g",
        ),
        (
            {"stations": 2, "beyond": 1},
            "stations beyond need a second access point, apart from the first, and one station at that",
        ),
        (
            {"stations": 2, "beyond": 1, "apart": 20},
            "a terminal that walks leaves, has no link for some time, and then arrives: give leaves, outage, arrives",
        ),
    ],
)
def test_a_cell_that_cannot_be_is_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    program = (
        "import json, sys\nfrom accesspoint.topologies.ns3.cell import Cell\n"
        "from accesspoint.topologies.requirements import LabError\n"
        "try:\n    Cell(**json.loads(sys.argv[1]))\nexcept LabError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", program, json.dumps(settings)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert said.returncode == 0 and said.stdout.strip() == f"the cell cannot be: {message}"


def test_a_simulation_has_its_own_clock_only() -> None:
    made = plan.make(registry.find("cell-terminals"), quick=True)
    assert made.clock == SIMULATED
    with pytest.raises(LabError, match="'cell-terminals' is a simulation"):
        plan.require(plan.make(registry.find("cell-terminals"), quick=True, clock=REAL))
    with pytest.raises(LabError, match="has no simulation"):
        plan.require(plan.make(registry.find("batcp"), quick=True, clock=SIMULATED))


def test_the_middlewares_law_is_fitted_to_the_plain_throughput_that_is_published() -> None:
    summary = json.loads((ROOT / "docs/results/summaries/cell-terminals.json").read_text())
    totals: dict[int, list[float]] = {}
    for cell in summary["cells"]:
        if cell["measure"] == "total" and cell["arm"] == "plain" and cell["point"]["terminals"] in radio.FITTED:
            totals.setdefault(cell["point"]["terminals"], []).extend(cell["values"].values())
    fitted = radio.exponent({terminals: sum(values) / len(values) for terminals, values in totals.items()})
    most = max(value for values in totals.values() for value in values)
    assert (round(most, 1), round(fitted, 2)) == (radio.BANDWIDTH, radio.EXPONENT)
