# SPDX-License-Identifier: Apache-2.0
"""The tournament: drawing scenarios, digesting runs, standings, and other seeds with results of their own."""

import io
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from scipy.stats import binomtest, kstest

from accesspoint.experiments.__main__ import arguments
from accesspoint.experiments.catalogue.peers import drawing, standing, tournament
from accesspoint.experiments.catalogue.peers.drawing import KINDS, QUIC, TUNNELLED, Scenario, scenario
from accesspoint.experiments.catalogue.peers.tournament import CAKES, EXPERIMENT, Digest, drawn
from accesspoint.experiments.execution import commands
from accesspoint.experiments.experiment import Compared, Point
from accesspoint.experiments.measure.intervals import of_part
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.render import site
from accesspoint.experiments.runs import plan, registry, store
from accesspoint.experiments.runs.store import Store
from accesspoint.experiments.scenes.datagrams import Datagrams
from accesspoint.experiments.scenes.scene import AccessPoint, Flow, Probe
from accesspoint.experiments.tests.finished import CHECK, MACHINE
from accesspoint.experiments.verdict import compare, pages, summary
from accesspoint.topologies.links.profiles import ProfileError

NUMBERS = range(1, tournament.SCENARIOS + 1)
ALL = [scenario(1, number) for number in NUMBERS]
OTHERS = [scenario(seed, number) for seed in (2, 3, 4_000_000_000) for number in NUMBERS]
ARMS = [arm.name for arm in CAKES]


def test_scenario_follows_from_seed_and_number_alone() -> None:
    assert [scenario(1, number) for number in reversed(NUMBERS)] == ALL[::-1]
    assert len({replace(one, seed=0, number=0) for one in (*ALL, *OTHERS)}) == len(ALL) + len(OTHERS)


def test_scenario_keeps_its_bounds() -> None:
    for one in (*ALL, *OTHERS):
        assert 1 <= one.stations <= 12 and 1 <= one.count("down") + one.count("up") <= 64
        assert 2e6 <= one.down <= 200e6 and 1 <= one.down / one.up <= 30 and 2 <= one.rtt <= 200
        everyone = set(range(1, one.stations + 1))
        assert {flows.station for flows in one.flows} | {*one.calls} | {*one.pings} <= everyone and one.pings
        assert len({*one.pings}) == len(one.pings) and len({*one.calls}) == len(one.calls) <= drawing.MAX_CALLS
        assert all(flows.kind in KINDS and flows.count >= 1 for flows in one.flows)
        assert one.ecn or all(flows.kind != "dctcp" for flows in one.flows), "it would be Reno"
        tunnelled = [flows for flows in one.flows if flows.kind == TUNNELLED]
        assert bool(tunnelled) == bool(one.tunnel) and all(flows.station == 1 for flows in tunnelled)
        assert sum(flows.count for flows in one.flows if flows.kind == QUIC) <= drawing.MAX_QUIC
        pings = len(one.pings) * drawing.PING_RATE + len(one.calls) * drawing.calls.RATE
        assert pings <= 0.3 * one.up or (len(one.pings) == 1 and not one.calls)
        windows = max(one.count("down") / one.down, one.count("up") / one.up) * 10 * 8 * 1514
        assert one.settled >= 20 + 2 * windows and one.seconds - one.settled >= max(20, 1000 * 8 * 1514 / one.up)
        assert one.profile.shared and one.profile.up_limit * 8 * 1514 >= one.up * one.rtt / 1e3


@pytest.mark.parametrize("few", [ALL, ALL[: tournament.QUICK_SCENARIOS]], ids=["full", "quick"])
def test_every_kind_of_traffic_is_drawn_both_ways(few: list[Scenario]) -> None:
    assert {(flows.kind, flows.way) for one in few for flows in one.flows} == {
        (kind, way) for kind in KINDS for way in ("down", "up")
    }
    assert {one.ecn for one in few} == {True, False} and {one.tunnel for one in few} == {"", "wireguard", "vxlan"}
    assert any(one.calls for one in few) and any(len(one.pings) < one.stations for one in few)


