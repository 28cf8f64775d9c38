# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a lab with each real switch that can run here, a database of each kind, the API of a controller."""

import io
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from accesspoint.checks.harness.switches import TARGETS, SwitchLab, lab, missing
from accesspoint.checks.harness.waiting import free_port
from accesspoint.controller.apctl import __main__ as command_line
from accesspoint.controller.config import AccessPointConfig
from accesspoint.controller.state.database import connect

from .application import Api
from .databases import missing_postgresql, postgresql
from .test_config import access_point
from .test_entries import PIPELINE

Apctl = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=TARGETS)
def any_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SwitchLab]:
    """A running switch of each target, without a controller."""
    reason = missing(request.param)
    if reason:
        pytest.skip(reason)
    with lab(request.param, tmp_path) as made:
        made.start_switch()
        yield made


@pytest.fixture
def link_lab(tmp_path: Path) -> Iterator[SwitchLab]:
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


@pytest.fixture(scope="module")
def server() -> Iterator[str | None]:
    """One PostgreSQL server for all tests; None where it is missing."""
    if missing_postgresql():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="pg") as directory:
        Path(directory).chmod(0o755)
        with postgresql(Path(directory) / "server") as url:
            yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(
    request: pytest.FixtureRequest, tmp_path: Path, server: str | None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sa.Engine]:
    """A new database of each kind."""
    # Who has it locked may get no processor for a while.
    monkeypatch.setattr("accesspoint.controller.state.database.BUSY_SECONDS", 120)
    if request.param == "sqlite":
        made = connect(f"sqlite:///{tmp_path / 'state.db'}")
        yield made
        made.dispose()
        return
    if server is None:
        pytest.skip(str(missing_postgresql()))
    made = connect(server)
    yield made
    with made.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    made.dispose()


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """With one access point that keeps trying to connect."""
    made = Api(tmp_path)
    config = access_point(pipeline=PIPELINE, address=f"127.0.0.1:{free_port()}", rules=[{"name": "dns", "class_id": 3}])
    await made.start(AccessPointConfig.model_validate(config))
    yield made
    await made.backend.stop()
    await made.service.close()


@pytest.fixture
async def client(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    """An admin's."""
    async with api.client() as made:
        yield made
