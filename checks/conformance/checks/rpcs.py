# SPDX-License-Identifier: Apache-2.0
"""Sections 10, 12 and 13: errors, batches, reading."""

from typing import Any

import grpc
from finsy.proto import p4r, rpc_code, rpc_status

from accesspoint.checks.conformance.bench import Bench, entity
from accesspoint.checks.conformance.checks.tables import EXACT, exact_entry, say
from accesspoint.checks.conformance.client import delete, errors, exact, insert, modify, name_of, update
from accesspoint.checks.conformance.suite import NotApplicable, check, expect, fail

INVALID, EXISTS, MISSING = rpc_code.INVALID_ARGUMENT, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND


def failure_of(bench: Bench, *updates: p4r.Update, **changes: Any) -> grpc.RpcError:
    """The error of a Write that has to fail."""
    try:
        bench.client.write(*updates, **changes)
    except grpc.RpcError as failure:
        return failure
    return fail("the Write is taken")


@check("10", "a batch with errors is UNKNOWN, with a p4.v1.Error for each update in its order")
def batch_errors(bench: Bench) -> None:
    good, absent = exact_entry(bench, 1), exact_entry(bench, 2)
    failure = failure_of(bench, insert(good), delete(absent), insert(exact_entry(bench, 3)), insert(p4r.TableEntry()))
    expect(failure.code(), grpc.StatusCode.UNKNOWN, "the batch's code")
    codes = [one.canonical_code for one in errors(failure)]
    expect(codes[:3], [rpc_code.OK, MISSING, rpc_code.OK], "the codes of the first three updates")
    if codes[3] not in (INVALID, MISSING):
        fail(f"the code of an entry without a table is {name_of(codes[3])} instead of INVALID_ARGUMENT or NOT_FOUND")


@check("10", "the details repeat the status's code and message")
def details_repeat(bench: Bench) -> None:
    failure = failure_of(bench, delete(exact_entry(bench, 1)))
    trailers = dict(failure.trailing_metadata())
    if "grpc-status-details-bin" not in trailers:
        fail("the status has no details")
    status = rpc_status.Status.FromString(trailers["grpc-status-details-bin"])
    expect((status.code, status.message), (failure.code().value[0], failure.details()), "code and message")


@check("10", "an error that concerns the request has no details")
def no_details(bench: Bench) -> None:
    failure = failure_of(bench, insert(exact_entry(bench, 1)), device_id=bench.place.device_id + 77)
    expect(failure.code(), grpc.StatusCode.NOT_FOUND, "Write to an unknown device")
    expect("grpc-status-details-bin" in dict(failure.trailing_metadata()), False, "there are details")


@check("10", "errors have a message for developers")
def messages(bench: Bench) -> None:
    failure = failure_of(bench, insert(bench.entry("exact_table", [exact(1, 1)], ("count_and_say", 1))))
    (error,) = errors(failure)
    expect(bool(error.message), True, "the error has a message")


@check("12", "CONTINUE_ON_ERROR tries every update")
def continue_on_error(bench: Bench) -> None:
    entries = [exact_entry(bench, number) for number in (1, 2)]
    failure = failure_of(bench, insert(entries[0]), insert(entries[0]), insert(entries[1]))
    codes = sorted(one.canonical_code for one in errors(failure))
    expect(codes, [rpc_code.OK, rpc_code.OK, EXISTS], "the codes of the updates")
    bench.found(bench.entry("exact_table"), entries, "entries after the batch")


@check("12", "updates of a batch may concern any entities")
def mixed_batch(bench: Bench) -> None:
    entry, group = exact_entry(bench, 1), bench.group(5, (bench.home, 1))
    cell = p4r.CounterEntry(counter_id=bench.program.id("counters", "requests"), index={"index": 1})
    written = p4r.CounterEntry(counter_id=cell.counter_id, index=cell.index, data={"packet_count": 5})
    bench.client.write(insert(entry), update("INSERT", **entity(group)), update("MODIFY", **entity(written)))
    bench.found(bench.entry("exact_table"), [entry], "the entry")
    expect(bench.read(cell)[0].data.packet_count, 5, "the counter")
    bench.client.write(update("DELETE", **entity(group)))


