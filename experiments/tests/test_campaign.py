# SPDX-License-Identifier: Apache-2.0
"""Declared experiments for real, in short: interrupted and resumed, on a cluster that loses a worker; and bad input."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.experiments.__main__ import main
from accesspoint.experiments.runs import provenance, registry
from accesspoint.experiments.runs.plan import Order
from accesspoint.experiments.runs.store import Store
from accesspoint.experiments.tests import finished
from accesspoint.experiments.verdict import claims
from accesspoint.topologies.kernels.kernel import REAL
from accesspoint.topologies.requirements import ROOT

COMMAND = [sys.executable, "-m", "accesspoint.experiments"]
# Virtual time, its own, takes a kernel that not every machine has.
SHORT = ["ncr-testbed", "--quick", "--seconds", "4", "--repeats", "1", "--clock", REAL]
privileged = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def start(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(process: "subprocess.Popen[str]", code: int = 0) -> str:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code, output
    assert "Traceback" not in output
    return output


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that bad input gets."""
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1, said
    return said


def finished_runs(out: Path) -> set[str]:
    """Orders with a run, whatever its self-check says: the machine may be busy."""
    return {path.parent.name.removesuffix("+again") for path in out.glob("ncr-testbed/quick/runs/[!.]*/run.json")}


def order_of(facts: dict[str, Any]) -> dict[str, Any]:
    return {field.name: facts[field.name] for field in fields(Order)}


