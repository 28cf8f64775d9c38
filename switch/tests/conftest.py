# SPDX-License-Identifier: Apache-2.0
"""What the P4Runtime tests share: the real binary, without interfaces, and its clients."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported as files, so that p4rt_client is not beside them
from p4rt_client import WAIT, Client, Program

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("APSWITCH", ROOT / "switch/target/release/apswitch"))
CPU_PORT = 510


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def start_switch(address: str, *options: str) -> subprocess.Popen:
    if not BINARY.exists():
        pytest.fail(f"{BINARY} is missing; build it with: make switch")
    command = [str(BINARY), "--no-p4", "--device-id", "1", *options]
    command += ["--", "--grpc-server-addr", address, "--cpu-port", str(CPU_PORT)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_it_listens(address: str, process: subprocess.Popen) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + WAIT
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port))).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.01)
    process.kill()
    pytest.fail(f"the switch does not listen: {process.communicate()[1]}")


@pytest.fixture(scope="session")
def kinds() -> Program:
    """A small program with one of everything: programs/kinds.p4."""
    programs = Path(__file__).parent / "programs"
    return Program(programs / "kinds.json", programs / "kinds.p4info.txtpb")


@pytest.fixture(scope="session")
def access_point() -> Program:
    return Program(ROOT / "p4src/ap.json", ROOT / "p4src/ap.p4info.txtpb")


@pytest.fixture
def address() -> Iterator[str]:
    """Where a switch without program and interfaces listens."""
    address = free_address()
    process = start_switch(address)
    try:
        wait_until_it_listens(address, process)
        yield address
        assert process.poll() is None, f"the switch ended by itself: {process.communicate()[1]}"
    finally:
        process.terminate()
        process.communicate(timeout=WAIT)


@pytest.fixture
def connect(address: str) -> Iterator[Any]:
    """Opens clients: `connect(role="...")`."""
    clients: list[Client] = []

    def open_client(**options: Any) -> Client:
        clients.append(Client(address, **options))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Any, kinds: Program) -> Client:
    """A primary with the program `kinds` running."""
    client = connect(program=kinds).become_primary()
    client.push(program=kinds)
    return client