def test_rates_ratios_and_round_trips_are_log_uniform() -> None:
    for values, least, most in (
        ([one.down for one in ALL], 2e6, 200e6),
        ([one.down / one.up for one in ALL], 1, 30),
        ([one.rtt for one in ALL], 2, 200),
    ):
        places = [math.log(value / least) / math.log(most / least) for value in values]
        assert kstest(places, "uniform").pvalue > 0.01
    assert set(Counter(one.stations for one in ALL)) == set(range(1, 13))


def test_scene_has_what_was_drawn() -> None:
    for point in EXPERIMENT.points():
        one, scene = drawn(point), EXPERIMENT.scene(point, EXPERIMENT.arm("ours"))  # type: ignore[operator]
        assert isinstance(scene, AccessPoint)
        flows = [part for part in scene.traffic if isinstance(part, Flow)]
        datagrams = [part for part in scene.traffic if isinstance(part, Datagrams)]
        assert sum(flow.streams for flow in flows) + len(datagrams) == one.count("down") + one.count("up")
        assert len({part.port for part in datagrams}) == len(datagrams)
        names = {*(part.name for part in flows), *(part.name for part in datagrams)}
        assert len(names) == len(flows) + len(datagrams)
        assert sum(isinstance(part, Probe) for part in scene.traffic) == len(one.pings)
        assert (scene.stations, scene.seconds, scene.profile) == (one.stations, one.seconds, one.profile)
        assert {EXPERIMENT.arm_at(arm.name, point).ecn for arm in EXPERIMENT.arms} == {one.ecn}


DRAWN = replace(
    ALL[0], stations=3, rtt=40.0, pings=(1, 3),
    flows=tuple(drawing.Flows(n, way, "cubic", 2) for n, way in ((1, "down"), (2, "down"), (1, "up"))),  # type: ignore[arg-type]
)  # fmt: skip


def raw(rate: float = 5.0) -> Raw:
    """All samples of a run, in whose start-up all was otherwise. Station 2's downloads never came up."""
    samples = [Sample(0.0, "empty_ping_ms", value) for value in (41.0, 42.0, 43.0)]
    for t in range(int(DRAWN.seconds)):
        early = t < DRAWN.settled
        samples += [Sample(t + 0.5, "rate_mbps", 99.0 if early else rate, 1.0, f"down sta1 {n}") for n in ("a", "b")]
        samples += [Sample(t + 0.5, "rate_mbps", 99.0 if early else 1.0, 1.0, "up sta1 cubic")]
        samples += [Sample(t + 0.5, "ping_ms", 999.0 if early else 50.0 + n, source=f"sta{n}") for n in (1, 3)]
    return Raw(samples, DRAWN.seconds)


def test_digest_has_a_figure_of_each_station_past_the_start_up() -> None:
    found = {(s.quantity, s.source): s.value for s in Digest(DRAWN).of(raw())}
    assert found == {
        ("down_mbps", "sta1"): 10.0, ("down_mbps", "sta2"): 0.0, ("up_mbps", "sta1"): 1.0,
        ("ping_ms", "sta1"): 51.0, ("ping_ms", "sta3"): 53.0, ("ping_p99_ms", "sta1"): 51.0,
        ("ping_p99_ms", "sta3"): 53.0, ("empty_ping_ms", ""): 42.0,
    }  # fmt: skip


def test_digest_counts_unanswered_pings_as_the_whole_time() -> None:
    silent = replace(raw(), samples=[s for s in raw().samples if s.source != "sta3"])
    found = {(s.quantity, s.source): s.value for s in Digest(DRAWN).of(silent)}
    assert found["ping_ms", "sta3"] == 1e3 * (DRAWN.seconds - DRAWN.settled)


def test_measures_are_of_the_worst_off_station(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tournament, "drawn", lambda point: DRAWN)
    digest = replace(raw(), samples=Digest(DRAWN).of(raw()), point={"seed": 1, "scenario": 1})
    found = {measure.name: measure.of(digest) for measure in EXPERIMENT.measures}
    assert (found["download"], found["upload"]) == (0.0, 1.0)
    # 42 ms on this run's empty links, of which the drawn ones have 40.
    assert (found["ping_mean"], found["ping_p99"], found["ping_added"]) == (51.0, 51.0, 10.0)