def processes_of(program: str, out: Path) -> dict[int, int]:
    """Process id -> parent of the processes whose command line names both."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text()
            if program in words and str(out) in words:
                found[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return found


@pytest.mark.realtime
@privileged
def test_an_interrupted_run_is_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path)]
    run = start("run", *SHORT, "--arms", "fifo,ours", *out)
    assert eventually(lambda: "fifo_1" in finished_runs(tmp_path), seconds=150)
    assert eventually(lambda: bool(processes_of("accesspoint.experiments.execution.worker", tmp_path)), seconds=120)
    run.send_signal(signal.SIGINT)
    assert "`resume` continues" in end(run, 130)
    # The process that cleans up after a worker ends later.
    assert eventually(lambda: not processes_of("accesspoint.experiments.execution.worker", tmp_path), seconds=120)
    assert finished_runs(tmp_path) == {"fifo_1"}
    assert not list(tmp_path.glob("ncr-testbed/quick/runs/.part-*"))
    made = (tmp_path / "ncr-testbed/quick/runs/fifo_1/run.json").read_bytes()
    assert "has an interrupted run with" in refused(capsys, "run", *SHORT, *out)
    said = end(start("resume", "ncr-testbed", *out))
    assert finished_runs(tmp_path) == {"fifo_1", "ours_1"}
    assert (tmp_path / "ncr-testbed/quick/runs/fifo_1/run.json").read_bytes() == made
    assert "of a core" in said and (tmp_path / "index.html").exists()
    facts = json.loads((tmp_path / "ncr-testbed/quick/runs/ours_1/run.json").read_text())
    # Provenance.
    assert (facts["seed"], facts["clock"], facts["claims"]) == (Order(**order_of(facts)).seed, "real", claims.sha256())
    assert facts["versions"]["commit"] == provenance.commit() and facts["versions"]["apswitch"]
    assert (
        facts["parameters"]["arm"]["name"] == "ours"
        and facts["parameters"]["scene"]["profile"]["name"] == "testbed of payload"
    )
    rows = json.loads((tmp_path / "ncr-testbed/quick/runs/ours_1/measures.json").read_text())
    assert {measure.name for measure in registry.find("ncr-testbed").measures} == rows.keys()
    assert rows["download_during"]["value"] > 1
    check = facts["self_check"]
    assert check["flows"]["download"]["congestion_control"] == "cubic" and check["flows"]["download"]["ecn"]
    assert check["runner_cpu"] < 0.05 and check["drops"] == {}
    summary = json.loads((tmp_path / "ncr-testbed/quick/summary.json").read_text())
    assert summary["runs"] + len(summary["unfit"]) >= 2


@pytest.mark.realtime
@privileged
def test_a_campaign_survives_the_loss_of_a_worker(tmp_path: Path) -> None:
    campaign = start("campaign", *SHORT, "--arms", "fifo,ours", "--workers", "2", "--out", str(tmp_path))
    # A run belongs to the process of the worker that makes it: its parent.
    assert eventually(lambda: bool(_of_group(campaign.pid, "accesspoint.experiments.execution.worker")), seconds=150)
    (worker,) = set(_of_group(campaign.pid, "accesspoint.experiments.execution.worker").values())
    os.kill(worker, signal.SIGKILL)
    said = end(campaign)
    assert finished_runs(tmp_path) == {"fifo_1", "ours_1"}, said
    assert not _of_group(campaign.pid, "accesspoint.experiments.execution.worker")


def _of_group(campaign: int, program: str) -> dict[int, int]:
    """Process id -> parent of the processes of a program below a campaign."""
    parents, found = {}, {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if program in (process / "cmdline").read_text():
                found[int(process.name)] = parents[int(process.name)]
        except OSError:
            continue

    def below(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == campaign:
                return True
        return False

    # The outermost one: a run is contained in a process namespace below it.
    return {pid: parent for pid, parent in found.items() if below(pid) and parent not in found}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "nonsense"], "experiment 'nonsense' is unknown: choose one of headline"),
        (["run", "ncr-testbed", "--arms", "cake"], "arm 'cake' is unknown"),
        (["run", "all", "--quick", "--arms", "cake"], "arm 'cake' is unknown: choose of tcp, second, mptcp"),
        (["run", "ncr-testbed", "--repeats", "none"], "'none' is not a whole number"),
        (["run", "ncr-testbed", "--seconds", "1"], "1 seconds are not possible"),
        (["run", "ncr-testbed", "--down", "8mbit"], "--down is for headline"),
        (["run", "ncr-testbed", "--side-by-side", "0"], "side-by-side '0' is not possible"),
        (["run", "ncr-testbed", "--target", "tofino"], "target 'tofino' is unknown"),
        (["compare", "ncr-testbed"], "'ncr-testbed' has no results"),
        (["resume"], "nothing was interrupted"),
        (["campaign", "--scheduler", "tcp://127.0.0.1:1", "--quick"], "no scheduler answers at 'tcp://127.0.0.1:1'"),
    ],
)
@privileged
def test_bad_input_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert refused(capsys, *words, "--out", str(tmp_path)).startswith(f"error: {message}")
    assert not list(tmp_path.iterdir())


@privileged
def test_an_impossible_arm_is_told_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    impossible = ["--target", "bmv2", "--arms", "ncr-mark", "--clock", REAL]
    said = refused(capsys, "run", "ncr-testbed", *impossible, "--out", str(tmp_path))
    assert "BMv2 cannot give ncr without ack_priority" in said or "simple_switch_grpc is missing" in said
    assert not (tmp_path / "ncr-testbed").exists()


@privileged
def test_a_full_disk_is_told_and_finished_runs_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], check=True)
    try:
        planned, kept = finished.made(small, ("fifo", "ours"))
        planned = replace(planned, clock=REAL)
        kept.begin(planned)
        kept.write_machine()
        finished.keep(kept, planned.orders()[0])
        (small / "filler").write_bytes(bytes(os.statvfs(small).f_bavail * os.statvfs(small).f_bsize))
        assert "No space left on device" in refused(capsys, "resume", "ncr-testbed", "--out", str(small))
        (small / "filler").unlink()
        assert Store(small, "ncr-testbed", True).missing(planned) == planned.orders()[1:]
    finally:
        subprocess.run(["umount", small], check=True)
