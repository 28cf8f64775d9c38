# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: apswitch passes it, a server that does otherwise fails, bad options are named."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
APSWITCH = ROOT / "switch/target/release/apswitch"
NEEDS_SWITCH = pytest.mark.skipif(not APSWITCH.exists(), reason="apswitch is missing; build it with: make switch")
MOST_WAIT = 30.0  # s


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "conformance", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)


@pytest.fixture
def address() -> Iterator[str]:
    """Where an apswitch without ports listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    command = [APSWITCH, "--no-p4", "--grpc-server-addr", address, "--cpu-port", "510"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + MOST_WAIT
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(address.split(":")[1]))).close()
                break
            except ConnectionRefusedError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=MOST_WAIT)


@NEEDS_SWITCH
@pytest.mark.skipif(os.geteuid() != 0, reason="veth pairs need root")
@pytest.mark.skipif(not shutil.which("ip"), reason="ip is missing; install iproute2")
def test_apswitch_passes_all_checks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = run("--target", "apswitch", "--markdown", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    passed, others = re.findall(r"(\d+) passed, (.*)", done.stdout)[0]
    assert int(passed) > 250
    assert others == "0 failed, 0 not applicable", done.stdout
    assert page.read_text().count("| pass |  |") == int(passed)


@NEEDS_SWITCH
def test_packets_go_through_the_cpu_port_where_no_port_is_named(address: str) -> None:
    done = run("--address", address, "--section", "9.5", "--section", "v1.ways", "--section", "v1.control")
    assert done.returncode == 0, done.stdout + done.stderr
    passed, away = re.findall(r"(\d+) passed, 0 failed, (\d+) not applicable", done.stdout)[0]
    assert int(passed) > 20
    assert int(away) == done.stdout.count("and none is named") > 0


@NEEDS_SWITCH
def test_a_server_that_does_otherwise_fails(address: str) -> None:
    done = run("--address", address, "--device-id", "7", "--section", "5.3", "--only", "first")
    assert done.returncode == 1
    assert "NOT_FOUND" in done.stdout
    assert "0 passed, 1 failed" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--address", "127.0.0.1:9"], "nothing listens at 127.0.0.1:9"),
        (["--address", "127.0.0.1"], "is not HOST:PORT"),
        (["--address", "127.0.0.1:9", "--port", "1"], "--port 1 is not N@INTERFACE"),
        (["--address", "127.0.0.1:9", "--cert", "x"], "name all three"),
        (["--target", "apswitch", "--section", "99"], "--section 99 is unknown"),
        (["--target", "apswitch", "--only", "no such thing"], "no check is selected"),
        ([], "one of the arguments --target --address --list is required"),
    ],
)
def test_what_cannot_be_run_is_named(options: list[str], words: str) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