@check("12", "an entry and its direct resources may be written in one batch")
def direct_batch(bench: Bench) -> None:
    entry = exact_entry(bench, 1)
    bench.insert(entry)
    counter = p4r.DirectCounterEntry(table_entry=entry, data={"packet_count": 5})
    changed = exact_entry(bench, 1, value=9)
    bench.client.write(modify(changed), update("MODIFY", direct_counter_entry=counter))
    (found,) = bench.read(bench.entry("exact_table", counter_data={}))
    expect((found.counter_data.packet_count, found.action == changed.action), (5, True), "counter, and new action")


@check("12", "an empty batch is taken")
def empty_batch(bench: Bench) -> None:
    bench.client.write()


@check("12", "batches take effect in the order in which they are sent")
def batches_in_order(bench: Bench) -> None:
    entries = [say(bench, "ternary_table", 1, exact(2, number), priority=number + 1) for number in range(16)]
    updates: list[p4r.Update] = []
    for _ in range(8):
        bench.client.write(*updates, *map(insert, entries[:8]))
        bench.client.write(*map(delete, entries[:8]), *map(insert, entries[8:]))
        updates = list(map(delete, entries[8:]))
    bench.found(bench.entry("ternary_table"), entries[8:], "entries after 16 batches")
    expect([bench.ask(3, a).value for a in (5, 9)], [7, 1], "answers of one that was deleted and one that was not")


@check("12", "an update without type or entity is INVALID_ARGUMENT, and harms no other")
def bad_updates(bench: Bench) -> None:
    entry = exact_entry(bench, 1)
    unspecified = update("UNSPECIFIED", table_entry=exact_entry(bench, 2))
    failure = failure_of(bench, unspecified, p4r.Update(type="INSERT"), insert(entry))
    codes = [name_of(one.canonical_code) for one in errors(failure)]
    expect(codes, ["INVALID_ARGUMENT", "INVALID_ARGUMENT", "OK"], "the codes of the updates")


@check("12", "the device is looked at before the election id")
def order_of_checks(bench: Bench) -> None:
    wrong = {"device_id": bench.place.device_id + 77, "election_id": {"low": 1}}
    failure = failure_of(bench, insert(exact_entry(bench, 1)), **wrong)
    expect(failure.code(), grpc.StatusCode.NOT_FOUND, "Write to an unknown device with a wrong election id")
    failure = failure_of(bench, insert(exact_entry(bench, 1)), election_id={"low": 1})
    expect(failure.code(), grpc.StatusCode.PERMISSION_DENIED, "Write with another election id")


@check("12", "Write without an election id is PERMISSION_DENIED while there is a primary")
def no_election_id(bench: Bench) -> None:
    request = p4r.WriteRequest(device_id=bench.place.device_id, updates=[insert(exact_entry(bench, 1))])
    try:
        bench.client.stub.Write(request, timeout=bench.place.wait)
    except grpc.RpcError as failure:
        expect(failure.code(), grpc.StatusCode.PERMISSION_DENIED, "Write without an election id")
    else:
        fail("Write without an election id is taken")


def atomic(bench: Bench, atomicity: str, *updates: p4r.Update) -> grpc.RpcError | None:
    """The error of a Write of that atomicity. Raises NotApplicable where the server does not offer it."""
    try:
        bench.client.write(*updates, atomicity=atomicity)
    except grpc.RpcError as failure:
        if failure.code() == grpc.StatusCode.UNIMPLEMENTED:
            raise NotApplicable("the server does not offer it (UNIMPLEMENTED)") from None
        return failure
    return None


