# SPDX-License-Identifier: Apache-2.0
"""The examples run, are short, and do what they say."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.tests.mininet_scripts import ASK_ON

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
MAX_LINES = 40
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
WITHOUT_WIFI = subprocess.run(
    [sys.executable, "-c", "import accesspoint.wifi, accesspoint.topologies.wifi.requirements as r; print(r.check())"],
    cwd=ROOT,
    capture_output=True,
    text=True,
)


def run(*words: str, **environment: str) -> str:
    """Run a program that has to succeed, and return its output."""
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def example(name: str, **environment: str) -> str:
    return run(sys.executable, "-m", f"examples.{name}", **environment)


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.p*")), ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_an_example_is_short(path: Path) -> None:
    if path.suffix in (".py", ".p4"):
        assert len(path.read_text().splitlines()) <= MAX_LINES


@pytest.fixture
def patient(tmp_path: Path) -> str:
    """A PATH with a ping that waits for all answers, however busy the machine is: once it has had one, it waits for
    the others no longer than the interval, and the kernel asks for an address for no longer than three seconds."""
    ping = tmp_path / "ping"
    ping.write_text(f'#!/bin/sh\n{ASK_ON}\nexec {shutil.which("ping")} -l 3 "$@" -i 60 -W 60\n')
    ping.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def fastest(output: str) -> list[float]:
    """The shortest round trip of each ping, ms."""
    return [float(line.split("=")[1].split("/")[0]) for line in output.splitlines() if line.startswith("rtt")]


@needs_root
def test_a_wired_topology_of_ones_own(patient: str) -> None:
    output = example("wired", PATH=patient)
    assert output.count("3 packets transmitted, 3 received") == 2
    _, far = fastest(output)
    assert far > 18, "the station behind the slower link has its delay"


@pytest.mark.realtime
@needs_root
def test_only_the_slower_link_has_its_delay() -> None:
    near, far = fastest(example("wired"))
    assert near < 18 < far


@needs_root
def test_any_program_with_a_host_that_comes_later(patient: str) -> None:
    output = example("any_program", PATH=patient)
    assert "3 packets transmitted, 3 received" in output and "port 2 s1-eth2 UP" in output


@needs_root
def test_a_client_of_rest() -> None:
    output = example("rest_client")
    assert "state: ready" in output and output.count("station: ") == 3 and "ACK filter: False" in output


@pytest.mark.long
@needs_root
def test_an_experiment_of_ones_own() -> None:
    output = example("own_experiment")
    assert "beside-upload: 2 runs" in output and "report: " in output


@needs_root
def test_a_packet_test_of_ones_own() -> None:
    runner = [sys.executable, "ptf-tests/run.py", "--target", "apswitch"]
    assert "apswitch: 1 passed, 0 failed" in run(*runner, "--tests", "examples/packet_test")


@needs_root
@pytest.mark.skipif(not shutil.which("p4c-bm2-ss"), reason="p4c-bm2-ss is not on PATH: install p4c")
def test_a_new_stage() -> None:
    output = example("new_stage")
    assert (
        output.count("3 packets transmitted, 3 received") == 1
        and output.count("3 packets transmitted, 0 received") == 1
    )


@needs_root
@pytest.mark.skipif(not shutil.which("simple_switch_grpc"), reason="simple_switch_grpc is not on PATH: install BMv2")
def test_the_target_bmv2() -> None:
    output = example("bmv2")
    assert "0% dropped" in output and "ready" in output


@needs_root
@pytest.mark.skipif(
    WITHOUT_WIFI.stdout.strip() != "False", reason=(WITHOUT_WIFI.stderr.strip() or "no radios").splitlines()[-1]
)
def test_roaming() -> None:
    assert " received" in example("roaming")


@needs_root
def test_a_killed_script_leaves_no_switch_and_no_controller(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import time\n"
        "from accesspoint import AccessPointTopo, Mininet\n"
        f"net = Mininet(AccessPointTopo(switch={{'directory': '{tmp_path}'}}), controller=None)\n"
        "net.start()\n"
        "print(net['ap1'].prefix, flush=True)\n"
        "time.sleep(1000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout
        prefix = process.stdout.readline().decode().strip()
        assert prefix and ours(tmp_path)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert eventually(lambda: not ours(tmp_path))
    for link in Path("/sys/class/net").glob(f"{prefix}-ap1-*"):  # while Mininet's shells still hold the other end
        subprocess.run(["ip", "link", "delete", link.name], check=False, capture_output=True)


def ours(directory: Path) -> list[str]:
    """The command lines of processes that name a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{directory}/ap1.log" in words or f"{directory}/controller.json" in words:
            found.append(words)
    return found
