# SPDX-License-Identifier: Apache-2.0
"""Scenes of BATCP's proxies for tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from accesspoint.checks.harness.hosts.proxies import Scene, scene
from accesspoint.topologies.links.paths import Paths


@pytest.fixture
def wires(tmp_path: Path) -> Iterator[Scene]:
    with Paths() as paths:
        yield scene(paths, tmp_path)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Scene]:
    """Links of 20 Mb/s, so that a transfer can be disturbed."""
    with Paths() as paths:
        yield scene(paths, tmp_path, rate="20mbit", delay="5ms", limit=100)
