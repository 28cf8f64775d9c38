# SPDX-License-Identifier: Apache-2.0
"""Sections 10, 12 and 13: errors, batches, reading."""

from typing import Any

import grpc
from finsy.proto import p4r, rpc_code, rpc_status

from accesspoint.checks.conformance.checks.tables import EXACT, exact_entry, say
from accesspoint.checks.conformance.fixture import Fixture, entity
from accesspoint.checks.conformance.suite import NotApplicable, check, expect, fail
from accesspoint.checks.harness.p4runtime import delete, errors, exact, insert, modify, name_of, update

INVALID, EXISTS, MISSING = rpc_code.INVALID_ARGUMENT, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND


def failure_of(fixture: Fixture, *updates: p4r.Update, **changes: Any) -> grpc.RpcError:
    """The error of a Write that has to fail."""
    try:
        fixture.client.write(*updates, **changes)
    except grpc.RpcError as failure:
        return failure
    return fail("the Write is taken")


@check("10", "a batch with errors is UNKNOWN, with a p4.v1.Error for each update in its order")
def batch_errors(fixture: Fixture) -> None:
    good, absent = exact_entry(fixture, 1), exact_entry(fixture, 2)
    failure = failure_of(
        fixture, insert(good), delete(absent), insert(exact_entry(fixture, 3)), insert(p4r.TableEntry())
    )
    expect(failure.code(), grpc.StatusCode.UNKNOWN, "the batch's code")
    codes = [one.canonical_code for one in errors(failure)]
    expect(codes[:3], [rpc_code.OK, MISSING, rpc_code.OK], "the codes of the first three updates")
    if codes[3] not in (INVALID, MISSING):
        fail(f"the code of an entry without a table is {name_of(codes[3])} instead of INVALID_ARGUMENT or NOT_FOUND")


@check("10", "the details repeat the status's code and message")
def details_repeat(fixture: Fixture) -> None:
    failure = failure_of(fixture, delete(exact_entry(fixture, 1)))
    trailers = dict(failure.trailing_metadata())
    if "grpc-status-details-bin" not in trailers:
        fail("the status has no details")
    status = rpc_status.Status.FromString(trailers["grpc-status-details-bin"])
    expect((status.code, status.message), (failure.code().value[0], failure.details()), "code and message")


@check("10", "an error that concerns the request has no details")
def no_details(fixture: Fixture) -> None:
    failure = failure_of(fixture, insert(exact_entry(fixture, 1)), device_id=fixture.place.device_id + 77)
    expect(failure.code(), grpc.StatusCode.NOT_FOUND, "Write to an unknown device")
    expect("grpc-status-details-bin" in dict(failure.trailing_metadata()), False, "there are details")


@check("10", "errors have a message for developers")
def messages(fixture: Fixture) -> None:
    failure = failure_of(fixture, insert(fixture.entry("exact_table", [exact(1, 1)], ("count_and_say", 1))))
    (error,) = errors(failure)
    expect(bool(error.message), True, "the error has a message")


@check("12", "CONTINUE_ON_ERROR tries every update")
def continue_on_error(fixture: Fixture) -> None:
    entries = [exact_entry(fixture, number) for number in (1, 2)]
    failure = failure_of(fixture, insert(entries[0]), insert(entries[0]), insert(entries[1]))
    codes = sorted(one.canonical_code for one in errors(failure))
    expect(codes, [rpc_code.OK, rpc_code.OK, EXISTS], "the codes of the updates")
    fixture.found(fixture.entry("exact_table"), entries, "entries after the batch")


@check("12", "updates of a batch may concern any entities")
def mixed_batch(fixture: Fixture) -> None:
    entry, group = exact_entry(fixture, 1), fixture.group(5, (fixture.home, 1))
    cell = p4r.CounterEntry(counter_id=fixture.program.id("counters", "requests"), index={"index": 1})
    written = p4r.CounterEntry(counter_id=cell.counter_id, index=cell.index, data={"packet_count": 5})
    fixture.client.write(insert(entry), update("INSERT", **entity(group)), update("MODIFY", **entity(written)))
    fixture.found(fixture.entry("exact_table"), [entry], "the entry")
    expect(fixture.read(cell)[0].data.packet_count, 5, "the counter")
    fixture.client.write(update("DELETE", **entity(group)))


@check("12", "an entry and its direct resources may be written in one batch")
def direct_batch(fixture: Fixture) -> None:
    entry = exact_entry(fixture, 1)
    fixture.insert(entry)
    counter = p4r.DirectCounterEntry(table_entry=entry, data={"packet_count": 5})
    changed = exact_entry(fixture, 1, value=9)
    fixture.client.write(modify(changed), update("MODIFY", direct_counter_entry=counter))
    (found,) = fixture.read(fixture.entry("exact_table", counter_data={}))
    expect((found.counter_data.packet_count, found.action == changed.action), (5, True), "counter, and new action")


