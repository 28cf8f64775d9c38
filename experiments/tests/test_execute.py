# SPDX-License-Identifier: Apache-2.0
"""Runs that are made at the same time, and the duration of all quick forms: the real order of runs, against a simulated
clock."""

import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from accesspoint.experiments.__main__ import arguments
from accesspoint.experiments.execution import commands
from accesspoint.experiments.execution.execute import Execution
from accesspoint.experiments.execution.pool import LocalPool, Outcome, reason, side_by_side
from accesspoint.experiments.runs import plan, registry
from accesspoint.experiments.runs.plan import Needs, Order
from accesspoint.experiments.runs.store import LIVE, Run, Store, second
from accesspoint.topologies.kernels.kernel import REAL, VIRTUAL
from accesspoint.topologies.links.profiles import ProfileError
from accesspoint.topologies.requirements import LabError

ROOM = {"problems": [], "cpu_busy": 0.5}
LATE = {"problems": ["timers were late"], "cpu_busy": 0.5}


class Clock(LocalPool):
    """A pool in which every run takes its planned time, and those of `unfit` are unfit at their first attempt."""

    def __init__(self, places: int, unfit: frozenset[str] = frozenset()) -> None:
        super().__init__(places)
        self._unfit = unfit
        self.now = 0.0
        self.under_way: dict[str, tuple[float, Order]] = {}
        self.begun: list[str] = []
        self.solo = self.most = 0
        self.load = 0.0

    def start(self, order: Order, store: Store) -> None:
        self.begun.append(order.key)
        self.under_way[order.key] = (self.now + plan.needs(order).seconds, order)
        beside = [plan.needs(each) for _, each in self.under_way.values()]
        self.solo = max(self.solo, sum(each.solo for each in beside))
        self.most = max(self.most, len(beside))
        self.load = max(self.load, sum(each.load for each in beside))

    def finished(self) -> list[Outcome]:
        self.now = min(end for end, _ in self.under_way.values())
        done = [order for end, order in self.under_way.values() if end <= self.now]
        for order in done:
            del self.under_way[order.key]
        return [Outcome(order, Run(order, Path(), {"self_check": self._check(order)})) for order in done]

    def _check(self, order: Order) -> dict[str, object]:
        return LATE if order.attempt == 1 and order.key in self._unfit else ROOM

    def running(self) -> dict[str, float]:
        return dict.fromkeys(self.under_way, 0.0)

    def stop(self) -> None:
        assert not self.under_way


def quick(name: str, clock: str | None = None) -> plan.Plan:
    return plan.make(registry.find(name), quick=True, clock=clock)


def made(names: list[str], pool: Clock, out: Path, clock: str | None = None) -> Execution:
    plans = [quick(name, clock) for name in names]
    execution = Execution([(each, Store(out, each.experiment, True)) for each in plans], pool, Console(quiet=True))
    execution.run()
    return execution


@pytest.mark.parametrize(("papers", "clock", "minutes"), [(True, VIRTUAL, 250), (False, VIRTUAL, 300)])
def test_quick_forms_take_no_longer_than_that_on_two_cores(
    papers: bool, clock: str, minutes: float, tmp_path: Path
) -> None:
    """The papers' experiments, and the comparisons with peers. In virtual time each run has a core of its own, and the
    papers' take half of what is planned."""
    places = side_by_side(of=2)
    pool = Clock(places)
    declared = {name: registry.find(name) for name in registry.together()}
    names = [name for name, one in declared.items() if one.clock == clock and (one.asked_by == "the paper") == papers]
    tally = made(names, pool, tmp_path).tally
    orders = [order for name in names for order in quick(name).orders()]
    assert sorted(pool.begun) == sorted(order.key for order in orders) and tally.made == len(orders)
    assert pool.now / 60 < minutes
    # The time that `list` gives; others may have ended during the last run.
    assert pool.now < 1.05 * plan.seconds(orders, places) + max(plan.needs(order).seconds for order in orders)
    assert pool.load <= places and tally.side_by_side == pool.most


def test_user_mode_kernels_in_real_time_come_one_at_a_time(tmp_path: Path) -> None:
    pool = Clock(side_by_side(of=2))
    made(["batcp", "rrul", "rrul-be"], pool, tmp_path, clock=REAL)
    assert pool.solo == 1 and pool.most > 1


def test_one_at_a_time_is_one_at_a_time(tmp_path: Path) -> None:
    pool = Clock(1)
    made(["batcp", "rrul"], pool, tmp_path, clock=REAL)
    orders = [order for name in ("batcp", "rrul") for order in quick(name, REAL).orders()]
    assert pool.most == 1 and pool.now == pytest.approx(plan.seconds(orders))


def test_an_unfit_run_is_made_once_more(tmp_path: Path) -> None:
    pool = Clock(4, frozenset({"ncr-lte/ours_2"}))
    tally = made(["ncr-lte"], pool, tmp_path).tally
    wanted = len(quick("ncr-lte").orders())
    assert pool.begun[-1] == "ncr-lte/ours_2+again" and len(set(pool.begun)) == len(pool.begun) == wanted + 1
    assert tally.made == wanted and not tally.unfit


