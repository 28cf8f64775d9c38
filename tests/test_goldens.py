# SPDX-License-Identifier: Apache-2.0
"""The committed program is what its sources say, and the numbers in ids.p4 are what controllers see."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

ROOT = Path(__file__).parent.parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "p4src", tmp_path / "p4src")
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    return tmp_path


def check(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([root / "tools/goldens.sh", "check"], capture_output=True, text=True)


def test_goldens_are_fresh() -> None:
    done = check(ROOT)
    assert done.returncode == 0, done.stderr


def test_changed_source_is_noticed(copy: Path) -> None:
    assert check(copy).returncode == 0
    with (copy / "p4src/ids.p4").open("a") as source:
        source.write("// changed\n")
    done = check(copy)
    assert done.returncode == 2
    assert "make p4" in done.stderr


def test_added_source_is_noticed(copy: Path) -> None:
    (copy / "p4src/stages/new.p4").write_text("// new\n")
    assert check(copy).returncode == 2


def test_ids_are_the_declared_ones() -> None:
    info = text_format.Parse((ROOT / "p4src/ap.p4info.txtpb").read_text(), p4i.P4Info())
    compiled = {
        obj.preamble.id
        for group in (info.tables, info.actions, info.counters, info.direct_counters, info.meters, info.direct_meters,
                      info.registers)
        for obj in group
        if obj.preamble.alias != "NoAction"
    }  # fmt: skip
    source = (ROOT / "p4src/ids.p4").read_text()
    declared = [int(n, 16) for n in re.findall(r"^#define \w+ +(0x[0-9A-F]{8})$", source, re.M)]
    assert len(declared) == len(set(declared)), "an id is used twice"
    assert compiled == set(declared)