@pytest.mark.parametrize(
    ("ours", "cake", "more", "less"),
    [
        (1.03, 1.0, "ahead", "behind"), (1.019, 1.0, "level", "level"), (0.981, 1.0, "level", "level"),
        (0.97, 1.0, "behind", "ahead"), (0.0, 0.0, "level", "level"), (0.0, 1.0, "behind", "ahead"),
        (1.0, 0.0, "ahead", "behind"),
    ],
)  # fmt: skip
def test_standing_is_level_within_two_percent(ours: float, cake: float, more: str, less: str) -> None:
    assert standing.Judged("", "", "").word(ours, cake) == more
    assert standing.Judged("", "", "", less=True).word(ours, cake) == less


def tallied(*scenarios: Mapping[str, tuple[float | None, ...]]) -> Compared:
    """The tally of scenarios. measure -> figures of cake-hosts, cake-path and this access point."""
    arms = (*ARMS, "ours")
    points: list[Point] = [{"seed": 1, "scenario": number} for number in range(1, len(scenarios) + 1)]

    def medians(measure: str, arm: str, **point: object) -> float | None:
        return scenarios[int(str(point["scenario"])) - 1].get(measure, (None,) * 3)[arms.index(arm)]

    return standing.tally(medians, points, ARMS, lambda point: f"drawn {point['scenario']}")


def test_tally_compares_with_the_better_set_up_of_each_measure() -> None:
    better = {"download": (8.0, 9.0, 10.0), "ping_mean": (20.0, 30.0, 15.0), "ping_p99": (30.0, 40.0, 20.0)}
    found = tallied(
        better | {"upload": (1.0, 1.0, 1.01)},
        better | {"download": (9.0, 12.0, 10.0), "ping_mean": (20.0, 12.0, 15.0)},
        better | {"ping_p99": (None, 40.0, 20.0), "ping_mean": (None, 1.0, 1.0), "download": (None, 9.0, 1.0)},
        {},
    )
    counts, behind = found.grids
    assert [row[:5] for row in counts.rows] == [
        ("download", "2", "1", "0", "1"), ("upload", "1", "0", "1", "0"), ("ping mean", "2", "1", "0", "1"),
        ("ping p99", "2", "2", "0", "0"),
    ]  # fmt: skip
    assert "In 1 of 2 scenarios this access point is behind in some measure, in 1 it is ahead in some" in counts.text
    assert behind.rows == (
        ("1 / 2: drawn 2", "download (0.83), ping mean (1.25)", "10 / 12", "-", "15.0 / 12.0", "20.0 / 30.0"),
    )
    assert "2 of 4 scenarios have no fit run behind some arm" in behind.text
    assert [(pair.first, pair.second) for pair in found.pairs["download"]] == [(9.0, 10.0), (12.0, 10.0)]
    assert [verdict["word"] for verdict in found.verdicts] == ["inconclusive"] * 4


def test_tally_passes_where_more_are_ahead_than_by_chance() -> None:
    ahead, behind = ({"ping_p99": (2.0, 2.0, value)} for value in (1.0, 3.0))
    words = {number: tallied(*[ahead] * number, *[behind] * 10).verdicts[-1]["word"] for number in (0, 20, 40)}
    assert words == {0: "fail", 20: "inconclusive", 40: "pass"}
    assert tallied({}) == Compared() == standing.tally(lambda *_, **__: None, [], ARMS, str)


@pytest.mark.parametrize(("count", "n"), [(0, 10), (3, 10), (10, 10), (170, 300)])
def test_interval_of_a_part_is_exact(count: int, n: int) -> None:
    found, exact = of_part(count, n), binomtest(count, n).proportion_ci(0.95, method="exact")
    assert found and (found.low, found.high) == pytest.approx((exact.low, exact.high))
    assert of_part(0, 0) is None


