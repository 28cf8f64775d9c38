# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/results are those that the summaries and samples beside them draw now."""

from pathlib import Path

import pytest

from accesspoint.experiments.render import redraw
from accesspoint.experiments.verdict import pages


@pytest.mark.long
@pytest.mark.parametrize("name", redraw.names())
def test_redraw_of_kept_results_equals_the_pictures_of_the_page(name: str, tmp_path: Path) -> None:
    kept = {path.name: path.read_text() for path in pages.plots(redraw.RESULTS, name).glob("*.svg")}
    made = {path.name: path.read_text() for path in redraw.redraw(name, tmp_path)}
    assert made.keys() == kept.keys()
    assert [file for file, text in made.items() if text != kept[file]] == []
