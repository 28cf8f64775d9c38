# SPDX-License-Identifier: Apache-2.0
"""Laws from outside the package: tried in simulation, named in a configuration, and refused in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.controller.agent.regulator import queue_target
from accesspoint.controller.config import Ncr
from accesspoint.controller.law import LAWS, chosen, own

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/own_law.py"
TRY = ("-m", "accesspoint.controller.law", "try")


def run(*words: str | Path, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=240
    )
    return done.returncode, done.stdout, done.stderr


def test_a_law_is_tried_beside_the_default_one(tmp_path: Path) -> None:
    words = ("--set", "full=4", "--only", "one download, 14 Mb/s, 4 ms", "--out", tmp_path)
    code, output, errors = run(*TRY, EXAMPLE, *words)
    assert (code, errors) == (0, "")
    rows = [line.split() for line in output.splitlines()[1:3]]
    assert [row[6] for row in rows] == ["ramp", "pi2"] and all(float(row[7]) > 0.9 for row in rows)
    assert (tmp_path / "ramp.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nothing_of_this_name", "is broken: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("x = 1", "defines no subclass of accesspoint.controller.law.Law"),
        (
            "from accesspoint.controller.law import Law\nclass Mine(Law):\n    name = 'My law'",
            "name of Mine must match",
        ),
        ("from accesspoint.controller.law.pi2 import Pi2\nclass Mine(Pi2):\n    pass", "there is a law 'pi2' already"),
        (
            "from accesspoint.controller.law.base import *\nfrom accesspoint.controller.law import Law\n"
            "class Mine(Law):\n    name = 'mine'\n    parameters = {'x': Parameter(2, 0, 1, '')}",
            "parameter x of 'mine' must have least <= default <= most",
        ),
        (
            "from accesspoint.controller.law import Law\nclass Mine(Law):\n    name = 'mine'",
            "law 'mine' in 'one upload, 1 Mb/s, 4 ms': NotImplementedError",
        ),
    ],
)
def test_what_is_no_law_gets_one_line(code: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code)
    status, _, errors = run(*TRY, tmp_path / "mine.py", "--out", tmp_path)
    assert status == 2 and said in errors and len(errors.splitlines()) == 1, errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "full=1"), "parameter 'full' of law 'ramp' is 1; it goes from 1.5 to 100"),
        (("--set", "slope=1"), "law 'ramp' has no parameter 'slope' of its own; it has full"),
        (("--set", "full"), "--set full: give NAME=NUMBER"),
        (("--beside", "pi3"), "there is no law 'pi3', only paper, pi2, ramp"),
        (("--only", "moon"), "no scenario has 'moon' in its name"),
    ],
)
def test_wrong_words_get_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    status, _, errors = run(*TRY, EXAMPLE, *words, "--out", tmp_path)
    assert status == 2 and said in errors and len(errors.splitlines()) == 1, errors


def test_a_configuration_may_name_a_law_of_the_environment(tmp_path: Path) -> None:
    ports = [
        {"port": 1, "role": "station", "capacity_bps": 14_000_000},
        {"port": 2, "role": "uplink", "capacity_bps": 1_000_000},
    ]
    ncr = {"law": "ramp", "own": {"full": 3}}
    path = tmp_path / "access-points.json"
    path.write_text(json.dumps({"access_points": [{"name": "ap1", "address": "[::1]:9", "ports": ports, "ncr": ncr}]}))
    check = ("-m", "accesspoint.controller", "--config", path, "--check")
    status, _, errors = run(*check)
    assert status != 0 and "there is no law 'ramp', only paper, pi2" in errors
    assert run(*check, ACCESSPOINT_LAWS=str(EXAMPLE))[0] == 0
    status, output, _ = run("-m", "accesspoint.controller.law", "list", ACCESSPOINT_LAWS=str(EXAMPLE))
    assert status == 0 and "full                 10 (1.5 to 100): queue, in targets, where all is marked" in output
    status, _, errors = run("-m", "accesspoint.controller.law", "list", ACCESSPOINT_LAWS=f"{tmp_path}/none.py")
    assert status == 2 and errors == f"error: {tmp_path}/none.py is no Python file\n"


def test_the_schema_has_the_parameters_of_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    found = own.of_file(EXAMPLE, LAWS)
    monkeypatch.setitem(LAWS, "ramp", found["ramp"])
    schema = Ncr.model_json_schema()["properties"]
    assert "ramp" in schema["law"]["enum"] and schema["own"]["properties"]["full"]["maximum"] == 100
    ncr = Ncr(law="ramp", own={"full": 3})
    law = chosen(ncr.law, ncr.own)
    assert law is chosen("ramp", {"full": 3}) and law.own == {"full": 3} and LAWS["ramp"].own == {"full": 10}
    target = queue_target(1e6, ncr)
    marked = law.device().update(
        0, 2 * target, target, True, gamma=1, kappa1=1, kappa2=1, interval=0.01, limit=1
    )  # fmt: skip
    assert marked == 0.5


def test_without_matplotlib_the_table_is_there_and_the_fix_is_named(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    words = ("try", str(EXAMPLE), "--only", "14 Mb/s", "--out", tmp_path)
    status, output, errors = run("-m", "accesspoint.controller.law", *words, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (status, "ramp" in output) == (2, True)
    assert errors.strip() == "error: nothing is drawn: matplotlib is missing: pip install matplotlib"
