# SPDX-License-Identifier: Apache-2.0
"""Log of apswitch: who connects, who is primary, what is refused, whom it lost; colours on terminals only."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from finsy.proto import p4r

from accesspoint.checks.harness.apswitch import BINARY, free_address, wait_until_it_listens
from accesspoint.checks.harness.p4runtime import WAIT, Client, Program, delete
from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.requirements import ROOT

Start = Callable[..., tuple[str, Path]]
PLAIN = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
STUCK_CLIENT = """
import sys
from accesspoint.checks.harness.p4runtime import Client
Client(sys.argv[1]).become_primary()
print("primary", flush=True)
input()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a switch with options; return its address and the file with its log."""
    started: list[subprocess.Popen] = []

    def switch(*options: str) -> tuple[str, Path]:
        address, log = free_address(), tmp_path / f"log{len(started)}"
        command = [BINARY, "--no-p4", "--grpc-server-addr", address, *options]
        with log.open("wb") as target:
            started.append(subprocess.Popen(command, stderr=target, env=PLAIN))
        wait_until_it_listens(address, started[-1])
        return address, log

    yield switch
    for process in started:
        process.terminate()
        process.wait(WAIT)


def test_log_in_a_file_or_a_pipe_has_no_colours(start: Start) -> None:
    _, log = start()
    assert eventually(lambda: "P4Runtime on" in log.read_text())
    assert "\x1b" not in log.read_text()


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)]
)
def test_log_on_a_terminal_has_colours_unless_no_color(environment: dict[str, str], coloured: bool) -> None:
    ours, theirs = pty.openpty()
    address = free_address()
    command = [BINARY, "--no-p4", "--grpc-server-addr", address]
    process = subprocess.Popen(command, stderr=theirs, env=PLAIN | environment)
    os.close(theirs)
    try:
        line = b""
        while b"P4Runtime on" not in line:
            line += os.read(ours, 4096)
        assert (b"\x1b[" in line) is coloured
    finally:
        process.terminate()
        process.wait(WAIT)
        os.close(ours)


def test_clients_are_logged_with_their_addresses(start: Start, entities: Program) -> None:
    address, log = start("-L", "debug")
    first, second = Client(address, program=entities), Client(address)
    first.become_primary(5)
    second.arbitrate(3)
    second.status()
    first.push(program=entities)
    absent = delete(entities.entry("exact_table", []))
    assert first.outcomes(absent) != [0]
    with pytest.raises(Exception, match="only the primary"):
        second.write(absent)
    for client in (first, second):
        # With answers under way the connection would end by a reset.
        client.outgoing.put(None)
        assert client.reader
        client.reader.join()
    first.close()
    second.close()
    assert eventually(lambda: log.read_text().count("disconnected: closed by the client") == 2)
    text = log.read_text()
    # gRPC gives the clients of a process one connection; the other one looked if the switch listens.
    (port,) = re.findall(r"INFO client 127\.0\.0\.1:(\d+): primary of the default role with election id 5\n", text)
    for line in (
        "connected",
        "backup of the default role with election id 3",
        "Write refused: 1 of 1 failed; the first is number 1: ",
        "Write refused: only the primary may do this",
        "stream as primary of the default role with election id 5 ended: ",
        "stream as backup of the default role with election id 3 ended: ",
        "disconnected: closed by the client",
    ):
        assert text.count(f"INFO client 127.0.0.1:{port}: {line}") == 1, f"{line}\n{text}"
    assert "frame" not in text.lower(), "HTTP/2 is for -L trace alone"


def test_trace_shows_the_frames_of_http2(start: Start) -> None:
    address, log = start("-L", "trace")
    client = Client(address).become_primary()
    client.close()
    assert eventually(lambda: "received frame" in log.read_text())


def test_clients_do_not_fill_the_log(start: Start) -> None:
    address, log = start()
    client = Client(address).become_primary()
    # All on their way at once: the log has some lines for each second, and a busy machine takes many seconds.
    request = p4r.WriteRequest(device_id=1, election_id={"low": 1})
    for call in [client.stub.Write.future(request, timeout=3 * WAIT) for _ in range(1000)]:
        assert "no forwarding pipeline" in call.exception().details()
    client.close()
    assert eventually(lambda: "disconnected" in log.read_text() or "more lines" in log.read_text())
    assert log.read_text().count("Write refused") < 1000


@pytest.mark.long  # the switch waits for 10 s
def test_stopped_client_is_said_to_be_lost(start: Start) -> None:
    address, log = start()
    command = [sys.executable, "-c", STUCK_CLIENT, address]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    client = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
    assert client.stdout
    try:
        assert client.stdout.readline() == "primary\n"
        client.send_signal(signal.SIGSTOP)
        assert eventually(lambda: "disconnected: no answer for" in log.read_text(), 120)
        assert "stream as primary of the default role with election id 1 ended: " in log.read_text()
    finally:
        client.kill()
        client.communicate()
