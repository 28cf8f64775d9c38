# SPDX-License-Identifier: Apache-2.0
"""Section 5: the primary, and the notifications to all clients."""

import grpc
from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.fixture import Fixture
from accesspoint.checks.conformance.suite import NotApplicable, check, expect, fail
from accesspoint.checks.harness.p4runtime import Client, exact, insert, name_of

OK, BACKUP, NO_PRIMARY = rpc_code.OK, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND


def told(client: Client, code: int, highest: int | None, who: str) -> None:
    """The next arbitration message has that code and that election id."""
    found, seen = client.status()
    expect((name_of(found), seen), (name_of(code), highest), f"what {who} is told")


def ends(client: Client, *codes: grpc.StatusCode) -> None:
    """The server ends the stream with one of the codes."""
    try:
        message = client.receive("arbitration")
    except grpc.RpcError as failure:
        wanted = " or ".join(code.name for code in codes)
        if failure.code() not in codes:
            fail(f"the stream ends with {failure.code().name} instead of {wanted}")
    else:
        fail(f"the stream goes on, with status {name_of(message.status.code)}")


def denied(client: Client, fixture: Fixture, why: str) -> None:
    """A Write of this client is refused."""
    entry = fixture.entry("lpm_table", action=("say", 1))
    try:
        client.write(insert(entry))
    except grpc.RpcError as failure:
        expect(failure.code(), grpc.StatusCode.PERMISSION_DENIED, f"Write by {why}")
    else:
        fail(f"Write by {why} is taken")


@check("5.3", "the first client with an election id becomes primary", None)
def first_is_primary(fixture: Fixture) -> None:
    client = fixture.connect()
    number = fixture.next_election()
    client.arbitrate(number)
    told(client, OK, number, "the client")


@check("5.3", "a client without an election id never becomes primary", None)
def no_id_is_backup(fixture: Fixture) -> None:
    number = fixture.next_election()
    primary = fixture.connect().become_primary(number)
    backup = fixture.connect()
    backup.arbitrate(None)
    told(backup, BACKUP, number, "the client without an election id")
    expect(primary.receives_nothing(), True, "the primary is not told of a backup")


@check("5.3", "a lower election id makes a backup, whose Write is denied")
def lower_is_backup(fixture: Fixture) -> None:
    backup = fixture.connect(program=fixture.program)
    backup.arbitrate(fixture.election - 5)
    told(backup, BACKUP, fixture.election, "the backup")
    denied(backup, fixture, "a backup")


@check("5.3", "a higher election id takes over; the old primary is told and denied")
def higher_takes_over(fixture: Fixture) -> None:
    old, number = fixture.client, fixture.next_election()
    new = fixture.connect(program=fixture.program)
    new.arbitrate(number)
    told(old, BACKUP, number, "the old primary")
    told(new, OK, number, "the new primary")
    denied(old, fixture, "the old primary")
    fixture.client = new
    fixture.insert(fixture.entry("lpm_table", action=("say", 1)))


@check("5.3", "election ids are 128 bits wide")
def wide_ids(fixture: Fixture) -> None:
    high = (1 << 64) + fixture.next_election()
    client = fixture.connect(program=fixture.program)
    client.arbitrate(high)
    told(fixture.client, BACKUP, high, "the old primary")
    told(client, OK, high, "the client with high = 1")
    low = fixture.connect()
    low.arbitrate((1 << 64) - 1)
    told(low, BACKUP, high, "the client with the highest low half")
    fixture.client = client
    fixture.remember_election(high)


@check("5.3", "an election id that another live client has ends the stream", None)
def used_id(fixture: Fixture) -> None:
    number = fixture.next_election()
    fixture.connect().become_primary(number)
    second = fixture.connect()
    second.arbitrate(number)
    ends(second, grpc.StatusCode.INVALID_ARGUMENT)


@check("5.3", "an unknown device ends the stream with NOT_FOUND", None)
def unknown_device(fixture: Fixture) -> None:
    client = fixture.connect(device_id=fixture.place.device_id + 77)
    client.arbitrate(fixture.next_election())
    ends(client, grpc.StatusCode.NOT_FOUND)


@check("5.3", "another device on the same stream ends it with FAILED_PRECONDITION", None)
def other_device(fixture: Fixture) -> None:
    number = fixture.next_election()
    client = fixture.connect().become_primary(number)
    client.arbitrate(number, device_id=fixture.place.device_id + 77)
    ends(client, grpc.StatusCode.FAILED_PRECONDITION)


