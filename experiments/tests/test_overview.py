# SPDX-License-Identifier: Apache-2.0
"""One table of traffic that is protected beside CAKE: it holds what the summaries hold, and no more."""

from typing import Any

import pytest

from accesspoint.experiments.runs import registry
from accesspoint.experiments.verdict import overview

CAKE, BY_HOST, *_ = overview.CAKES


def summary(name: str, values: dict[tuple[str, str], list[float]], kernel: str = "6.1") -> dict[str, Any]:
    """A summary with repeats from 1 on, by measure and arm."""
    cells = [
        {
            "measure": measure,
            "arm": arm,
            "point": {},
            "median": sorted(found)[len(found) // 2],
            "values": {str(repeat): value for repeat, value in enumerate(found, start=1)},
        }
        for (measure, arm), found in values.items()
    ]
    return {"experiment": name, "cells": cells, "clocks": ["virtual"], "versions": {"kernel": kernel}}


def flood(kernel: str = "6.1", repeats: int = 5) -> dict[str, Any]:
    values = {
        ("download_alone", "ours"): [10.0] * repeats,
        ("download_during", "ours"): [6.93, 6.93, 6.93, 6.93, 6.72][:repeats],  # of 7: 99 %, and 96 % once
        ("ping_mean", "ours"): [12.0, 13.0, 14.0, 15.0, 19.5][:repeats],
        ("download_alone", CAKE): [10.0] * repeats,
        ("download_during", CAKE): [6.3] * repeats,
        ("ping_mean", CAKE): [11.0] * repeats,
    }
    return summary("flood", values, kernel)


def rows(*summaries: dict[str, Any]) -> dict[str, list[overview.Row]]:
    found: dict[str, list[overview.Row]] = {}
    for row in overview.rows({one["experiment"]: one for one in summaries}):
        found.setdefault(row.experiment.name, []).append(row)
    return found


def test_every_comparison_with_peers_has_its_rows() -> None:
    # A tally has no goals: its own page counts.
    known = [one for one in registry.experiments().values() if not one.tally]
    compared = {one.name for one in known if any(arm.role == "peer" for arm in one.arms)}
    assert compared == set(overview.ORDER) == set(rows())
    assert all(len(own) == len(registry.find(name).goals) for name, own in rows().items())
    assert {row.word for own in rows().values() for row in own} == {"not run"}


def test_goal_with_one_bad_repeat_of_five_fails() -> None:
    download, ping = rows(flood())["flood"]
    assert (download.word, download.missed) == ("fail", "2.0 %") and "96.0%" in download.text
    assert (download.ours, download.cake) == ("99.0% (96.0% to 99.0%)", "90.0%")
    assert (ping.word, ping.ours, ping.cake) == ("pass", "14.0 ms (12.0 to 19.5)", "11.0 ms")


def test_cake_is_shown_in_its_best_set_up_for_each_goal() -> None:
    made = flood()
    values = {"download_alone": 10.0, "download_during": 6.65, "ping_mean": 14.0}
    repeats = range(1, 6)
    made["cells"] += [
        {"measure": name, "arm": BY_HOST, "point": {}, "median": of, "values": {str(n): of for n in repeats}}
        for name, of in values.items()
    ]
    assert [row.cake for row in rows(made)["flood"]] == ["95.0%", "11.0 ms"]


def test_htb_stands_in_for_cake_where_stations_have_weights() -> None:
    made = summary("weights", {})
    made["cells"] = [
        {"measure": "share", "arm": arm, "point": {"way": way}, "median": of, "values": {str(n): of for n in range(5)}}
        for way in ("up", "down")
        for arm, of in (("ours", 0.7), ("htb", 0.75), (BY_HOST, 0.5))
    ]
    assert [row.cake for row in rows(made)["weights"]] == ["HTB 0.75"] * 4


@pytest.mark.parametrize("made", [flood(repeats=4), flood(kernel="6.1, 6.12")], ids=["four repeats", "two kernels"])
def test_row_that_does_not_compare_is_inconclusive(made: dict[str, Any]) -> None:
    assert [row.word for row in rows(made)["flood"]] == ["inconclusive"] * 2


def test_a_goal_beside_cake_has_no_figure_of_cake_of_its_own() -> None:
    both = {("download_during", "ours"): [12.0] * 5, ("download_during", CAKE): [10.0] * 5}
    download, upload = rows(summary("quic", both))["quic"]
    assert (download.word, download.ours, download.cake) == ("pass", "120.0% (120.0% to 120.0%)", "")
    assert upload.word == "not run"


def test_page_has_a_row_for_each_goal() -> None:
    page = overview.page({"flood": flood()}, {})
    assert "| [flood](flood.md) |" in page and "**fail** by 2.0 %" in page and page.count("| pass |") == 1
