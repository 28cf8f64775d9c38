# SPDX-License-Identifier: Apache-2.0
"""Experiments in files of the user's own, from any folder: listed, checked and run, and broken ones named."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from accesspoint.experiments.__main__ import arguments
from accesspoint.experiments.execution import commands
from accesspoint.experiments.runs import plan, registry
from accesspoint.experiments.verdict import summary
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import ProfileError
from accesspoint.topologies.requirements import ROOT, LabError

DOCUMENTED = re.search(r"```python\n(.*?)```", (ROOT / "docs/experiments.md").read_text(), re.S)[1]  # type: ignore[index]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Forget the files that a test has added."""
    before = os.environ.pop(registry.OWN, None)
    registry.forget()
    yield
    os.environ.pop(registry.OWN, None)
    if before is not None:
        os.environ[registry.OWN] = before
    registry.forget()


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The experiment of docs/experiments.md in a file of its own."""
    file = tmp_path / "mine.py"
    file.write_text(DOCUMENTED)
    return file


def listed(tmp_path: Path, *words: str) -> str:
    shown = io.StringIO()
    assert commands.main(arguments(["list", *words, "--out", str(tmp_path)]), Console(width=300, file=shown)) == 0
    return shown.getvalue()


def test_file_is_named_in_place_of_its_experiments(mine: Path, tmp_path: Path) -> None:
    assert registry.named([str(mine), "ncr-testbed"]) == ["example", "ncr-testbed"]
    assert registry.find("example").title == "Uploads of several stations"
    assert re.search(r"^ *example +Uploads of several stations", listed(tmp_path), re.M)


def test_file_may_have_dataclasses_and_later_annotations(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    own = "from dataclasses import dataclass\n\n@dataclass\nclass Own:\n    number: int = 1\n\n"
    file.write_text(f"from __future__ import annotations\n{own}{DOCUMENTED}")
    assert registry.named([str(file)]) == ["example"]


def test_command_of_a_files_experiment_names_the_file(mine: Path) -> None:
    registry.named([str(mine)])
    made = plan.make(registry.find("example"), True, repeats=2)
    words = f"python -m accesspoint.experiments run {mine} --quick --repeats 2 --clock real"
    assert summary.command(registry.find("example"), made) == words


def test_virtual_time_refuses_congestion_controls_in_bpf(mine: Path) -> None:
    mine.write_text(DOCUMENTED.replace('"ours", OURS)', '"ours", OURS, controls=("vegas_fair",))'))
    registry.named([str(mine)])
    with pytest.raises(LabError, match=r"make wifi-kernel|congestion controls in BPF, .* give CLOCK=real"):
        plan.require(plan.make(registry.find("example"), True, clock=VIRTUAL))


BROKEN = {
    "import nothing_of_this_name": "line 1: ModuleNotFoundError: No module named 'nothing_of_this_name'",
    "def (": "line 1: SyntaxError: ",
    "x = 1": "it declares no EXPERIMENT",
    "EXPERIMENT = 3": "EXPERIMENT is an int, and not an Experiment",
    "raise SystemExit": "line 1: SystemExit",
    DOCUMENTED.replace('"example"', '"ncr-testbed"'): "another experiment is called ncr-testbed: rename one",
    DOCUMENTED.replace('"example"', '"../example"'): "'../example' is no name: use letters, digits, - and _",
    DOCUMENTED.replace('int(point["n"])', 'int(point["m"])'): "example: its scene at n 1: KeyError: 'm'",
    DOCUMENTED.replace('"plain FIFO", "plain")', '"plain FIFO", "plain", cc=1/0)'): "ZeroDivisionError",
}


@pytest.mark.parametrize("text", BROKEN)
def test_broken_file_names_itself_and_does_not_stop_list(text: str, mine: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(text)
    os.environ[registry.OWN] = f"{broken}:{mine}"
    shown = listed(tmp_path)
    assert f"{broken} is broken: " in shown and BROKEN[text] in shown
    assert re.search(r"^ *example ", shown, re.M) and re.search(r"^ *ncr-testbed ", shown, re.M)
    with pytest.raises(ProfileError, match=re.escape(str(broken))):
        registry.named([str(broken)])
    with pytest.raises(ProfileError, match=r"'nothing' is unknown: choose one of .*broken\.py is broken: "):
        registry.find("nothing")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"gone\.py is broken: it does not exist"):
        registry.named([str(tmp_path / "gone.py")])


def test_file_of_the_catalogue_is_known_already() -> None:
    assert registry.named([str(ROOT / "experiments/catalogue/ncr/testbed.py")]) == ["ncr-testbed"]
    assert registry.OWN not in os.environ


def test_catalogue_has_no_broken_file() -> None:
    assert registry.broken() == ()


def test_list_runs_in_any_folder(mine: Path) -> None:
    """As the documentation says, in a process of its own: results are looked for below the checkout, or below this
    folder where there is none."""
    words = [sys.executable, "-m", "accesspoint.experiments", "list", "./mine.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(words, cwd=mine.parent, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ *example +Uploads of several stations", done.stdout, re.M) and "ncr-testbed" not in done.stdout
