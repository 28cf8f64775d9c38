# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the P4Runtime tests: a running switch, its clients and their programs."""

from collections.abc import Iterator
from typing import Any

import pytest

from accesspoint.checks.conformance.fixture import PROGRAMS, load
from accesspoint.checks.harness.apswitch import ROOT, free_address, running, start_switch
from accesspoint.checks.harness.p4runtime import Client, Program


@pytest.fixture(scope="session")
def entities() -> Program:
    """The conformance suite's program with one of everything."""
    return load(PROGRAMS, "entities")


@pytest.fixture(scope="session")
def access_point() -> Program:
    return Program(ROOT / "p4src/compiled/ap.json", ROOT / "p4src/compiled/ap.p4info.txtpb")


@pytest.fixture
def address() -> Iterator[str]:
    """Address of a running switch without program and interfaces."""
    address = free_address()
    with running(address, start_switch(address)):
        yield address


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
def client(connect: Any, entities: Program) -> Client:
    """Return a primary with the program `entities` running."""
    client = connect(program=entities).become_primary()
    client.push(program=entities)
    return client