def test_seed_names_an_experiment_with_other_scenarios() -> None:
    name = registry.seeded("tournament", 7)
    assert name == "tournament-seed-7" and registry.seeded(name, 1) == "tournament"
    experiment = registry.find(name)
    assert (experiment.name, experiment.seed, len([*experiment.points()])) == (name, 7, tournament.SCENARIOS)
    assert drawn(next(experiment.points())) == scenario(7, 1) != ALL[0]
    assert registry.file(name) == registry.file("tournament")
    first, other = (plan.make(registry.find(each), True).orders()[0] for each in ("tournament", name))
    assert first.seed != other.seed and first.id != other.id and other.declared().seed == 7


@pytest.mark.parametrize("name", ["hosts-seed-7", "tournament-seed-1", "tournament-seed-07", "nothing-seed-7"])
def test_name_with_a_seed_that_is_none_is_unknown(name: str) -> None:
    with pytest.raises(ProfileError, match=f"experiment '{name}' is unknown"):
        registry.find(name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hosts", "--seed", "7"], "--seed is for tournament: 'hosts' draws nothing"),
        (["tournament", "quic", "--seed", "7"], "--seed is for tournament: 'quic' draws nothing"),
        (["tournament", "--seed", "-1"], "'-1' is not a whole number"),
    ],
)
def test_seed_is_refused_where_nothing_is_drawn(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=message):
        commands.main(arguments(["run", *words, "--out", str(tmp_path)]), Console(file=io.StringIO()))
    assert not [*tmp_path.iterdir()]


def finished(out: Path, name: str) -> Store:
    """Results of three scenarios behind all arms; this access point is behind in the second."""
    made = plan.make(registry.find(name), quick=True)
    kept = Store(out, name, quick=True)
    kept.begin(made)
    (kept.directory / "machine.json").write_text(json.dumps(MACHINE))
    for order in made.orders():
        one, ours = drawn(order.point), order.arm == "ours"
        if one.number > 3:
            continue
        worse = 0.5 if ours and one.number == 2 else 1.5 if ours else 1.0
        samples = [Sample(30.0, "empty_ping_ms", one.rtt)]
        samples += [Sample(30.0, f"{way}_mbps", worse, 20.0, "sta1") for way in ("down", "up")]
        samples += [Sample(30.0, quantity, one.rtt + 9, 20.0, "sta1") for quantity in ("ping_ms", "ping_p99_ms")]
        part = kept.part(order)
        store.write_samples(samples, part / "samples.parquet")
        facts = {"seconds": order.seconds, "scale": 1.0, "started": 1_700_000_000.0, "clock": "virtual"}
        facts |= {"claims": "", "versions": {"kernel": "7.2", "commit": "a"}, "self_check": CHECK}
        (part / "run.json").write_text(json.dumps(facts))
        kept.keep(order, part)
    summary.write(made, kept)
    return kept


def test_results_of_another_seed_have_a_folder_and_a_page_of_their_own(tmp_path: Path) -> None:
    kept = [finished(tmp_path, name) for name in ("tournament", "tournament-seed-7")]
    assert [each.directory.parent.name for each in kept] == ["tournament", "tournament-seed-7"]
    assert registry.with_seeds(tmp_path)[-1] == "tournament-seed-7"
    index = site.build(kept, tmp_path).read_text()
    assert "tournament-seed-7/quick/index.html" in index and "tournament/quick/index.html" in index
    assert kept[1].summary()["command"].startswith("make experiment NAME=tournament SEED=7 QUICK=1 ")


def test_page_lists_the_scenarios_that_are_behind_and_has_no_row_for_each(tmp_path: Path) -> None:
    kept = finished(tmp_path, "tournament-seed-7")
    site.build([kept], tmp_path)
    page = (kept.directory / "index.html").read_text()
    assert "7 / 2: " in page and "7 / 1: " not in page and "Paper, plain and ours" not in page
    assert 'src="ratios.svg"' in page and "<svg" in (kept.directory / "ratios.svg").read_text()[:1000]
    text = pages.experiment_page(kept.summary(), tmp_path)
    assert "one repeat at each of 40 points" in text and "| 7 / 2: " in text and "**cake-hosts**" not in text
    assert "37 of 40 scenarios have no fit run" in text
    shown = io.StringIO()
    compare.show(kept.summary(), Console(file=shown, width=200))
    assert "download of the worst-off station: ahead in 2, level in 0, behind in 1 of 3" in shown.getvalue()