def all_or_none(bench: Bench, atomicity: str) -> None:
    """A batch with an error leaves everything as it was; one without is taken."""
    kept = exact_entry(bench, 1, value=5, counter_data={"packet_count": 50})
    bench.insert(kept)
    cell = p4r.CounterEntry(counter_id=bench.program.id("counters", "requests"), index={"index": 1})
    written = p4r.CounterEntry(counter_id=cell.counter_id, index=cell.index, data={"packet_count": 5})
    updates = [insert(exact_entry(bench, 2)), modify(exact_entry(bench, 1, value=6)), delete(exact_entry(bench, 9))]
    failure = atomic(bench, atomicity, update("MODIFY", **entity(written)), *updates)
    if failure is None:
        fail("a batch with an error is taken")
    bench.found(bench.entry("exact_table", counter_data={}), [kept], "the entries after the failed batch")
    expect(bench.read(cell)[0].data.packet_count, 0, "a counter after the failed batch")
    expect([bench.ask(EXACT, a).value for a in (1, 2)], [5, 0], "answers after the failed batch")
    if atomic(bench, atomicity, insert(exact_entry(bench, 2)), modify(exact_entry(bench, 1, value=6))):
        fail("a batch without an error is refused")
    expect([bench.ask(EXACT, a).value for a in (1, 2)], [6, 1], "answers after the batch that was taken")


@check("12", "ROLLBACK_ON_ERROR: all updates or none")
def rollback_on_error(bench: Bench) -> None:
    all_or_none(bench, "ROLLBACK_ON_ERROR")


@check("12", "DATAPLANE_ATOMIC: all updates or none")
def dataplane_atomic(bench: Bench) -> None:
    all_or_none(bench, "DATAPLANE_ATOMIC")


@check("13", "one request reads entities of several kinds")
def several_kinds(bench: Bench) -> None:
    bench.insert(exact_entry(bench, 1), bench.group(5, (bench.home, 1)))
    kinds = [
        p4r.Entity(table_entry=bench.entry("exact_table")),
        p4r.Entity(counter_entry={"counter_id": bench.program.id("counters", "requests")}),
        p4r.Entity(packet_replication_engine_entry={"multicast_group_entry": {"multicast_group_id": 5}}),
    ]
    request = p4r.ReadRequest(device_id=bench.place.device_id, entities=kinds)
    responses = bench.client.stub.Read(request, timeout=bench.place.wait)
    found = [one.WhichOneof("entity") for response in responses for one in response.entities]
    wanted = ["counter_entry"] * 8 + ["packet_replication_engine_entry", "table_entry"]
    expect(sorted(found), wanted, "kinds of the entities that are read")


@check("13", "reading needs neither a stream nor an election id")
def without_stream(bench: Bench) -> None:
    entry = exact_entry(bench, 1)
    bench.insert(entry)
    expect(
        bench.connect().read(table_entry=bench.entry("exact_table")), [entry], "what a client without a stream reads"
    )


@check("13", "an entity that is not set is INVALID_ARGUMENT")
def empty_entity(bench: Bench) -> None:
    request = p4r.ReadRequest(device_id=bench.place.device_id, entities=[p4r.Entity()])
    try:
        list(bench.client.stub.Read(request, timeout=bench.place.wait))
    except grpc.RpcError as failure:
        codes = [failure.code().value[0]]
        if failure.code() == grpc.StatusCode.UNKNOWN:
            codes = [one.canonical_code for one in errors(failure)]
        expect(codes, [INVALID], "codes of Read with an empty entity")
    else:
        fail("Read with an empty entity is taken")


@check("13", "an unknown device is NOT_FOUND")
def unknown_device(bench: Bench) -> None:
    request = p4r.ReadRequest(device_id=bench.place.device_id + 77, entities=[p4r.Entity(table_entry={})])
    try:
        list(bench.client.stub.Read(request, timeout=bench.place.wait))
    except grpc.RpcError as failure:
        expect(failure.code(), grpc.StatusCode.NOT_FOUND, "Read of an unknown device")
    else:
        fail("Read of an unknown device is taken")


@check("13", "a wildcard that finds nothing is no error")
def nothing_found(bench: Bench) -> None:
    for message in (bench.entry("exact_table"), p4r.ActionProfileMember(), p4r.DigestEntry()):
        bench.found(message, [], f"{type(message).__name__}s")


@check("13", "a thousand entities come in as many messages as it takes")
def many_entities(bench: Bench) -> None:
    requests = [p4r.Entity(counter_entry={"counter_id": bench.program.id("counters", "requests")})] * 200
    request = p4r.ReadRequest(device_id=bench.place.device_id, entities=requests)
    responses = bench.client.stub.Read(request, timeout=bench.place.wait)
    expect(sum(len(response.entities) for response in responses), 1600, "entities that are read")
