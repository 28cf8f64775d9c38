# SPDX-License-Identifier: Apache-2.0
"""Log of the controller."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from accesspoint.checks.harness.switches import Controller, end, wait_for
from accesspoint.checks.harness.waiting import free_port
from accesspoint.controller.log import JsonFormatter

from .test_config import access_point
from .test_entries import PIPELINE


def test_each_line_is_an_object(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    switch = f"127.0.0.1:{free_port()}"
    config.write_text(json.dumps({"access_points": [access_point(pipeline=PIPELINE, address=switch)]}))
    began = datetime.now(UTC)
    controller = Controller(config, "--log-format", "json")
    try:
        wait_for(lambda: "no P4Runtime switch" in controller.errors.read_text())
    finally:
        end(controller.process)
    lines = [json.loads(line) for line in controller.errors.read_text().splitlines()]
    line = next(line for line in lines if "no P4Runtime switch" in line["message"])
    assert (line["level"], line["target"], line["access_point"]) == (
        "WARN",
        "accesspoint.controller.agent.connection",
        "ap1",
    )
    assert began <= datetime.fromisoformat(line["timestamp"]) <= datetime.now(UTC)


def test_a_failure_is_one_line_too(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("test").exception("it failed")
    line = JsonFormatter().format(caplog.records[0])
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: two\nlines")
