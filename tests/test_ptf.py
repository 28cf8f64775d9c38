# SPDX-License-Identifier: Apache-2.0
"""The packet tests' runner: targets that run already, and what it says of those that it cannot reach."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
APSWITCH = ROOT / "target/release/apswitch"
RUN = [sys.executable, str(ROOT / "ptf-tests/run.py")]
ADDRESS = "127.0.0.1:9570"
INTERFACES = [word for port in (1, 2, 3, 4) for word in ("--interface", f"{port}@host{port}")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "tofino is not started here"),
        (["--address", "127.0.0.1:9"], "port 1 has no interface"),
        (["--address", "127.0.0.1:9", "--interface", "5@eth0"], "--interface 5@eth0 is not PORT@NAME"),
        (["--address", "127.0.0.1:9", *INTERFACES, "--jobs", "2"], "--jobs 2: 1 or more, and 1 with --address"),
        (["--jobs", "0"], "--jobs 0: 1 or more"),
        (["--address", "127.0.0.1:9", *INTERFACES], "name it with --device-config FILE"),
        (["--address", "127.0.0.1:9", *INTERFACES, "--device-config", "no/such"], "no/such is missing"),
    ],
)
def test_a_target_that_cannot_be_reached_is_named(options: list[str], words: str) -> None:
    done = subprocess.run([*RUN, "--target", "tofino", *options], capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@pytest.mark.skipif(not APSWITCH.exists(), reason="apswitch is missing; build it with: make switch")
@pytest.mark.skipif(not shutil.which("unshare"), reason="unshare is missing; install util-linux")
def test_a_target_that_runs_already(tmp_path: Path) -> None:
    ports = " ".join(f"-i {port}@switch{port}" for port in (1, 2, 3, 4))
    script = f"""
        ip link set lo up
        for port in 1 2 3 4; do
            ip link add switch$port type veth peer name host$port
            for end in switch host; do
                echo 1 >/proc/sys/net/ipv6/conf/$end$port/disable_ipv6
                ethtool -K $end$port rx off tx off tso off gso off gro off
                ip link set $end$port up
            done
        done
        {APSWITCH} --device-id 1 --no-p4 {ports} -- --grpc-server-addr {ADDRESS} --cpu-port 510 --priority-queues 8 &
        {" ".join(RUN)} --target apswitch --address {ADDRESS} {" ".join(INTERFACES)} --test test_roles
    """
    # The process namespace ends what is left in it when the shell ends.
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "apswitch: 4 passed, 0 failed" in done.stdout
    written = Path(done.stdout.strip().rpartition("written: ")[2])
    assert json.loads(written.read_text())["versions"]["apswitch"] == f"at {ADDRESS}"


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@pytest.mark.skipif(not APSWITCH.exists(), reason="apswitch is missing; build it with: make switch")
def test_targets_share_the_tests() -> None:
    done = subprocess.run([*RUN, "--test", "test_roles", "--jobs", "3"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "apswitch: 4 passed, 0 failed" in done.stdout and done.stdout.count("\nOK\n") == 3
    outcomes = json.loads(Path(done.stdout.strip().rpartition("written: ")[2]).read_text())["tests"]
    assert len({outcome["test"] for outcome in outcomes}) == 4
