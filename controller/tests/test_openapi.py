# SPDX-License-Identifier: Apache-2.0
"""schemathesis over the API of a real controller: no defect, no answer that the OpenAPI document does not tell of, and
no success of a request that the document does not allow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.checks.harness.switches import ROOT, SwitchLab

CHECKS = (
    "no_defect", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "negative_data_rejection", "use_after_free", "unsupported_method",
)  # fmt: skip
SHORT = ["--max-examples", "5", "--max-time", "12"]
LONG = ["--max-examples", "150"]
MIN_GENERATED = 10_000
"""Requests of the long form."""


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.timeout(14_400)])])
def test_every_answer_is_told_of(link_lab: SwitchLab, tmp_path: Path, long: bool) -> None:
    link_lab.start_switch()
    controller = link_lab.controller(rules=[{"name": "voice", "dscp": 46, "class_id": 3}])
    link_lab.introduce(controller)
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            Path(sys.executable).parent / "schemathesis", "run", f"{controller.url}/openapi.json",
            "--header", f"Authorization: Bearer {controller.token}", "--checks", ",".join(CHECKS),
            "--phases", "examples,coverage,fuzzing", *(LONG if long else SHORT),
            # `wait` lets a request take a minute.
            "--request-timeout", "90",
            "--report", "json", "--report-json-path", str(report),
            # A stream has no end, and a session's token is no bearer's.
            "--exclude-path-regex", "/events$|/session$",
            "--continue-on-failure", "--no-shrink", "--no-color", "--generation-database", "none",
        ],
        env=os.environ
        | {"SCHEMATHESIS_HOOKS": "accesspoint.controller.tests.schemathesis_checks", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
    assert not long or json.loads(report.read_text())["test_cases"]["generated"] >= MIN_GENERATED
    assert controller.request("GET", "/readyz").status_code == 200
    assert "Traceback" not in controller.errors.read_text()