@check("5.3", "another role on the same stream ends it with FAILED_PRECONDITION", None)
def other_role(fixture: Fixture) -> None:
    number = fixture.next_election()
    client = fixture.connect().become_primary(number)
    client.arbitrate(number, role={"name": "another"})
    ends(client, grpc.StatusCode.FAILED_PRECONDITION)


@check("5.3", "a primary may raise its election id and stays primary", None)
def raises_its_id(fixture: Fixture) -> None:
    client = fixture.connect().become_primary(fixture.next_election())
    number = fixture.next_election()
    client.arbitrate(number)
    told(client, OK, number, "the client")


@check("5.3", "a primary that lowers its election id leaves none; it comes back with the highest")
def downgrade(fixture: Fixture) -> None:
    client, number = fixture.client, fixture.election
    backup = fixture.connect()
    backup.arbitrate(number - 5)
    told(backup, BACKUP, number, "the backup")
    client.arbitrate(number - 3)
    told(client, NO_PRIMARY, number, "the client that stepped down")
    told(backup, NO_PRIMARY, number, "the backup, when the primary stepped down")
    denied(client, fixture, "a client that stepped down")
    client.arbitrate(number)
    told(client, OK, number, "the client that came back")


@check("5.4", "backups are told when the primary disconnects, with the highest election id", None)
def primary_leaves(fixture: Fixture) -> None:
    number = fixture.next_election()
    primary, backup = fixture.connect().become_primary(number), fixture.connect()
    backup.arbitrate(number - 5)
    told(backup, BACKUP, number, "the backup")
    primary.close()
    told(backup, NO_PRIMARY, number, "the backup, when the primary left")
    backup.arbitrate(number - 1)
    told(backup, NO_PRIMARY, number, "the backup with an id below the highest")
    backup.arbitrate(number)
    told(backup, OK, number, "the backup with the highest id")


@check("5.4", "entries outlive the client that wrote them")
def state_outlives(fixture: Fixture) -> None:
    entry = fixture.entry("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_say", 5))
    fixture.insert(entry)
    fixture.client.close()
    heir = fixture.connect(program=fixture.program)
    fixture.client = heir.become_primary(fixture.next_election())
    fixture.found(fixture.entry("exact_table"), [entry], "after a change of the primary")


def roles(fixture: Fixture, name: str) -> Client:
    """A primary of a role. Raises NotApplicable where there are none."""
    client = fixture.connect(role=name, program=getattr(fixture, "program", None))
    try:
        client.arbitrate(1)
        status = client.status()
    except grpc.RpcError as failure:
        if failure.code() == grpc.StatusCode.UNIMPLEMENTED:
            raise NotApplicable("the server knows no roles (UNIMPLEMENTED)") from None
        raise
    expect(status, (OK, 1), f"code and election id of the first client of role {name}")
    return client


@check("5.1", "each role has a primary of its own")
def roles_apart(fixture: Fixture) -> None:
    roles(fixture, "conformance-a").write()
    expect(fixture.client.receives_nothing(), True, "the default role hears nothing of another role")
    other = fixture.connect(role="conformance-b")
    other.arbitrate(1)
    told(other, OK, 1, "the first client of another role")
    fixture.insert(fixture.entry("lpm_table", action=("say", 1)))


@check("5.1", "Write with a role that nobody has named is NOT_FOUND")
def unknown_role(fixture: Fixture) -> None:
    roles(fixture, "conformance-c")
    try:
        fixture.client.write(insert(fixture.entry("lpm_table", action=("say", 1))), role="conformance-unheard")
    except grpc.RpcError as failure:
        expect(failure.code(), grpc.StatusCode.NOT_FOUND, "Write with an unknown role")
    else:
        fail("Write with an unknown role is taken")


@check("5.1", "the primary of one role is not primary of another")
def role_of_another(fixture: Fixture) -> None:
    roles(fixture, "conformance-d")
    wrong = fixture.election
    try:
        fixture.client.write(insert(fixture.entry("lpm_table", action=("say", 1))), role="conformance-d")
    except grpc.RpcError as failure:
        expect(failure.code(), grpc.StatusCode.PERMISSION_DENIED, f"Write for a role with id {wrong} of another")
    else:
        fail("Write with the election id of another role's primary is taken")


@check("5.2", "a role config that nobody agreed on is INVALID_ARGUMENT")
def unknown_config(fixture: Fixture) -> None:
    client = fixture.connect(role="conformance-e")
    config = {"type_url": "type.googleapis.com/p4.v1.Unheard", "value": b"\1"}
    client.arbitrate(1, role=p4r.Role(name="conformance-e", config=config))
    ends(client, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
