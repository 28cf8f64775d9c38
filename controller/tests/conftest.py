# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a lab with each real switch that can run here."""

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.apctl import __main__ as command_line

from .switches import TARGETS, Lab, lab, missing

Apctl = Callable[..., tuple[int, str, str]]


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


@pytest.fixture
def apctl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Apctl:
    """Runs apctl in this process, with an environment; returns code, output and errors."""

    def run(*arguments: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["apctl", *arguments])
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            try:
                code = command_line.main()
            except SystemExit as error:
                code = int(error.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run