@check("12", "an empty batch is taken")
def empty_batch(fixture: Fixture) -> None:
    fixture.client.write()


@check("12", "batches take effect in the order in which they are sent")
def batches_in_order(fixture: Fixture) -> None:
    entries = [say(fixture, "ternary_table", 1, exact(2, number), priority=number + 1) for number in range(16)]
    updates: list[p4r.Update] = []
    for _ in range(8):
        fixture.client.write(*updates, *map(insert, entries[:8]))
        fixture.client.write(*map(delete, entries[:8]), *map(insert, entries[8:]))
        updates = list(map(delete, entries[8:]))
    fixture.found(fixture.entry("ternary_table"), entries[8:], "entries after 16 batches")
    expect([fixture.ask(3, a).value for a in (5, 9)], [7, 1], "answers of one that was deleted and one that was not")


@check("12", "an update without type or entity is INVALID_ARGUMENT, and harms no other")
def bad_updates(fixture: Fixture) -> None:
    entry = exact_entry(fixture, 1)
    unspecified = update("UNSPECIFIED", table_entry=exact_entry(fixture, 2))
    failure = failure_of(fixture, unspecified, p4r.Update(type="INSERT"), insert(entry))
    codes = [name_of(one.canonical_code) for one in errors(failure)]
    expect(codes, ["INVALID_ARGUMENT", "INVALID_ARGUMENT", "OK"], "the codes of the updates")


@check("12", "ids that the P4Info does not have, and entities that name nothing, are refused")
def unknown_ids(fixture: Fixture) -> None:
    unknown = 0xFFFFFF
    for message in (
        p4r.CounterEntry(counter_id=unknown, data={"packet_count": 1}),
        p4r.MeterEntry(meter_id=unknown),
        p4r.RegisterEntry(register_id=unknown, data={"bitstring": b"\1"}),
        p4r.ActionProfileMember(action_profile_id=unknown, member_id=1),
        p4r.ActionProfileGroup(action_profile_id=unknown, group_id=1),
        p4r.ValueSetEntry(value_set_id=unknown),
        p4r.DirectCounterEntry(),
        p4r.PacketReplicationEngineEntry(),
    ):
        indexed = isinstance(message, p4r.CounterEntry | p4r.MeterEntry | p4r.RegisterEntry)
        operation = "MODIFY" if indexed or isinstance(message, p4r.ValueSetEntry | p4r.DirectCounterEntry) else "INSERT"
        fixture.refused(operation, message, INVALID, MISSING, why=f"a {type(message).__name__} of nothing")


@check("12", "the device is looked at before the election id")
def order_of_checks(fixture: Fixture) -> None:
    wrong = {"device_id": fixture.place.device_id + 77, "election_id": {"low": 1}}
    failure = failure_of(fixture, insert(exact_entry(fixture, 1)), **wrong)
    expect(failure.code(), grpc.StatusCode.NOT_FOUND, "Write to an unknown device with a wrong election id")
    failure = failure_of(fixture, insert(exact_entry(fixture, 1)), election_id={"low": 1})
    expect(failure.code(), grpc.StatusCode.PERMISSION_DENIED, "Write with another election id")


@check("12", "Write without an election id is PERMISSION_DENIED while there is a primary")
def no_election_id(fixture: Fixture) -> None:
    request = p4r.WriteRequest(device_id=fixture.place.device_id, updates=[insert(exact_entry(fixture, 1))])
    try:
        fixture.client.stub.Write(request, timeout=fixture.place.wait)
    except grpc.RpcError as failure:
        expect(failure.code(), grpc.StatusCode.PERMISSION_DENIED, "Write without an election id")
    else:
        fail("Write without an election id is taken")


def atomic(fixture: Fixture, atomicity: str, *updates: p4r.Update) -> grpc.RpcError | None:
    """The error of a Write of that atomicity. Raises NotApplicable where the server does not offer it."""
    try:
        fixture.client.write(*updates, atomicity=atomicity)
    except grpc.RpcError as failure:
        if failure.code() == grpc.StatusCode.UNIMPLEMENTED:
            raise NotApplicable("the server does not offer it (UNIMPLEMENTED)") from None
        return failure
    return None


def all_or_none(fixture: Fixture, atomicity: str) -> None:
    """A batch with an error leaves everything as it was; one without is taken."""
    kept = exact_entry(fixture, 1, value=5, counter_data={"packet_count": 50})
    fixture.insert(kept)
    cell = p4r.CounterEntry(counter_id=fixture.program.id("counters", "requests"), index={"index": 1})
    written = p4r.CounterEntry(counter_id=cell.counter_id, index=cell.index, data={"packet_count": 5})
    updates = [
        insert(exact_entry(fixture, 2)),
        modify(exact_entry(fixture, 1, value=6)),
        delete(exact_entry(fixture, 9)),
    ]
    failure = atomic(fixture, atomicity, update("MODIFY", **entity(written)), *updates)
    if failure is None:
        fail("a batch with an error is taken")
    fixture.found(fixture.entry("exact_table", counter_data={}), [kept], "the entries after the failed batch")
    expect(fixture.read(cell)[0].data.packet_count, 0, "a counter after the failed batch")
    expect([fixture.ask(EXACT, a).value for a in (1, 2)], [5, 0], "answers after the failed batch")
    if atomic(fixture, atomicity, insert(exact_entry(fixture, 2)), modify(exact_entry(fixture, 1, value=6))):
        fail("a batch without an error is refused")
    expect([fixture.ask(EXACT, a).value for a in (1, 2)], [6, 1], "answers after the batch that was taken")


