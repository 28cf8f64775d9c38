# SPDX-License-Identifier: Apache-2.0
"""Every change of a goal is a line in experiments/verdict/goals.csv, with its date and reason.

The last line of a goal says what stands: its limit, and its formula as a number, which follows from stand-ins for the
measured figures. A goal that is gone has the limit `none`.
"""

import csv
import io
import re
from datetime import date
from zlib import crc32

from accesspoint.experiments.experiment import Goal, Value
from accesspoint.experiments.runs import registry
from accesspoint.topologies.requirements import ROOT

RECORD = ROOT / "experiments/verdict/goals.csv"
COLUMNS = ["date", "experiment", "goal", "limit", "formula", "reason"]


def formula(goal: Goal) -> str:
    """Return a number that follows from the goal's figures, their arms and points, and what is computed of them."""

    def stand_in(measure: str, arm: str, **point: Value) -> float:
        return 1.0 + crc32(f"{measure} {arm} {sorted(point.items())}".encode()) / 2**32

    return f"{float(goal.value(stand_in)):.6g}"


def limit(goal: Goal) -> str:
    return f"at least {goal.at_least:g}" if goal.at_most is None else f"at most {goal.at_most:g}"


def lines() -> list[list[str]]:
    with RECORD.open(newline="") as file:
        return [*csv.reader(file)]


def test_record_has_a_date_and_a_reason_for_each_change() -> None:
    heading, *rows = lines()
    assert heading == COLUMNS
    days = [date.fromisoformat(row[0]) for row in rows]
    assert days == sorted(days), "lines are added at the end"
    assert all(len(row) == len(COLUMNS) and len(row[-1]) > 10 for row in rows)


def test_every_goal_stands_as_its_last_line_says() -> None:
    recorded = {(row[1], row[2]): row[3:5] for row in lines()[1:]}
    standing = {key: own for key, own in recorded.items() if own[0] != "none"}
    now = {
        (name, goal.text): [limit(goal), formula(goal)]
        for name, experiment in registry.experiments().items()
        for goal in experiment.goals
    }
    others = [(*key, *own) for key, own in now.items() if standing.get(key) != own]
    others += [(*key, "none", "") for key in standing.keys() - now.keys()]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([date.today(), *each, "REASON"] for each in others)
    assert not others, f"add to {RECORD.relative_to(ROOT)}:\n{text.getvalue()}"


def test_formula_sees_another_measure_arm_or_operation() -> None:
    goals = [
        Goal("", lambda medians: medians("a", "ours") / medians("a", "cake"), at_least=1.0),
        Goal("", lambda medians: medians("b", "ours") / medians("a", "cake"), at_least=1.0),
        Goal("", lambda medians: medians("a", "ours") / medians("a", "fifo"), at_least=1.0),
        Goal("", lambda medians: medians("a", "ours") - medians("a", "cake"), at_least=1.0),
        Goal("", lambda medians: medians("a", "ours", n=1) / medians("a", "cake"), at_least=1.0),
    ]
    found = {formula(goal) for goal in goals}
    assert len(found) == len(goals) and all(re.fullmatch(r"-?[\d.]+", each) for each in found)
