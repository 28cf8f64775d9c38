# SPDX-License-Identifier: Apache-2.0
"""What a page says in short: never more than its goals do."""

import pytest

from accesspoint.experiments.verdict.goals import word


@pytest.mark.parametrize(
    ("of_goals", "short"),
    [
        ([], "not measured"),
        (["met", "not measured"], "not measured"),
        (["met", "met"], "met"),
        (["met", "beaten"], "beaten"),
        (["met", "beaten", "not beaten"], "met, not beaten"),
        (["not beaten", "beaten"], "not beaten"),
        (["not met", "beaten"], "not met"),
    ],
)
def test_in_short_no_missed_goal_is_called_met(of_goals: list[str], short: str) -> None:
    assert word([{"kind": "met", "word": of} for of in of_goals]) == short
