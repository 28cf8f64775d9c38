# SPDX-License-Identifier: Apache-2.0
"""Whatever ends a contained program ends everything that it started."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.requirements import ROOT
from accesspoint.topologies.tests.conftest import Start, descendants

pytestmark = pytest.mark.usefixtures("privileged")

# Starts a child that ignores every polite signal and a grandchild that has left session and parent.
STUBBORN = """
import subprocess, sys, time
from accesspoint.topologies.namespaces import contain

def main():
    subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; setsid sleep 1000 & sleep 1000"])
    try:
        print("up", flush=True)
        time.sleep(1000)
    finally:
        print("unwound", flush=True)

sys.exit(contain.run(main))
"""


@pytest.mark.parametrize(("code", "expected"), [("lambda: 0", 0), ("lambda: 7", 7), ("lambda: 1 / 0", 1)])
def test_the_exit_code_is_the_programs(start: Start, code: str, expected: int) -> None:
    process = start(
        "-c", f"import sys; from accesspoint.topologies.namespaces import contain; sys.exit(contain.run({code}))"
    )
    process.communicate(timeout=120)
    assert process.returncode == expected


@pytest.mark.parametrize(
    ("number", "code", "unwound"),
    [(signal.SIGKILL, -9, False), (signal.SIGTERM, 143, True), (signal.SIGINT, 130, True), (signal.SIGHUP, 129, True)],
)
def test_nothing_outlives_the_program(start: Start, number: signal.Signals, code: int, unwound: bool) -> None:
    process = start("-c", STUBBORN)
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    assert eventually(lambda: len(descendants(process.pid)) >= 4)
    pids = descendants(process.pid)
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code
    assert ("unwound" in output) == unwound
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 120)


def test_process_ids_are_the_programs_own(start: Start) -> None:
    process = start(
        "-c", "import os, sys; from accesspoint.topologies.namespaces import contain; "
        "sys.exit(contain.run(lambda: print(os.getpid(), os.readlink('/proc/self')) or 0))"
    )  # fmt: skip
    assert process.communicate(timeout=120)[0] == "1 1\n"


def test_without_the_privilege_it_says_so() -> None:
    lab = [sys.executable, "-m", "accesspoint.topologies.lab", "--exec", "nodes"]
    # Without CAP_SETFCAP root cannot be mapped into a user namespace, so the lab has none of its own.
    command = ["setpriv", "--bounding-set", "-all", "--", *lab]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: privilege is missing") and done.stderr.count("\n") == 1


def test_a_network_of_its_own_leaves_the_mounts_of_others_alone() -> None:
    program = "from accesspoint.topologies.namespaces import contain; contain.own_network()"
    script = 'cut -d" " -f5- /proc/self/mountinfo; "$0" -c "$1"; echo after; cut -d" " -f5- /proc/self/mountinfo'
    # Within mounts of the test's own, so that what it looks for would not stay on this machine.
    words = ["unshare", "--mount", "--propagation", "shared", "sh", "-c", script, sys.executable, program]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    before, after = done.stdout.split("after\n")
    assert before and after == before
