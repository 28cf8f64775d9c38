# SPDX-License-Identifier: Apache-2.0
"""`make foreign`: clients of PyPI pass on apswitch, and a client that fails is reported."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.foreign import report
from accesspoint.checks.foreign.__main__ import run
from accesspoint.checks.foreign.case import FAIL, FOLDERS, NOT_RUN, PASS, Case, Failed, NotRun, Outcome, load, select
from accesspoint.checks.foreign.clients.shell import Step, converse
from accesspoint.checks.foreign.isolated import ask
from accesspoint.checks.foreign.stand import CLIENTS
from accesspoint.topologies.requirements import ROOT

PYPI = [case.name for case in select(load(), ["pypi"])]


@pytest.mark.parametrize("name", PYPI)
def test_client_of_pypi_on_apswitch_passes(name: str, tmp_path: Path) -> None:
    if not CLIENTS.is_dir():
        pytest.skip("the clients of PyPI are missing: tools/install.sh foreign")
    outcome = run(replace(load()[name], seconds=280), "apswitch", {}, tmp_path)  # of a busy machine
    assert outcome.status == PASS, f"{outcome.reason}\n{(tmp_path / f'logs/{name}-apswitch.log').read_text()[-3000:]}"


def test_list_has_every_case_with_its_task() -> None:
    cases = load()
    assert all(one.task and one.client and one.folder in {"", *FOLDERS} for one in cases.values())
    done = subprocess.run(
        [sys.executable, "-m", "accesspoint.checks.foreign", "--list"], cwd=ROOT, capture_output=True, text=True
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(cases)


def test_select_takes_names_patterns_and_folders() -> None:
    cases = load()
    assert [one.name for one in select(cases, ["shell-pre,pygnmi-*"])] == [
        name for name in cases if name == "shell-pre" or name.startswith("pygnmi-")
    ]
    assert {one.folder for one in select(cases, ["tutorials"])} == {"tutorials"}
    done = subprocess.run(
        [sys.executable, "-m", "accesspoint.checks.foreign", "--only", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "no case is called nothing" in done.stderr) == (2, True)


def test_run_without_the_folder_is_not_run(tmp_path: Path) -> None:
    case = next(one for one in load().values() if one.folder == "tutorials")
    assert run(case, "apswitch", {}, tmp_path).status == NOT_RUN


def test_run_of_a_case_that_takes_too_long_fails(tmp_path: Path) -> None:
    case = load()["shell-tls"]
    late = Case(case.name, case.client, case.task, case.run, seconds=0.01)
    assert run(late, "apswitch", {}, tmp_path).status == FAIL


@pytest.mark.parametrize(
    ("raised", "status", "reason"),
    [
        (Failed("no answer"), FAIL, "no answer"),
        (NotRun("no p4c"), NOT_RUN, "no p4c"),
        (ValueError("x"), FAIL, "ValueError: x"),
    ],
)
def test_ask_reports_what_a_case_raises(raised: Exception, status: str, reason: str, tmp_path: Path) -> None:
    def client(stand: Any) -> None:
        raise raised

    outcome = ask(Case("one", "client", "task", client), "apswitch", {}, tmp_path, tmp_path / "log")
    assert (outcome.status, outcome.reason) == (status, reason)


class Shell:
    """A shell that prints the same after each step."""

    python = "python"

    def __init__(self, answers: list[str]) -> None:
        self.answers = answers

    def run(self, *command: Any, **options: Any) -> str:
        return "".join(f"{said}\n@@ {number}\n" for number, said in enumerate(self.answers))


def test_converse_accepts_wanted_output() -> None:
    converse(Shell(["", "value: 3"]), [Step("a"), Step("b", r"value: \d")])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answers", [["", "value: x"], ["NameError: a", "value: 3"], [""]], ids=["other output", "error", "end"]
)
def test_converse_with_other_output_fails(answers: list[str]) -> None:
    with pytest.raises(Failed):
        converse(Shell(answers), [Step("a"), Step("b", r"value: \d")])  # type: ignore[arg-type]


def test_page_has_both_targets_and_the_cause_of_a_failure(tmp_path: Path) -> None:
    cases = {
        name: Case(name, "client", f"does {name}", lambda stand: None, known={"bmv2": "BMv2 has no gNMI"})
        for name in ("one", "two")
    }
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.keep(tmp_path / "apswitch.json", [Outcome("one", PASS, ""), Outcome("two", NOT_RUN, "no p4c")], "a 1", cases)
    report.keep(tmp_path / "bmv2.json", [Outcome("one", FAIL, "Unimplemented")], "b 2", cases)
    report.page(page, tmp_path, cases)
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "- a 1: 1 passed, 0 failed, 1 not run" in lines
    assert "| client | does one | pass | **fail** | BMv2: Unimplemented. BMv2 has no gNMI |" in lines
    assert "| client | does two | **not run** | **not run** | this switch: no p4c |" in lines


def test_page_of_results_has_every_case_and_no_failure_without_a_cause() -> None:
    table = (ROOT / "docs/results/foreign.md").read_text().partition(report.BEGIN)[2].partition(report.END)[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    cases = load()
    assert [row[1] for row in rows] == [report.cell(one.task) for one in cases.values()], (
        "renew it: make foreign PAGE=docs/results/foreign.md"
    )
    failed = [name for name, row in zip(cases, rows, strict=True) if row[2] == "**fail**"]
    assert [name for name in failed if "apswitch" not in cases[name].known] == []