def test_progress_without_a_terminal_counts_the_runs(tmp_path: Path) -> None:
    said = io.StringIO()
    asked = plan.make(registry.find("headline"), False, repeats=2)
    pool = Clock(1, frozenset({"headline/fifo_1"}))
    Execution([(asked, Store(tmp_path, "headline", False))], pool, Console(file=said, width=200)).run()
    lines = said.getvalue().splitlines()
    assert lines[0] == "0 of 6: headline/fifo_1: unfit, once more: timers were late"
    assert lines[1] == "1 of 6: headline/ack-priority_1: done" and lines[-1] == "6 of 6: headline/fifo_1+again: done"


class Watched(Clock):
    """A pool whose runs are seen while they play."""

    def start(self, order: Order, store: Store) -> None:
        super().start(order, store)
        (store.part(order) / LIVE).write_text("down 13.4  up 0.92 Mb/s  ping 10 ms   ")
        self._seen = False

    def finished(self) -> list[Outcome]:
        self._seen, before = True, self._seen
        return super().finished() if before else []


def test_live_line_of_a_run_that_is_alone_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal is shown the last line alone
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    asked = plan.make(registry.find("headline"), False)
    Execution([(asked, Store(tmp_path, "headline", False))], Watched(1), console).run()
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for arm, done in (("fifo", 0), ("ack-priority", 1), ("ncr", 2)):
        assert re.search(rf"{arm}_1 .* {done}/3 .* left down 13\.4  up 0\.92 Mb/s  ping 10 ms", plain(shown)), shown
    assert not list(tmp_path.rglob(LIVE)), "parts are discarded"


def plain(text: str) -> str:
    """Remove the terminal's control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


class Failing(Clock):
    """A pool whose runs cannot be made."""

    def finished(self) -> list[Outcome]:
        return [replace(outcome, run=None, error="the switch did not start") for outcome in super().finished()]


@pytest.mark.parametrize(("repeats", "begun"), [(1, 1), (2, 3)])
def test_runs_that_cannot_be_made_are_an_error(repeats: int, begun: int, tmp_path: Path) -> None:
    """The first one of a single repeat on links of the user's own, and three in a row elsewhere."""
    asked = plan.make(registry.find("headline"), False, repeats=repeats)
    kept, pool = Store(tmp_path, "headline", False), Failing(1)
    with pytest.raises(LabError, match=r"headline/.*: the switch did not start"):
        Execution([(asked, kept)], pool, Console(quiet=True)).run()
    assert len(pool.begun) == begun and len(kept.missing(asked)) == len(asked.orders())


def test_unfit_single_run_is_not_made_again(tmp_path: Path) -> None:
    pool, asked = Clock(1, frozenset({"headline/ncr_1"})), plan.make(registry.find("headline"), False)
    tally = Execution([(asked, Store(tmp_path, "headline", False))], pool, Console(quiet=True)).run()
    assert pool.begun == ["headline/fifo_1", "headline/ack-priority_1", "headline/ncr_1"]
    assert (tally.made, tally.unfit) == (2, ["headline/ncr_1: timers were late"])


def test_room() -> None:
    lab, light, alone = Needs(10, 1.0, False), Needs(10, 0.3, False), Needs(10, 2.0, True)
    assert LocalPool(1).room(alone, []) and not LocalPool(1).room(light, [light])
    assert LocalPool(4).room(lab, [alone, lab]) and not LocalPool(4).room(lab, [alone, lab, lab])
    assert LocalPool(4).room(light, [light] * 12) and not LocalPool(9).room(alone, [alone, lab])


def test_runs_in_virtual_time_have_a_core_each_and_disturb_nobody(tmp_path: Path) -> None:
    asked = quick("rrul", VIRTUAL)
    virtual = asked.orders()[0]
    assert virtual.clock == VIRTUAL and second(virtual).clock == VIRTUAL
    assert plan.Plan.from_json(asked.as_json()) == asked
    needs = plan.needs(virtual)
    assert not needs.solo and needs.load == plan.PER_CORE and needs.seconds > virtual.seconds
    real = quick("rrul", REAL).orders()[0]
    assert real.clock == REAL and plan.needs(real).solo
    pool = Clock(side_by_side(of=2))
    Execution([(asked, Store(tmp_path, "rrul", True))], pool, Console(quiet=True)).run()
    assert pool.most == 2


def test_who_asks_for_virtual_time_and_bpf_is_told() -> None:
    with pytest.raises(ProfileError, match="clock 'sun' is unknown: choose one of real, virtual"):
        plan.make(registry.find("rrul"), quick=True, clock="sun")


def test_a_run_that_the_simulator_ends_says_what_for() -> None:
    said = (
        'NS_ASSERT failed, cond="x == 1", msg="54"\nNS_FATAL, terminating\nterminate called without an active exception'
    )
    for text, expected in ((said, 'NS_ASSERT failed, cond="x == 1", msg="54"'), ("so\nerror: no root", "no root")):
        words = [sys.executable, "-c", f"import sys; sys.exit(print({text!r}, file=sys.stderr) or 2)"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        process.wait()
        assert reason(process) == expected


def test_list_at_eighty_columns_has_a_line_for_each_experiment(tmp_path: Path) -> None:
    shown = io.StringIO()
    options = arguments(["list", "--out", str(tmp_path)])
    assert commands.main(options, Console(width=80, file=shown)) == 0
    lines = shown.getvalue().splitlines()
    for name, experiment in registry.experiments().items():
        (own,) = [line for line in lines if line.split()[:1] == [name]]
        assert experiment.title[:20] in own and own.split()[-1] == "-" and own.count(" min") == 2
