# SPDX-License-Identifier: Apache-2.0
"""What the P4Runtime tests share: a running switch, its clients and their programs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported as files, so that these are not beside them
from p4rt_client import WAIT, Client, Program
from p4rt_switch import ROOT, free_address, start_switch, wait_until_it_listens


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
        try:
            process.communicate(timeout=WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


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
