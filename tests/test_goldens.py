# SPDX-License-Identifier: Apache-2.0
"""The committed program is what its sources say, and the numbers in ids.p4 are what controllers see."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from tools import tofino

ROOT = Path(__file__).parent.parent
P4INFO = ROOT / "p4src/compiled/ap.p4info.txtpb"
TOFINO_P4INFO = ROOT / "p4src/compiled/ap_tna.p4info.txtpb"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "p4src", tmp_path / "p4src")
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    for folder in ("checks/conformance/programs", "switch/testdata/programs", "topologies/links"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
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


@pytest.mark.parametrize("folder", ["p4src/stages", "checks/conformance/programs", "switch/testdata/programs"])
def test_added_source_is_noticed(copy: Path, folder: str) -> None:
    (copy / folder / "new.p4").write_text("// new\n")
    assert check(copy).returncode == 2


@pytest.mark.skipif(
    not shutil.which("p4c-barefoot"), reason="p4c-barefoot is missing; build p4c with -DENABLE_TOFINO=ON"
)
@pytest.mark.timeout(1800)  # a minute and a half on an idle core
def test_the_build_for_tofino_is_fresh_and_fits(tmp_path: Path) -> None:
    out = tmp_path / "tofino"
    done = subprocess.run([ROOT / "tools/goldens.sh", "tofino", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (out / "pipe/tofino.bin").exists() == bool(shutil.which("bfas"))
    compiler = tofino.read(out, "manifest.json")["compiler_version"]
    committed = tofino.PAGE.read_text()
    page = tofino.made(out)
    if compiler not in committed:
        pytest.skip(f"p4c-barefoot {compiler} is not the release that made {tofino.PAGE.name}; the program fits")
    assert page == committed
    assert (out / "ap_tna.p4info.txtpb").read_text() == TOFINO_P4INFO.read_text()


def test_a_program_that_does_not_fit_a_tofino_is_named() -> None:
    with pytest.raises(tofino.ReportError, match="takes 13 stages, and a Tofino 1 has 12"):
        tofino.page({"resources": {"mau": {"mau_stages": [{}] * 13}}}, {}, "9.13.4")


def test_missing_reports_are_named(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/tofino.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path}/manifest.json is no report") and done.stderr.count("\n") == 1


def test_a_device_config_is_name_binary_and_context(tmp_path: Path) -> None:
    (tmp_path / "pipe").mkdir()
    pack: list[str | Path] = [sys.executable, ROOT / "tools/tofino.py", tmp_path, "--pack", tmp_path / "config"]
    done = subprocess.run(pack, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {tmp_path}/pipe/tofino.bin is missing")
    (tmp_path / "pipe/tofino.bin").write_bytes(b"binary")
    (tmp_path / "pipe/context.json").write_bytes(b"{}")
    subprocess.run(pack, check=True, capture_output=True)
    expected = b"\6\0\0\0ap_tna" + b"\6\0\0\0binary" + b"\2\0\0\0{}"
    assert (tmp_path / "config").read_bytes() == expected


def test_the_order_of_the_stages_in_the_docs_is_that_of_apply() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/stages.py", "--check"])
    assert done.returncode == 0, "renew it with: python3 tools/stages.py"


def test_ids_are_the_declared_ones() -> None:
    info = text_format.Parse(P4INFO.read_text(), p4i.P4Info())
    tofino_info = text_format.Parse(TOFINO_P4INFO.read_text(), p4i.P4Info())
    # p4c-barefoot numbers externs itself.
    compiled = ids(tofino_info.tables, tofino_info.actions) | ids(
        info.tables, info.actions, info.counters, info.direct_counters, info.meters, info.direct_meters, info.registers
    )
    source = (ROOT / "p4src/ids.p4").read_text()
    declared = [int(n, 16) for n in re.findall(r"^#define \w+ +(0x[0-9A-F]{8})\b", source, re.M)]
    assert len(declared) == len(set(declared)), "an id is used twice"
    assert compiled == set(declared)


def ids(*groups: Iterable[Any]) -> set[int]:
    return {obj.preamble.id for group in groups for obj in group if obj.preamble.alias != "NoAction"}
