# SPDX-License-Identifier: Apache-2.0
"""Connections drawn from a seed: the drawing, both ends of a connection over loopback, and the verdicts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accesspoint.experiments.catalogue.connections import host, play, random_scenarios, verdict
from accesspoint.experiments.catalogue.connections.scenario import (
    AGES,
    BUFFERS,
    CLOSES,
    CONTROLS,
    DIRECTIONS,
    ECN,
    FAMILIES,
    LINKS,
    MAX_DOWN,
    MAX_RTT,
    MIN_DOWN,
    MIN_RTT,
    MIN_SHORT,
    PRIORS,
    SEED,
    TURNS,
    Scenario,
    link,
    of_link,
    scenario,
)
from accesspoint.experiments.experiment import Pair
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.verdict import compare, pages
from accesspoint.topologies.namespaces.namespace import Namespace
from accesspoint.topologies.requirements import ROOT

FIRST = [scenario(SEED, number) for number in range(300)]
VALUES: dict[str, set[Any]] = {
    "link": set(range(1, LINKS + 1)), "family": set(FAMILIES), "cc": set(CONTROLS), "mptcp": {False, True},
    "timestamps": {False, True}, "sack": {False, True}, "ecn": set(ECN), "quick_acks": {False, True},
    "keepalive": {False, True}, "close": set(CLOSES), "age": {None, *AGES}, "prior": set(PRIORS),
    "direction": set(DIRECTIONS), "buffer": set(BUFFERS), "first": {"client", "server"}, "turns": set(TURNS),
}  # fmt: skip


def test_scenario_same_seed_and_number_is_the_same() -> None:
    assert [scenario(SEED, number) for number in range(300)] == FIRST
    assert [scenario(SEED + 1, number) for number in range(300)] != FIRST
    assert link(SEED, 1) == link(SEED, 1) != link(SEED + 1, 1)


@pytest.mark.parametrize("parameter", VALUES)
def test_scenario_first_300_have_every_value(parameter: str) -> None:
    assert {getattr(one, parameter) for one in FIRST} == VALUES[parameter]


def test_scenario_sizes_fit_direction_link_and_window() -> None:
    for one in FIRST:
        profile = link(SEED, one.link)
        assert (one.down > 0) == (one.direction != "up") and (one.up > 0) == (one.direction != "down")
        for size, rate in ((one.down, profile.down), (one.up, profile.up)):
            window = one.buffer / profile.rtt if one.buffer else float("inf")
            assert size == 0 or MIN_SHORT <= size <= max(60_000, min(rate / 8, window))
    assert any(one.down < 10_000 for one in FIRST if one.down) and any(one.down > 5_000_000 for one in FIRST)


def test_links_reach_both_ends_of_every_range() -> None:
    links = [link(SEED, number) for number in range(1, LINKS + 1)]
    assert min(one.down for one in links) == MIN_DOWN and max(one.down for one in links) == MAX_DOWN
    assert min(one.rtt for one in links) == MIN_RTT and max(one.rtt for one in links) == MAX_RTT
    assert all(one.up <= one.down / 2 for one in links)


def test_of_link_few_scenarios_are_among_all() -> None:
    assert of_link(SEED, 3, 25)[:6] == of_link(SEED, 3, 6) and of_link(SEED, 3, 25)[19:] == of_link(SEED, 3, 6, 19)
    together = [one.number for place in range(1, LINKS + 1) for one in of_link(SEED, place, random_scenarios.PER_LINK)]
    assert sorted(together) == list(range(LINKS * random_scenarios.PER_LINK)) and len(together) == 300


def test_describe_names_what_is_unusual() -> None:
    one = replace(FIRST[0], age=0.05, buffer=64 << 10, close="half", sack=False, direction="both", first="server")
    assert all(
        word in one.describe() for word in ("reused after 0.05 s", "64 KiB", "half-close", "no SACK", "both ways")
    )


# Both ends over loopback, in a namespace of their own: they change what holds for all of its connections.

SHORT = replace(
    FIRST[0], family=4, cc="cubic", mptcp=False, age=None, prior=0.1, direction="down", down=20_000, up=0, buffer=None,
    keepalive=False, close="fin", first="client", turns=1, ecn="on",
)  # fmt: skip


class Loopback:
    """A client and a server in one namespace."""

    name = "loopback"

    def __init__(self, namespace: Namespace) -> None:
        self.popen = namespace.popen
        self.client, self.server = (play.Agent(self) for _ in range(2))
        for agent in (self.client, self.server):
            agent.ask("counts")

    def play(self, one: Scenario, port: int) -> dict[str, Any]:
        """Plays a scenario, with the earlier connection of its port where it has one."""
        address = "127.0.0.1" if one.family == 4 else "::1"
        words: dict[str, Any] = {"address": address, "port": port, "scenario": one.as_dict()}
        words["source"] = 0 if one.age is None else 20_000
        self.server.ask("listen", port=port, scenario=one.as_dict())
        ended = 0.0 if one.age is None else self.client.ask("prior", **words)["ended"]
        done = self.client.ask("connect", not_before=ended + (one.age or 0.0), **words)
        return done | {"served": self.server.ask("served", port=port)["outcome"]}


@contextmanager
def loopback() -> Iterator[Loopback]:
    with Namespace() as namespace:
        yield Loopback(namespace)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace")
def test_host_plays_every_kind_of_connection() -> None:
    kinds = [
        SHORT,
        replace(SHORT, first="server", family=6, close="half"),
        replace(SHORT, direction="up", down=0, up=30_000, close="rst", quick_acks=True),
        replace(SHORT, direction="both", up=500_000, down=500_000, buffer=64 << 10, sack=False, timestamps=False),
        replace(SHORT, age=0.05, first="server"),
        replace(SHORT, age=0.05, direction="up", down=0, up=30_000),
        replace(SHORT, keepalive=True, turns=0),
        replace(SHORT, mptcp=True, cc="reno"),
    ]
    with loopback() as both:
        for place, one in enumerate(kinds):
            done = both.play(one, 6000 + place)
            assert done["outcome"] == done["served"] == "done", (one, done)
            assert 0 < done["connect"] <= done["first"] <= done["last"] < 3.0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace")
def test_host_nobody_listening_is_an_outcome() -> None:
    with loopback() as both:
        words: dict[str, Any] = {"address": "127.0.0.1", "port": 6999, "source": 0, "scenario": SHORT.as_dict()}
        done = both.client.ask("connect", **words)
        assert "refused" in done["outcome"] and "last" not in done


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace")
def test_host_streams_both_ways() -> None:
    with loopback() as both:
        words: dict[str, Any] = {"port": 5800, "seconds": 1.0, "buffer": 64 << 10}
        both.server.ask("stream", **words)
        down = both.client.ask("stream", address="127.0.0.1", **words)
        up = both.server.ask("served", port=5800)
        for found in (down, up):
            assert len(found["rates"]) >= 3 and all(rate > 1 for _, rate in found["rates"])


def test_host_unknown_command_is_answered() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "accesspoint.experiments.catalogue.connections.host"],
        input='{"do": "nothing"}\n', text=True, capture_output=True, cwd=ROOT, check=True,
    )  # fmt: skip
    assert "do_nothing" in json.loads(done.stdout)["error"]


# Verdicts.


def run(arm: str, *played: dict[str, Any]) -> Raw:
    """A run of an arm: a scenario each, by its source and its quantities."""
    samples = [
        Sample(1.0, quantity, float(value), source=one["source"])
        for one in played
        for quantity, value in one.items()
        if quantity != "source"
    ]
    return Raw(samples, 10.0, 1.0, {"link": "1"}, arm)


def one(source: str = "000 alone", **values: float) -> dict[str, Any]:
    return {"source": source, "first_ms": 10.0, **values}


def listed(title: str, *runs: Raw) -> list[str]:
    """Scenarios in a table of the page."""
    grid = next(grid for grid in verdict.judge(runs).grids if grid.title == title)
    return [row[0] for row in grid.rows]


FAIR = "More than a fair share behind the FIFO"
ONCE = "Too slow once, but not in the median of the repeats"


@pytest.mark.parametrize(("ours", "found"), [(129.9, []), (130.1, ["000 alone"])])
def test_judge_above_the_limit_is_a_defect(ours: float, found: list[str]) -> None:
    runs = run("fifo", one(last_ms=100.0)), run("ours", one(last_ms=ours))
    assert listed("Defects", *runs) == found
    words = [each["word"] for each in verdict.judge(runs).verdicts]
    assert words == ["fail" if found else "pass", "pass"]


def test_judge_late_first_byte_is_a_defect() -> None:
    runs = run("fifo", one(last_ms=500.0)), run("ours", one(first_ms=40.0, last_ms=500.0))
    assert listed("Defects", *runs) == ["000 alone"]


def test_judge_repeats_median_decides_and_the_bad_run_is_listed() -> None:
    fifo = [run("fifo", one(last_ms=100.0)) for _ in range(3)]
    ours = [run("ours", one(last_ms=value)) for value in (6012.0, 101.0, 99.0)]
    assert listed("Defects", *fifo, *ours) == [] and listed(ONCE, *fifo, *ours) == ["000 alone"]
    grid = next(grid for grid in verdict.judge([*fifo, *ours]).grids if grid.title == ONCE)
    assert "6012, 101, 99" in grid.rows[0]


def test_judge_stalled_scenario_counts_as_the_limit_of_time() -> None:
    runs = run("fifo", one(last_ms=100.0)), run("ours", one())
    assert listed("Defects", *runs) == ["000 alone"]
    assert [each["text"] for each in verdict.judge(runs).verdicts][1] == (
        "no scenario stalls: 1 do, and 0 behind the FIFO"
    )
    assert verdict.judge(runs).pairs["alone"] == [Pair(100.0, host.LIMIT * 1e3, True)]


@pytest.mark.parametrize(
    ("up", "ours", "found"),
    [
        (900.0, 200.0, FAIR),  # nine tenths of the uplink for 100 ms: half of it takes 180
        (900.0, 219.0, "Defects"),
        (500.0, 131.0, "Defects"),  # it had half
        (0.0, 131.0, "Defects"),  # it uploads nothing
    ],
)
def test_judge_more_than_a_fair_share_is_excused_as_far_as_it_explains(up: float, ours: float, found: str) -> None:
    key = "000 loaded"
    runs = (
        run("fifo", one(key, last_ms=100.0, up_bytes=up, other_bytes=1000.0 - up)),
        run("ours", one(key, last_ms=ours, up_bytes=up, other_bytes=up)),
    )
    assert listed(found, *runs) == [key]
    assert listed("Defects" if found == FAIR else FAIR, *runs) == []


def test_judge_late_first_byte_is_excused_by_no_share() -> None:
    key = "000 loaded"
    runs = (
        run("fifo", one(key, last_ms=100.0, up_bytes=900.0, other_bytes=100.0)),
        run("ours", one(key, first_ms=99.0, last_ms=180.0, up_bytes=900.0, other_bytes=900.0)),
    )
    assert listed("Defects", *runs) == [key, key]


def test_judge_only_one_arm_is_no_comparison() -> None:
    assert verdict.judge([run("ours", one(last_ms=1.0))]) == verdict.Compared()


def test_page_has_every_table() -> None:
    compared = verdict.judge([run("fifo", one(last_ms=100.0)), run("ours", one(last_ms=900.0))])
    lines = [line for grid in compared.grids for line in pages._grid(vars(grid))]
    assert "## Defects" in lines and any(line.startswith("| 000 alone | link 1: ") for line in lines)


# Repeats.


def keep(runs: Path, name: str, figures: dict[str, Any], problems: tuple[str, ...] = ()) -> None:
    (runs / name).mkdir(parents=True)
    (runs / name / play.FILE).write_text(json.dumps(figures))
    (runs / name / "run.json").write_text(json.dumps({"self_check": {"problems": problems}}))


def test_to_repeat_returns_scenarios_that_were_too_slow_in_the_first_repeat(tmp_path: Path) -> None:
    here = tmp_path / ".part-ours_link=1_2"
    assert play.to_repeat(here, {"link": "1"}, 1) is None
    keep(tmp_path, "fifo_link=1_1", {"000 alone": {"first": 9, "last": 100}, "012 alone": {"first": 9, "last": 100}})
    assert play.to_repeat(here, {"link": "1"}, 2) is None, "the other arm has no such run: all is to be played"
    keep(tmp_path, "ours_link=1_1", {}, ("timers were late",))
    assert play.to_repeat(here, {"link": "1"}, 2) is None
    ours = {"000 alone": {"first": 9, "last": 131}, "012 alone": {"first": 9, "last": 129}}
    keep(tmp_path, "ours_link=1_1+again", ours)
    assert play.to_repeat(here, {"link": "1"}, 2) == {"000 alone"}
    assert play.to_repeat(here, {"link": "2"}, 2) is None
    asked = play.Scenarios(1, 2)
    assert not asked.needless(here, {"link": "1"}, 2) and not asked.needless(here, {"link": "2"}, 2)
    keep(tmp_path, "fifo_link=3_1", ours)
    keep(tmp_path, "ours_link=3_1", ours)
    assert asked.needless(here, {"link": "3"}, 2) and not asked.needless(here, {"link": "3"}, 1)


def test_scene_link_by_name() -> None:
    ours = random_scenarios.EXPERIMENT.arm("ours")
    full, few, both = (
        random_scenarios.EXPERIMENT.scene_of({"link": name}, ours) for name in ("6", "few-6", "two-way-50")
    )
    assert full.profile == few.profile == link(SEED, 6)  # type: ignore[attr-defined]
    assert full.seconds > few.seconds and both.profile.name == "50/5"  # type: ignore[attr-defined]


def test_stream_measures_read_their_own_part_of_the_run() -> None:
    samples = [Sample(t + 0.5, "rate_mbps", 3.0, 1.0, "down-64k") for t in range(12)]
    samples += [Sample(t + 14.5, "rate_mbps", 5.0, 1.0, "down-default") for t in range(12)]
    data = Raw(samples, random_scenarios.STREAMS.seconds)
    assert random_scenarios.stream("down-64k")(data) == pytest.approx(3.0)
    assert random_scenarios.stream("down-default")(data) == pytest.approx(5.0)
    assert random_scenarios.stream("up-64k")(data) is None


def test_page_points_without_a_common_measure_have_tables_of_their_own() -> None:
    def cell(measure: str, link: str) -> dict[str, Any]:
        return {"measure": measure, "arm": "ours", "point": {"link": link}, "median": 1.0, "values": {}}

    points = [{"link": name} for name in ("1", "two-way-14", "2", "3")]
    cells = [cell("first_alone", "1"), cell("first_alone", "2"), cell("last_alone", "2"), cell("up_64k", "two-way-14")]
    groups = compare.apart(random_scenarios.EXPERIMENT, {"points": points, "cells": cells})
    assert [[point["link"] for point in own] for _, own in groups] == [["1", "2", "3"], ["two-way-14"]]
    assert [measure.name for measure in groups[1][0]] == ["up_64k"]
    assert {measure.name for measure in groups[0][0]} == {one.name for one in random_scenarios.EXPERIMENT.measures} - {
        "up_64k"
    }
