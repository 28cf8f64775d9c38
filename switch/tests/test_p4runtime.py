# SPDX-License-Identifier: Apache-2.0
"""Write and Read: limits of apswitch, and what it answers where the specification leaves it open.

`checks/conformance` asks what the specification says of entities, batches and reading.
"""

from random import Random
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, rpc_code
from google.protobuf.message import Message

from accesspoint.checks.conformance.fixture import entity, ternary
from accesspoint.checks.harness.p4runtime import (
    WAIT,
    Client,
    binary,
    delete,
    errors,
    exact,
    insert,
    update,
)

OK, INVALID, MISSING = rpc_code.OK, rpc_code.INVALID_ARGUMENT, rpc_code.NOT_FOUND
RANGE, UNIMPLEMENTED = rpc_code.OUT_OF_RANGE, rpc_code.UNIMPLEMENTED


def exact_entry(client: Client, number: int = 1, bits: int = 1, **fields: Any) -> p4r.TableEntry:
    match = [exact(1, 1), exact(2, number)]
    return client.program.entry("exact_table", match, ("count_and_say", bits), **fields)


def test_the_errors_of_a_long_batch_stay_short(client: Client) -> None:
    absent = [delete(exact_entry(client, number)) for number in range(300)]
    with pytest.raises(grpc.RpcError) as failure:
        client.write(*absent)
    found = errors(failure.value)
    assert [error.canonical_code for error in found] == [MISSING] * 300
    assert [bool(error.message) for error in found] == [True] * 16 + [False] * 284
    assert {error.space for error in found} == {"apswitch"}


def test_a_read_batch_answers_what_it_can(client: Client) -> None:
    entry = exact_entry(client)
    client.write(insert(entry))
    good = p4r.Entity(table_entry=p4r.TableEntry(table_id=entry.table_id))
    request = p4r.ReadRequest(device_id=1, entities=[good, p4r.Entity(), good])
    found = []
    with pytest.raises(grpc.RpcError) as failure:
        for response in client.stub.Read(request):
            found += [entity.table_entry for entity in response.entities]
    assert found == [entry, entry]
    assert [error.canonical_code for error in errors(failure.value)] == [OK, INVALID, OK]


def group(number: int, *replicas: p4r.Replica, **fields: Any) -> p4r.MulticastGroupEntry:
    return p4r.MulticastGroupEntry(multicast_group_id=number, replicas=replicas, **fields)


def session(number: int, **fields: Any) -> p4r.CloneSessionEntry:
    return p4r.CloneSessionEntry(session_id=number, replicas=[p4r.Replica(egress_port=1)], **fields)


def test_update_with_impossible_values_is_refused(client: Client) -> None:
    entry, program = exact_entry(client), client.program
    client.write(insert(entry))
    key = p4r.TableEntry(table_id=entry.table_id, match=entry.match)
    lpm_table = p4r.TableEntry(table_id=program.id("tables", "lpm_table"))
    digest, register = program.id("digests", "source_t"), program.id("registers", "cells")
    refused = [
        ("MODIFY", p4r.DirectCounterEntry(table_entry=key, data={"packet_count": -1}), INVALID),
        ("MODIFY", p4r.DirectCounterEntry(table_entry=lpm_table, data={}), INVALID),
        ("MODIFY", p4r.DirectMeterEntry(table_entry=key, config={"cir": 2, "pir": 1}), INVALID),
        ("MODIFY", p4r.DirectMeterEntry(table_entry=key, config={"eburst": 1}), INVALID),
        ("MODIFY", p4r.DirectMeterEntry(table_entry=key, counter_data={"red": {"byte_count": 1}}), INVALID),
        ("MODIFY", p4r.RegisterEntry(register_id=register), INVALID),
        ("INSERT", group(3, p4r.Replica(port=binary(512))), INVALID),
        ("INSERT", group(3, p4r.Replica(port=b"\1", instance=1 << 16)), INVALID),
        ("INSERT", group(3, p4r.Replica(port=b"\1", backup_replicas=[p4r.BackupReplica(port=binary(512))])), INVALID),
        ("INSERT", session(3, packet_length_bytes=-1), INVALID),
        ("INSERT", session(3, class_of_service=8), INVALID),
        ("INSERT", p4r.DigestEntry(digest_id=digest), INVALID),
        ("INSERT", p4r.DigestEntry(digest_id=digest, config={"max_list_size": -1}), INVALID),
    ]
    updates = [update(operation, **entity(message)) for operation, message, _ in refused]
    assert client.outcomes(*updates) == [code for *_, code in refused]


