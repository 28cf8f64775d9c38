# SPDX-License-Identifier: Apache-2.0
"""BMv2's command line: every option of the real programs is taken, and clients find what they wait for."""

import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from accesspoint.checks.harness.apswitch import BINARY, free_address, wait_until_it_listens
from accesspoint.checks.harness.p4runtime import WAIT, Client
from accesspoint.checks.harness.waiting import eventually, free_port
from accesspoint.topologies.requirements import ROOT

OURS = BINARY.with_name("simple_switch_grpc")
PAGE = ROOT / "docs/switch/bmv2.md"
Start = Callable[..., Path]


def options(program: str | Path) -> set[str]:
    """Return the options that `--help` lists."""
    said = subprocess.run([program, "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"^ +(?:-\w(?: \[|, ))?(--[a-z0-9-]+)", said, re.M))


@pytest.fixture(autouse=True)
def built() -> None:
    if not OURS.exists():
        pytest.fail(f"{OURS} is missing; build it with: make switch")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the switch with BMv2's options until the address listens; return the file with its output."""
    started: list[subprocess.Popen] = []

    def switch(address: str, *words: str) -> Path:
        output = tmp_path / f"output{len(started)}"
        with output.open("wb") as target:
            started.append(subprocess.Popen([OURS, *words], stdout=target, stderr=subprocess.DEVNULL, cwd=tmp_path))
        wait_until_it_listens(address, started[-1])
        return output

    yield switch
    for process in started:
        process.terminate()
        process.wait(WAIT)


@pytest.mark.parametrize("name", ["simple_switch", "simple_switch_grpc"])
def test_options_of_the_real_program_are_all_taken(name: str) -> None:
    real = shutil.which(name)
    if not real or "apswitch" in subprocess.run([real, "--version"], capture_output=True, text=True).stdout:
        pytest.skip(f"BMv2's {name} is not on PATH")
    listed = options(real)
    assert {"--log-console", "--drop-port"} <= listed
    assert listed <= options(OURS)


def test_page_has_every_option() -> None:
    assert options(OURS) - set(re.findall(r"`(--[a-z0-9-]+)", PAGE.read_text())) == set()


def test_switch_started_as_bmv2_has_its_defaults(start: Start) -> None:
    address, thrift = free_address(), free_port()
    port = address.partition(":")[2]
    output = start(
        address,
        *("--no-p4", "--log-console", "--nanolog", "ipc:///tmp/bm-0-log.ipc", "--thrift-port", str(thrift)),
        *("--", "--grpc-server-addr", f"0.0.0.0:{port}", "--cpu-port", "255"),
    )
    assert eventually(lambda: "P4Runtime on" in output.read_text())
    for line in (
        "WARN --nanolog has no effect: packets are not reported over nanomsg",
        f"WARN any client that reaches 0.0.0.0:{port} controls the switch",
        f"device 0: 0 ports, P4Runtime on 0.0.0.0:{port}",
    ):
        assert line in output.read_text()
    client = Client(address, device_id=0).become_primary()
    client.close()


def call(port: int, name: bytes) -> bytes:
    """Return the answer to a call of BMv2's runtime interface without arguments."""
    with socket.create_connection(("127.0.0.1", port), WAIT) as client:
        client.sendall(struct.pack(">HHI", 0x8001, 1, len(name)) + name + struct.pack(">IB", 7, 0))
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(4096), b""))


def test_thrift_is_served_at_bmv2s_port(start: Start) -> None:
    address, thrift = free_address(), free_port()
    words = ("--no-p4", "--log-console", "--thrift-port", str(thrift), "--", "--grpc-server-addr", address)
    output = start(address, "--device-id", "5", *words)
    assert eventually(lambda: f"Thrift on 127.0.0.1:{thrift}" in output.read_text())
    # Whatever comes, the next client is answered.
    with socket.create_connection(("127.0.0.1", thrift), WAIT) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
    # A reply with a struct, the first field of which is the device id.
    answer = call(thrift, b"standard:bm_mgmt_get_info")
    start_of = b"\x80\x01\x00\x02" + struct.pack(">I", 16) + b"bm_mgmt_get_info" + struct.pack(">I", 7)
    assert answer.startswith(start_of + b"\x0c\x00\x00" + struct.pack(">bhq", 10, 1, 5))
    # The log says why a call is refused, which a code alone does not tell the client.
    call(thrift, b"standard:bm_mt_get_num_entries")
    assert eventually(lambda: "bm_mt_get_num_entries is refused: argument 2 is missing" in output.read_text())


@pytest.mark.long  # the switch waits for 10 s
def test_thrift_call_that_does_not_end_leaves_its_place(start: Start) -> None:
    address, thrift = free_address(), free_port()
    output = start(
        address, *("--no-p4", "--log-console", "--thrift-port", str(thrift)), "--", "--grpc-server-addr", address
    )
    assert eventually(lambda: f"Thrift on 127.0.0.1:{thrift}" in output.read_text())

    def is_served() -> bool:
        with suppress(OSError):
            return b"bm_mgmt_get_info" in call(thrift, b"standard:bm_mgmt_get_info")
        return False

    with ExitStack() as held:
        for _ in range(64):
            client = held.enter_context(socket.create_connection(("127.0.0.1", thrift), WAIT))
            client.sendall(b"\x80")
        assert not is_served()
        assert eventually(is_served, pause=0.5)
    assert "Thrift: disconnected: a call did not end within 10 s" in output.read_text()


def test_several_simple_switches_run_side_by_side(tmp_path: Path) -> None:
    """As p4-utils starts them: with a Thrift port each, and without an address of P4Runtime."""
    ports = [free_port(), free_port()]
    started = []
    try:
        for number, port in enumerate(ports):
            address = f"ipc://{tmp_path}/{number}.ipc"
            words = ["--no-p4", "--thrift-port", str(port), "--notifications-addr", address]
            binary = BINARY.with_name("simple_switch")
            started.append(subprocess.Popen([binary, *words], stderr=subprocess.DEVNULL, cwd=tmp_path))
        for number, port in enumerate(ports):
            wait_until_it_listens(f"127.0.0.1:{port}", started[number])
            assert f"{tmp_path}/{number}.ipc".encode() in call(port, b"standard:bm_mgmt_get_info")
    finally:
        for process in started:
            process.terminate()
            process.wait(WAIT)
    assert list(tmp_path.iterdir()) == [], "the sockets are gone"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--no-p4", "--log-console", "--log-file", "x"], "--log-console and --log-file are exclusive"),
        (["--no-p4", "--", "--cpu-port", "0"], "--cpu-port 0 is not valid"),
        (["--no-p4", "--rubbish"], "unexpected argument '--rubbish'"),
        ([], "--no-p4"),
    ],
)
def test_bad_line_is_refused_with_its_fix(words: list[str], said: str) -> None:
    done = subprocess.run([OURS, *words], capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 2 and said in done.stderr


def test_versions_are_printed() -> None:
    said = [
        subprocess.run([OURS, word], capture_output=True, text=True, check=True).stdout
        for word in ("--version", "--json-version")
    ]
    assert re.fullmatch(r"apswitch \d+\.\d+\.\d+\n", said[0]) and re.fullmatch(r"2\.\d+\n", said[1])
