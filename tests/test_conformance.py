# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: apswitch passes it, a server that does otherwise fails, bad options are named."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from accesspoint.checks.conformance.against.programs import CASES, CLONE
from accesspoint.checks.conformance.against.run import Verdict, judge
from accesspoint.checks.conformance.against.sides import Outputs, numbered
from accesspoint.checks.conformance.fixture import request_frame
from accesspoint.checks.harness.apswitch import BINARY, ROOT, free_address, running, start_switch
from accesspoint.checks.harness.certificates import Authority

NEEDS_SWITCH = pytest.mark.skipif(not BINARY.exists(), reason="apswitch is missing; build it with: make switch")


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """Patient: what passes does not wait, however busy the machine is."""
    command = [sys.executable, "-m", "accesspoint.checks.conformance", "--wait", "60", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800)


@contextlib.contextmanager
def listening(*options: str) -> Iterator[str]:
    """Run an apswitch without ports; yield its address."""
    address = free_address()
    with running(address, start_switch(address, *options)):
        yield address


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
        {BINARY} --no-p4 -i 1@switch1 -i 2@switch2 --grpc-server-addr 127.0.0.1:9559 --cpu-port 510 &
        until (: </dev/tcp/127.0.0.1/9559) 2>/dev/null; do sleep 0.05; done
        {sys.executable} -m accesspoint.checks.conformance --address 127.0.0.1:9559 --port 1@host1 --port 2@host2 \\
            --section 9.5 --section 16 --wait 60
    """
    # The process namespace ends what is left in it when the shell ends.
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
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
        (["--list", "--against", "apswitch"], "--against compares two targets"),
        (["--target", "apswitch", "--against", "apswitch", "--program", "x"], "--program x is unknown; there are ap,"),
        ([], "one of the arguments --target --address --list is required"),
    ],
)
def test_what_cannot_be_run_is_named(options: list[str], words: str) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@NEEDS_SWITCH
@pytest.mark.skipif(os.geteuid() != 0, reason="veth pairs need root")
def test_target_against_its_like_differs_in_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    some = ["--packets", "60", "--program", "entities", "--program", "wide"]
    done = run("--target", "apswitch", "--against", "apswitch", *some, "--markdown", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    left = dict(re.findall(r"(\w+): 60 packets, (\d+) frames, 0 differ, 0 without a reason", done.stdout))
    assert set(left) == {"entities", "wide"} and all(int(count) > 30 for count in left.values())
    assert re.search(r"^\| entities \| 60 \| \d+ \| \d+ \| \d+ \| 0 \| 0 \| 0 \|$", page.read_text(), re.M)


@NEEDS_SWITCH
@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="veth pairs need root")
@pytest.mark.skipif(not shutil.which("simple_switch_grpc"), reason="simple_switch_grpc is missing; install BMv2")
def test_apswitch_against_bmv2_differs_for_known_reasons_only() -> None:
    done = run("--target", "apswitch", "--against", "bmv2", "--packets", "400")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"features: 400 packets, \d+ frames, [1-9]\d* differ, 0 without a reason", done.stdout)


def test_difference_without_a_reason_fails_the_comparison() -> None:
    case = next(case for case in CASES if case.name == "entities")
    sent = [(1, numbered(request_frame(bytes(6), op), number)) for number, op in enumerate((1, CLONE))]

    def outputs(*changed: int) -> Outputs:
        """Return each packet as it came; byte 24, the port that a copy came from, is changed in these."""
        return {
            number: Counter([(port, frame[:24] + b"\7" + frame[25:] if number in changed else frame)])
            for number, (port, frame) in enumerate(sent)
        }

    assert judge(case, sent, outputs(), outputs()) == ({}, [])
    differing, others = judge(case, sent, outputs(), outputs(0, 1))
    assert differing == {0: "", 1: "copies keep `ingress_port`"} and not others
    assert Verdict(differing=differing).failed and not Verdict(differing={1: differing[1]}).failed
    assert judge(case, sent, outputs(), {}) == ({0: "", 1: ""}, [])
    unmarked: Outputs = {None: Counter([(2, b"frame")])}
    (only_the_other,) = judge(case, sent, {}, unmarked)[1]
    assert only_the_other == "only the target [], only the other ['port 2: 6672616d65']"
