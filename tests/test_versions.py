# SPDX-License-Identifier: Apache-2.0
"""The page of releases keeps what it knows, and says why nothing could be tried."""

import subprocess
import sys
from pathlib import Path

from tools import versions

ROOT = Path(__file__).parent.parent


def row(p4c: str, target: str, passed: int) -> str:
    return f"| {p4c} | the same files | {target} | {passed} | 0 | 0 |"


def test_rows_are_merged_newest_first() -> None:
    page = versions.merged("", [row("1.2.5.9", "BMv2 1.15.5", 99)], "1.2.5.16")
    page = versions.merged(
        page, [row("1.2.5.10", "BMv2 1.15.5", 100), row("1.2.5.10", "BMv2 1.15.10", 100)], "1.2.5.16"
    )
    page = versions.merged(page, [row("1.2.5.9", "BMv2 1.15.5", 100)], "1.2.5.16")
    rows = [line for line in page.splitlines() if line.startswith("| 1")]
    assert rows == [
        row("1.2.5.10", "BMv2 1.15.10", 100),
        row("1.2.5.10", "BMv2 1.15.5", 100),
        row("1.2.5.9", "BMv2 1.15.5", 100),
    ]


def test_the_committed_page_is_what_the_script_writes() -> None:
    page = versions.PAGE.read_text()
    golden = (ROOT / "p4src/compiled/goldens.sha256").read_text().split()[2]
    assert versions.merged(page, [], golden) == page


def test_a_missing_compiler_is_named() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/versions.py"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: p4c-bm2-ss is not on PATH") and done.stderr.count("\n") == 1
