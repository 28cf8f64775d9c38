# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: apswitch passes it, a server that does otherwise fails, bad options are named."""

import contextlib
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

from accesspoint.checks.harness.certificates import Authority

ROOT = Path(__file__).parent.parent
APSWITCH = ROOT / "target/release/apswitch"
NEEDS_SWITCH = pytest.mark.skipif(not APSWITCH.exists(), reason="apswitch is missing; build it with: make switch")
MAX_WAIT = 30.0  # s


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """Patient: what passes does not wait, however busy the machine is."""
    command = [sys.executable, "-m", "accesspoint.checks.conformance", "--wait", "60", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800)


@contextlib.contextmanager
def listening(*options: str) -> Iterator[str]:
    """Run an apswitch without ports; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    command: list[str | Path] = [APSWITCH, "--no-p4", "--grpc-server-addr", address, "--cpu-port", "510", *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + MAX_WAIT
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
        process.wait(timeout=MAX_WAIT)


@pytest.fixture
def address() -> Iterator[str]:
    with listening() as address:
        yield address


@NEEDS_SWITCH
@pytest.mark.timeout(900)  # 20 s on an idle machine
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


@NEEDS_SWITCH
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is missing: apt-get install openssl")
def test_a_server_with_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    cert, key = map(str, authority.certificate("switch"))
    own_cert, own_key = map(str, authority.certificate("client"))
    ca = str(authority.ca)
    with listening("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca) as address:
        asked = ["--address", address, "--section", "17"]
        done = run(*asked, "--ca", ca, "--cert", own_cert, "--key", own_key)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 passed, 0 failed" in done.stdout
        stranger = run(*asked)
        assert stranger.returncode == 2
        assert f"error: {address} does not speak gRPC" in stranger.stderr


@NEEDS_SWITCH
@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@pytest.mark.skipif(not shutil.which("unshare"), reason="unshare is missing; install util-linux")
def test_ports_of_a_server_that_runs_already() -> None:
    script = f"""
        ip link set lo up
        for port in 1 2; do
            ip link add switch$port type veth peer name host$port
            for end in switch host; do
                echo 1 >/proc/sys/net/ipv6/conf/$end$port/disable_ipv6
                ip link set $end$port up
            done
        done
        {APSWITCH} --no-p4 -i 1@switch1 -i 2@switch2 --grpc-server-addr 127.0.0.1:9559 --cpu-port 510 &
        until (: </dev/tcp/127.0.0.1/9559) 2>/dev/null; do sleep 0.05; done
        {sys.executable} -m accesspoint.checks.conformance --address 127.0.0.1:9559 --port 1@host1 --port 2@host2 \\
            --section 9.5 --section 16
    """
    # The process namespace ends what is left in it when the shell ends.
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed, 0 not applicable" in done.stdout


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
