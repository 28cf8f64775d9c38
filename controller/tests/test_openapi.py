# SPDX-License-Identifier: Apache-2.0
"""schemathesis over the API of a real controller: no defect, no answer that the OpenAPI document does not tell of."""

import os
import subprocess
import sys
from pathlib import Path

from accesspoint.checks.harness.switches import ROOT, SwitchLab

SECONDS = 12
CHECKS = "no_defect,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_every_answer_is_told_of(link_lab: SwitchLab, tmp_path: Path) -> None:
    link_lab.start_switch()
    controller = link_lab.controller(rules=[{"name": "voice", "dscp": 46, "class_id": 3}])
    link_lab.introduce(controller)
    done = subprocess.run(
        [
            Path(sys.executable).parent / "schemathesis", "run", f"{controller.url}/openapi.json",
            "--header", f"Authorization: Bearer {controller.token}", "--checks", CHECKS,
            "--phases", "examples,coverage,fuzzing", "--max-examples", "5", "--max-time", str(SECONDS),
            # A stream has no end, and a session's token is no bearer's.
            "--exclude-path-regex", "/events$|/session$",
            "--continue-on-failure", "--no-shrink", "--no-color", "--generation-database", "none",
        ],
        env=os.environ
        | {"SCHEMATHESIS_HOOKS": "accesspoint.controller.tests.schemathesis_checks", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
    assert controller.request("GET", "/readyz").status_code == 200
    assert "Traceback" not in controller.errors.read_text()
