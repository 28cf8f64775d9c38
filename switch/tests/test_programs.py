# SPDX-License-Identifier: Apache-2.0
"""The compiled test programs are those of their sources, as far as a p4c on PATH can compile them."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.harness.apswitch import ROOT

PROGRAMS = Path(__file__).parents[1] / "testdata/programs"


def without_places(document: Any) -> Any:
    """The program without the positions of its source, which differ between machines."""
    if isinstance(document, dict):
        return {key: without_places(value) for key, value in document.items() if key != "source_info"}
    return [without_places(value) for value in document] if isinstance(document, list) else document


def load(path: Path) -> Any:
    document = without_places(json.loads(path.read_text()))
    document.pop("program")
    return document


@pytest.mark.parametrize("source", sorted(PROGRAMS.glob("*.p4")), ids=lambda source: source.stem)
def test_compiled_programs_are_fresh(source: Path, tmp_path: Path) -> None:
    if not shutil.which("p4c-bm2-ss"):
        pytest.skip("p4c-bm2-ss is not on PATH")
    compiled, p4info = tmp_path / "program.json", tmp_path / "program.p4info.txtpb"
    release = subprocess.run(["p4c-bm2-ss", "--version"], capture_output=True, text=True)
    made_by = (ROOT / "p4src/compiled/goldens.sha256").read_text().split("\n")[0].removeprefix("# p4c ")
    if made_by not in (release.stdout + release.stderr).split():
        pytest.skip(f"p4c {made_by} made the committed programs; another release may write them otherwise")
    binary = p4info.with_suffix(".bin")  # protobuf's own form, for tests in Rust
    command = ["p4c-bm2-ss", "--std", "p4-16", "-o", compiled, "--p4runtime-files", f"{p4info},{binary}", source]
    subprocess.run(command, check=True)
    assert load(compiled) == load(source.with_suffix(".json"))
    committed = source.with_suffix(".p4info.txtpb")
    assert not committed.exists() or p4info.read_text() == committed.read_text()
    committed = committed.with_suffix(".bin")
    assert not committed.exists() or binary.read_bytes() == committed.read_bytes()
