# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/results are those that the summaries and samples beside them draw now."""

import math
from functools import partial
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from accesspoint.experiments.render import redraw, theme
from accesspoint.experiments.verdict import pages


@pytest.mark.long
@pytest.mark.parametrize("name", redraw.names())
def test_redraw_of_kept_results_equals_the_pictures_of_the_page(name: str, tmp_path: Path) -> None:
    kept = {path.name: path.read_text() for path in pages.plots(redraw.RESULTS, name).glob("*.svg")}
    made = {path.name: path.read_text() for path in redraw.redraw(name, tmp_path)}
    assert made.keys() == kept.keys()
    assert [file for file, text in made.items() if text != kept[file]] == []


def two_axes(left: float) -> Figure:
    figure = Figure()
    for bottom in (0.1, 0.6):
        figure.add_axes((left, bottom, 0.8, 0.3)).plot([1, 2])
    return figure


def test_last_digit_of_a_place_changes_no_picture(tmp_path: Path) -> None:
    """Another processor may compute another one."""
    texts = []
    for left in (0.1, math.nextafter(0.1, 1)):
        theme.save("line", partial(two_axes, left), tmp_path)
        texts.append((tmp_path / "line.svg").read_text())
    assert texts[0] == texts[1]
    assert texts[0].count('clip-path="url(#') >= 2 and texts[0].count("<clipPath id=") == 2
