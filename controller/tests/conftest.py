# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a lab with each real switch that can run here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .switches import TARGETS, Lab, lab, missing


@pytest.fixture(params=TARGETS)
def any_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A running switch of each target, without a controller."""
    reason = missing(request.param)
    if reason:
        pytest.skip(reason)
    with lab(request.param, tmp_path) as made:
        made.start_switch()
        yield made


@pytest.fixture
def link_lab(tmp_path: Path) -> Iterator[Lab]:
    """apswitch, not started yet: for tests of its link model."""
    reason = missing("apswitch")
    if reason:
        pytest.skip(reason)
    with lab("apswitch", tmp_path) as made:
        yield made