@check("12", "ROLLBACK_ON_ERROR: all updates or none")
def rollback_on_error(fixture: Fixture) -> None:
    all_or_none(fixture, "ROLLBACK_ON_ERROR")


@check("12", "DATAPLANE_ATOMIC: all updates or none")
def dataplane_atomic(fixture: Fixture) -> None:
    all_or_none(fixture, "DATAPLANE_ATOMIC")


@check("13", "one request reads entities of several kinds")
def several_kinds(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1), fixture.group(5, (fixture.home, 1)))
    kinds = [
        p4r.Entity(table_entry=fixture.entry("exact_table")),
        p4r.Entity(counter_entry={"counter_id": fixture.program.id("counters", "requests")}),
        p4r.Entity(packet_replication_engine_entry={"multicast_group_entry": {"multicast_group_id": 5}}),
    ]
    request = p4r.ReadRequest(device_id=fixture.place.device_id, entities=kinds)
    responses = fixture.client.stub.Read(request, timeout=fixture.place.wait)
    found = [one.WhichOneof("entity") for response in responses for one in response.entities]
    wanted = ["counter_entry"] * 8 + ["packet_replication_engine_entry", "table_entry"]
    expect(sorted(found), wanted, "kinds of the entities that are read")


@check("13", "reading needs neither a stream nor an election id")
def without_stream(fixture: Fixture) -> None:
    entry = exact_entry(fixture, 1)
    fixture.insert(entry)
    expect(
        fixture.connect().read(table_entry=fixture.entry("exact_table")),
        [entry],
        "what a client without a stream reads",
    )


def failed_read(fixture: Fixture, request: p4r.ReadRequest, what: str) -> list[int]:
    """Return the canonical codes of a Read that has to fail, of each entity where the server sends them."""
    try:
        list(fixture.client.stub.Read(request, timeout=fixture.place.wait))
    except grpc.RpcError as failure:
        if failure.code() == grpc.StatusCode.UNKNOWN:
            return [one.canonical_code for one in errors(failure)]
        return [failure.code().value[0]]
    return fail(f"{what} is taken")


@check("13", "an entity that is not set is INVALID_ARGUMENT")
def empty_entity(fixture: Fixture) -> None:
    request = p4r.ReadRequest(device_id=fixture.place.device_id, entities=[p4r.Entity()])
    expect(failed_read(fixture, request, "Read with an empty entity"), [INVALID], "codes of Read with an empty entity")


@check("13", "an unknown device is NOT_FOUND")
def unknown_device(fixture: Fixture) -> None:
    request = p4r.ReadRequest(device_id=fixture.place.device_id + 77, entities=[p4r.Entity(table_entry={})])
    try:
        list(fixture.client.stub.Read(request, timeout=fixture.place.wait))
    except grpc.RpcError as failure:
        expect(failure.code(), grpc.StatusCode.NOT_FOUND, "Read of an unknown device")
    else:
        fail("Read of an unknown device is taken")


@check("13", "an id that the P4Info does not have is refused")
def unknown_id(fixture: Fixture) -> None:
    for one in (p4r.Entity(table_entry={"table_id": 0x02FFFFFF}), p4r.Entity(counter_entry={"counter_id": 0xFFFFFF})):
        request = p4r.ReadRequest(device_id=fixture.place.device_id, entities=[one])
        codes = failed_read(fixture, request, f"Read of a {one.WhichOneof('entity')} with an unknown id")
        expect(codes in ([INVALID], [MISSING]), True, f"INVALID_ARGUMENT or NOT_FOUND, not {codes}")


@check("13", "a wildcard that finds nothing is no error")
def nothing_found(fixture: Fixture) -> None:
    for message in (fixture.entry("exact_table"), p4r.ActionProfileMember(), p4r.DigestEntry()):
        fixture.found(message, [], f"{type(message).__name__}s")


@check("13", "a thousand entities come in as many messages as it takes")
def many_entities(fixture: Fixture) -> None:
    requests = [p4r.Entity(counter_entry={"counter_id": fixture.program.id("counters", "requests")})] * 200
    request = p4r.ReadRequest(device_id=fixture.place.device_id, entities=requests)
    responses = fixture.client.stub.Read(request, timeout=fixture.place.wait)
    expect(sum(len(response.entities) for response in responses), 1600, "entities that are read")