def test_read_of_one_entity_that_is_absent_is_refused(client: Client) -> None:
    program = client.program
    counter, meter = program.id("counters", "requests"), program.id("meters", "rates")
    for message, code in [
        (p4r.DirectCounterEntry(table_entry=exact_entry(client)), MISSING),
        (p4r.DirectCounterEntry(), INVALID),
        (group(3), MISSING),
        (session(3), MISSING),
        (p4r.DigestEntry(digest_id=program.id("digests", "source_t")), MISSING),
        (p4r.CounterEntry(counter_id=counter, index={"index": 8}), RANGE),
        (p4r.MeterEntry(meter_id=meter, index={"index": -1}), INVALID),
        (p4r.TableEntry(table_id=exact_entry(client).table_id, match=[exact(2, 1 << 16)]), RANGE),
        (p4r.TableEntry(table_id=program.id("tables", "lpm_table"), time_since_last_hit={}), INVALID),
    ]:
        assert client.read_code(**entity(message)) == code, message


def test_read_by_controller_metadata_finds_its_entry(client: Client) -> None:
    entries = [exact_entry(client, number, controller_metadata=number) for number in (7, 8)]
    client.write(*map(insert, entries))
    wanted = p4r.TableEntry(table_id=entries[0].table_id, controller_metadata=8)
    assert client.read(table_entry=wanted) == entries[1:]


def test_capabilities_name_version_1_5(client: Client) -> None:
    assert client.stub.Capabilities(p4r.CapabilitiesRequest()).p4runtime_api_version == "1.5.0"


def test_a_large_table_is_read_in_portions(client: Client, access_point: Any) -> None:
    client.push(program=access_point)
    match = [[exact(1, number), *(exact(field, 1) for field in range(2, 10))] for number in range(10_000)]
    action = ("set_flow_ipv4", 1, 2, 3, 4, 5)
    entries = [access_point.entry("flows_ipv4", fields, action) for fields in match]
    client.write(*map(insert, entries))
    request = p4r.ReadRequest(
        device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry(table_id=entries[0].table_id))]
    )
    responses = list(client.stub.Read(request))
    assert len(responses) > 1
    assert max(response.ByteSize() for response in responses) < 1 << 20
    found = {e.table_entry.SerializeToString(deterministic=True) for r in responses for e in r.entities}
    assert found == {entry.SerializeToString(deterministic=True) for entry in entries}


@pytest.mark.parametrize("method", ["Write", "Read", "SetForwardingPipelineConfig"])
def test_mutated_requests_never_harm(client: Client, method: str) -> None:
    """Flips, cuts and repeats bytes of good requests: each is answered, and none by an internal error."""
    entry = exact_entry(client, meter_config={"cir": 1, "pir": 2}, counter_data={}, idle_timeout_ns=1 << 40)
    ternary_entry = client.program.entry("ternary_table", [ternary(1, 1, 3), exact(2, 1)], ("say", 1), priority=1)
    number = client.program.id("digests", "source_t")
    entities = [
        {"table_entry": entry},
        {"table_entry": ternary_entry},
        {"direct_counter_entry": p4r.DirectCounterEntry(table_entry=entry, data={"packet_count": 1})},
        {
            "register_entry": p4r.RegisterEntry(
                register_id=client.program.id("registers", "levels"), data={"bitstring": b"\1"}
            )
        },
        {"counter_entry": p4r.CounterEntry(counter_id=client.program.id("counters", "requests"), index={"index": 1})},
        {"digest_entry": p4r.DigestEntry(digest_id=number, config={"max_list_size": 1})},
        entity(group(1, p4r.Replica(port=b"\1", instance=2))),
        entity(session(1)),
    ]
    requests: dict[str, Message] = {
        "Write": p4r.WriteRequest(
            device_id=1, election_id={"low": 1}, updates=[update("INSERT", **e) for e in entities]
        ),
        "Read": p4r.ReadRequest(device_id=1, entities=[p4r.Entity(**e) for e in entities]),
        "SetForwardingPipelineConfig": p4r.SetForwardingPipelineConfigRequest(
            device_id=1,
            election_id={"low": 1},
            action="VERIFY",
            config={"p4info": client.program.p4info, "p4_device_config": client.program.device_config},
        ),
    }
    good = requests[method].SerializeToString()
    path, unchanged = f"/p4.v1.P4Runtime/{method}", lambda data: data
    if method == "Read":
        call = client.channel.unary_stream(path, unchanged, unchanged)
    else:
        call = client.channel.unary_unary(path, unchanged, unchanged)
    random = Random(method)
    for _ in range(1000):
        mutant = bytearray(good)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(mutant))
            match random.randrange(3):
                case 0:
                    mutant[at] = random.randrange(256)
                case 1:
                    del mutant[at : at + random.randint(1, 8)]
                case _:
                    mutant[at:at] = mutant[max(0, at - 8) : at]
        try:
            answer = call(bytes(mutant), timeout=WAIT)
            if method == "Read":
                list(answer)
        except grpc.RpcError as failure:
            if failure.code() == grpc.StatusCode.UNKNOWN:
                assert all(error.canonical_code != rpc_code.INTERNAL for error in errors(failure))
            else:
                # The gRPC library answers bytes that are no protobuf.
                internal = failure.code() == grpc.StatusCode.INTERNAL
                assert not internal or "failed to decode Protobuf" in failure.details()
    client.push(program=client.program)
    assert client.outcomes(insert(entry)) == [OK]
