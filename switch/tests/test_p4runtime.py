# SPDX-License-Identifier: Apache-2.0
"""Write and Read: every entity, every refusal (P4Runtime 1.4, "P4 Entity Messages")."""

from random import Random
from typing import Any

import grpc
import pytest
from finsy.proto import p4d, p4r, rpc_code
from google.protobuf.message import Message

from accesspoint.checks.harness.p4runtime import (
    WAIT,
    Client,
    binary,
    code,
    delete,
    errors,
    exact,
    insert,
    modify,
    update,
)

OK = rpc_code.OK
INVALID = rpc_code.INVALID_ARGUMENT
RANGE = rpc_code.OUT_OF_RANGE
EXISTS = rpc_code.ALREADY_EXISTS
MISSING = rpc_code.NOT_FOUND
DENIED = rpc_code.PERMISSION_DENIED
FULL = rpc_code.RESOURCE_EXHAUSTED
UNIMPLEMENTED = rpc_code.UNIMPLEMENTED


def exact_entry(client: Client, number: int = 1, bits: int = 1, **fields: Any) -> p4r.TableEntry:
    match = [exact(1, number), exact(2, 0x0800)]
    return client.program.entry("exact_table", match, ("count_and_note", bits), **fields)


def lpm(value: int, prefix_len: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=binary(value), prefix_len=prefix_len))


def ternary(value: int, mask: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=binary(value), mask=binary(mask)))


def between(low: int, high: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=1, range=p4r.FieldMatch.Range(low=binary(low), high=binary(high)))


def optional(value: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=1, optional=p4r.FieldMatch.Optional(value=binary(value)))


def test_every_match_kind_is_read_as_it_was_written(client: Client) -> None:
    program = client.program
    entries = [
        exact_entry(client, metadata=b"mine", idle_timeout_ns=10**12),
        program.entry("lpm_table", [lpm(0x0A0000000000, 8)], ("note", 1), controller_metadata=7),
        program.entry("lpm_table", [], ("note", 2)),
        program.entry("ternary_table", [ternary(0x0A, 0x0F), exact(2, 5)], ("note", 3), priority=10),
        program.entry("ternary_table", [exact(2, 5)], ("NoAction",), priority=1),
        program.entry("range_table", [between(0, 9)], ("note", 0), priority=1),
        program.entry("optional_table", [optional(0)], ("note", 5), priority=2),
        program.entry("optional_table", [], ("note", 6), priority=2),
    ]
    assert client.outcomes(*map(insert, entries)) == [OK] * len(entries)
    wanted = {entry.SerializeToString(deterministic=True) for entry in entries}
    found = [entry for entry in client.read(table_entry=p4r.TableEntry()) if not entry.is_const]
    assert {entry.SerializeToString(deterministic=True) for entry in found} == wanted
    for entry in entries:
        assert client.read(
            table_entry=p4r.TableEntry(table_id=entry.table_id, match=entry.match, priority=entry.priority)
        )
    assert client.outcomes(*map(delete, entries)) == [OK] * len(entries)
    assert all(entry.is_const for entry in client.read(table_entry=p4r.TableEntry()))


def test_values_of_any_length_are_answered_in_canonical_form(client: Client) -> None:
    padded = client.program.entry(
        "exact_table", [exact(1, b"\0\0\0\0\0\0\0\x07"), exact(2, b"\0")], ("count_and_note", b"\0\0\x09")
    )
    client.write(insert(padded))
    (found,) = client.read(table_entry=p4r.TableEntry(table_id=padded.table_id))
    assert [field.exact.value for field in found.match] == [b"\x07", b"\0"]
    assert found.action.action.params[0].value == b"\x09"


@pytest.mark.parametrize(
    ("table", "match", "action", "priority", "expected"),
    [
        ("exact_table", [exact(1, 1 << 48), exact(2, 1)], ("count_and_note", 1), 0, RANGE),
        ("exact_table", [exact(1, b""), exact(2, 1)], ("count_and_note", 1), 0, RANGE),
        ("exact_table", [exact(1, 1)], ("count_and_note", 1), 0, INVALID),
        ("exact_table", [exact(1, 1), exact(1, 1), exact(2, 1)], ("count_and_note", 1), 0, INVALID),
        ("exact_table", [exact(1, 1), exact(2, 1), exact(3, 1)], ("count_and_note", 1), 0, INVALID),
        ("exact_table", [exact(1, 1), p4r.FieldMatch(field_id=2)], ("count_and_note", 1), 0, INVALID),
        ("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_note", 1), 5, INVALID),
        ("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_note", 1 << 16), 0, RANGE),
        ("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_note",), 0, INVALID),
        ("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_note", 1, 1), 0, INVALID),
        ("exact_table", [exact(1, 1), exact(2, 1)], ("note", 1), 0, INVALID),
        ("exact_table", [exact(1, 1), exact(2, 1)], ("send_digest",), 0, DENIED),
        ("exact_table", [exact(1, 1), exact(2, 1)], None, 0, INVALID),
        ("lpm_table", [exact(1, 1)], ("note", 1), 0, INVALID),
        ("lpm_table", [lpm(1, 8)], ("note", 1), 0, INVALID),
        ("lpm_table", [lpm(0, 0)], ("note", 1), 0, INVALID),
        ("lpm_table", [lpm(0, 49)], ("note", 1), 0, INVALID),
        ("ternary_table", [ternary(4, 3), exact(2, 1)], ("note", 1), 1, INVALID),
        ("ternary_table", [ternary(0, 0), exact(2, 1)], ("note", 1), 1, INVALID),
        ("ternary_table", [exact(2, 1)], ("note", 1), 0, INVALID),
        ("ternary_table", [exact(2, 1)], ("note", 1), -1, INVALID),
        ("range_table", [between(2, 1)], ("note", 1), 1, INVALID),
        ("range_table", [between(0, 0xFFFF)], ("note", 1), 1, INVALID),
        ("optional_table", [optional(1 << 16)], ("note", 1), 1, RANGE),
        ("keyless_table", [], ("note", 1), 0, INVALID),
        ("constant_table", [ternary(0x0800, 0xFFFF)], ("count_constant", 1), 9, DENIED),
    ],
)
def test_a_malformed_entry_is_refused(
    client: Client, table: str, match: Any, action: Any, priority: int, expected: int
) -> None:
    before = client.read(table_entry=p4r.TableEntry())
    entry = client.program.entry(table, match, action, priority=priority)
    assert client.outcomes(insert(entry)) == [expected]
    assert client.read(table_entry=p4r.TableEntry()) == before


def test_unknown_ids_and_empty_messages_are_refused(client: Client) -> None:
    unknown = p4r.Index(index=0)
    assert client.outcomes(
        insert(p4r.TableEntry()),
        insert(p4r.TableEntry(table_id=99)),
        p4r.Update(type="INSERT"),
        p4r.Update(entity=p4r.Entity(table_entry=exact_entry(client))),
        update("MODIFY", counter_entry=p4r.CounterEntry(counter_id=99, index=unknown)),
        update("MODIFY", meter_entry=p4r.MeterEntry(meter_id=99, index=unknown)),
        update("MODIFY", register_entry=p4r.RegisterEntry(register_id=99, index=unknown)),
        update("INSERT", digest_entry=p4r.DigestEntry(digest_id=99)),
        update("MODIFY", direct_counter_entry=p4r.DirectCounterEntry()),
        update("INSERT", packet_replication_engine_entry=p4r.PacketReplicationEngineEntry()),
        update("INSERT", action_profile_member=p4r.ActionProfileMember(action_profile_id=1)),
        update("INSERT", action_profile_group=p4r.ActionProfileGroup(action_profile_id=1)),
        update("MODIFY", value_set_entry=p4r.ValueSetEntry(value_set_id=1)),
        update("INSERT", extern_entry=p4r.ExternEntry(extern_type_id=1)),
        insert(exact_entry(client, is_const=True)),
    ) == [INVALID] * 13 + [UNIMPLEMENTED] + [INVALID]
    assert client.read_code(table_entry=p4r.TableEntry(table_id=99)) == INVALID
    assert client.read_code(counter_entry=p4r.CounterEntry(counter_id=99)) == INVALID
    assert client.read_code(action_profile_member=p4r.ActionProfileMember(action_profile_id=1)) == INVALID
    assert client.read(action_profile_member=p4r.ActionProfileMember()) == []


def test_each_update_of_a_batch_has_its_own_outcome(client: Client) -> None:
    first, second = exact_entry(client, 1), exact_entry(client, 2)
    batch = [
        insert(first),
        insert(first),
        delete(second),
        insert(second),
        modify(exact_entry(client, 3)),
        delete(first),
    ]
    with pytest.raises(grpc.RpcError) as failure:
        client.write(*batch)
    assert code(failure) == grpc.StatusCode.UNKNOWN
    found = errors(failure.value)
    assert [error.canonical_code for error in found] == [OK, EXISTS, MISSING, OK, MISSING, OK]
    assert all(bool(error.message) == bool(error.canonical_code) for error in found)
    assert all(error.space == "apswitch" for error in found if error.canonical_code)
    assert client.read(table_entry=p4r.TableEntry(table_id=first.table_id)) == [second]


def test_the_errors_of_a_long_batch_stay_short(client: Client) -> None:
    absent = [delete(exact_entry(client, number)) for number in range(300)]
    with pytest.raises(grpc.RpcError) as failure:
        client.write(*absent)
    found = errors(failure.value)
    assert [error.canonical_code for error in found] == [MISSING] * 300
    assert [bool(error.message) for error in found] == [True] * 16 + [False] * 284


def test_a_full_table_says_so_and_keeps_its_entries(client: Client) -> None:
    entries = [exact_entry(client, number) for number in range(1, 7)]
    assert client.outcomes(*map(insert, entries)) == [OK] * 4 + [FULL] * 2
    assert len(client.read(table_entry=p4r.TableEntry(table_id=entries[0].table_id))) == 4
    assert client.outcomes(insert(entries[0]), delete(entries[0]), insert(entries[5])) == [EXISTS, OK, OK]


def test_modify_replaces_everything_but_an_unset_action_and_counter(client: Client) -> None:
    meter = p4r.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
    entry = exact_entry(
        client, bits=3, meter_config=meter, counter_data={"packet_count": 5, "byte_count": 6}, metadata=b"m"
    )
    client.write(insert(entry))
    everything = p4r.TableEntry(table_id=entry.table_id, meter_config={}, counter_data={})
    assert client.read(table_entry=everything) == [entry]
    bare = p4r.TableEntry(table_id=entry.table_id, match=entry.match)
    client.write(modify(bare))
    (found,) = client.read(table_entry=everything)
    assert found.action == entry.action
    assert found.counter_data == entry.counter_data
    assert not found.HasField("meter_config")
    assert found.metadata == b""
    # The action that it keeps may come from the same batch.
    client.write(modify(exact_entry(client, bits=4)), modify(bare))
    (found,) = client.read(table_entry=everything)
    assert found.action.action.params[0].value == b"\x04"


def test_delete_only_looks_at_the_key(client: Client) -> None:
    entry = exact_entry(client)
    nonsense = p4r.TableEntry()
    nonsense.CopyFrom(entry)
    nonsense.action.action.action_id = 99
    nonsense.idle_timeout_ns = -1
    assert client.outcomes(insert(entry), delete(nonsense), delete(entry)) == [OK, OK, MISSING]


def test_default_entries(client: Client) -> None:
    program = client.program
    default = program.entry("ternary_table", action=("note", 9), is_default_action=True, metadata=b"default")
    original = p4r.TableEntry(table_id=default.table_id, is_default_action=True)
    assert (
        client.outcomes(
            insert(default),
            delete(default),
            modify(program.entry("ternary_table", [exact(2, 1)], ("note", 9), is_default_action=True)),
            modify(program.entry("ternary_table", action=("note", 9), is_default_action=True, priority=1)),
            modify(program.entry("exact_table", action=("send_digest",), is_default_action=True, idle_timeout_ns=1)),
            modify(program.entry("lpm_table", action=("note", 9), is_default_action=True)),
            modify(program.entry("lpm_table", action=("NoAction",), is_default_action=True)),
            modify(program.entry("exact_table", action=("send_digest",), is_default_action=True)),
            modify(program.entry("keyless_table", action=("note", 1), is_default_action=True)),
            modify(default),
        )
        == [INVALID] * 5 + [DENIED] * 2 + [OK] * 3
    )
    assert client.read(table_entry=original) == [default]
    client.write(modify(original))
    (found,) = client.read(table_entry=original)
    assert found.action.action.action_id == program.id("actions", "NoAction")
    assert found.metadata == b""
    everywhere = client.read(table_entry=p4r.TableEntry(is_default_action=True))
    assert len(everywhere) == len(program.p4info.tables)


def test_constant_entries(client: Client) -> None:
    entries = client.read(table_entry=p4r.TableEntry(table_id=client.program.id("tables", "constant_table")))
    assert len(entries) == 2
    assert all(entry.is_const and entry.priority > 0 for entry in entries)
    key = p4r.TableEntry(table_id=entries[0].table_id, match=entries[0].match, priority=entries[0].priority)
    counted = p4r.TableEntry(counter_data={"packet_count": 4})
    counted.MergeFrom(key)
    acting = p4r.TableEntry(action=entries[0].action)
    acting.MergeFrom(key)
    absent = p4r.TableEntry(table_id=key.table_id, match=key.match, priority=99)
    assert client.outcomes(delete(key), modify(acting), modify(absent), modify(counted)) == [
        DENIED,
        DENIED,
        MISSING,
        OK,
    ]
    (found,) = client.read(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key))
    assert found.data.packet_count == 4


def test_read_filters(client: Client) -> None:
    program = client.program
    one = program.entry("ternary_table", [ternary(1, 1), exact(2, 1)], ("note", 1), priority=1, metadata=b"a")
    two = program.entry("ternary_table", [ternary(1, 1), exact(2, 1)], ("NoAction",), priority=2, controller_metadata=8)
    client.write(insert(one), insert(two))

    def read(**fields: Any) -> list[p4r.TableEntry]:
        return client.read(table_entry=p4r.TableEntry(table_id=one.table_id, **fields))

    assert sorted(entry.priority for entry in read()) == [1, 2]
    assert sorted(entry.priority for entry in read(match=one.match)) == [1, 2]
    assert read(priority=2) == [two]
    assert read(metadata=b"a") == [one]
    assert read(controller_metadata=8) == [two]
    assert read(action=one.action) == [one]
    assert read(match=[exact(2, 7)], priority=1) == []
    assert client.read_code(table_entry=p4r.TableEntry(table_id=one.table_id, match=[exact(2, 1 << 16)])) == RANGE
    assert client.read_code(table_entry=p4r.TableEntry(table_id=one.table_id, time_since_last_hit={})) == INVALID
    client.write(insert(exact_entry(client)))
    (idle,) = client.read(
        table_entry=p4r.TableEntry(table_id=program.id("tables", "exact_table"), time_since_last_hit={})
    )
    assert idle.time_since_last_hit.elapsed_ns >= 0


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


def test_direct_counters_and_meters(client: Client) -> None:
    entry = exact_entry(client)
    key = p4r.TableEntry(table_id=entry.table_id, match=entry.match)
    other = p4r.TableEntry(table_id=entry.table_id, match=exact_entry(client, 2).match)
    plain = p4r.TableEntry(table_id=client.program.id("tables", "lpm_table"))
    counter = p4r.DirectCounterEntry(table_entry=key, data={"packet_count": 3, "byte_count": 4})
    meter = p4r.DirectMeterEntry(table_entry=key, config={"cir": 1, "cburst": 2, "pir": 3, "pburst": 4})
    assert client.outcomes(
        insert(entry),
        update("MODIFY", direct_counter_entry=counter),
        update("MODIFY", direct_meter_entry=meter),
        update("INSERT", direct_counter_entry=counter),
        update("DELETE", direct_meter_entry=meter),
        update("MODIFY", direct_counter_entry=p4r.DirectCounterEntry(table_entry=other, data=counter.data)),
        update("MODIFY", direct_counter_entry=p4r.DirectCounterEntry(table_entry=other)),
        update("MODIFY", direct_meter_entry=p4r.DirectMeterEntry(table_entry=other, config=meter.config)),
        update("MODIFY", direct_counter_entry=p4r.DirectCounterEntry(table_entry=plain, data=counter.data)),
        update("MODIFY", direct_counter_entry=p4r.DirectCounterEntry(table_entry=key, data={"packet_count": -1})),
        update("MODIFY", direct_meter_entry=p4r.DirectMeterEntry(table_entry=key, config={"cir": 2, "pir": 1})),
        update("MODIFY", direct_meter_entry=p4r.DirectMeterEntry(table_entry=key, config={"eburst": 1})),
        update(
            "MODIFY", direct_meter_entry=p4r.DirectMeterEntry(table_entry=key, counter_data={"red": {"byte_count": 1}})
        ),
    ) == [OK, OK, OK, INVALID, INVALID, MISSING, MISSING, MISSING, INVALID, INVALID, INVALID, INVALID, INVALID]
    assert client.read(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key)) == [counter]
    assert client.read(direct_meter_entry=p4r.DirectMeterEntry(table_entry=key)) == [meter]
    whole_table = p4r.TableEntry(table_id=key.table_id)
    assert client.read(direct_counter_entry=p4r.DirectCounterEntry(table_entry=whole_table)) == [counter]
    assert len(client.read(direct_counter_entry=p4r.DirectCounterEntry(table_entry={}))) == 3
    assert client.read_code(direct_counter_entry=p4r.DirectCounterEntry(table_entry=other)) == MISSING
    assert client.read_code(direct_counter_entry=p4r.DirectCounterEntry()) == INVALID
    client.write(update("MODIFY", direct_meter_entry=p4r.DirectMeterEntry(table_entry=key)))
    assert not client.read(direct_meter_entry=p4r.DirectMeterEntry(table_entry=key))[0].HasField("config")


def test_indexed_counters_meters_and_registers(client: Client) -> None:
    program = client.program
    counter, meter = program.id("counters", "ports"), program.id("meters", "rates")
    newest, level = program.id("registers", "newest"), program.id("registers", "level")
    config = p4r.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
    bits = p4d.P4Data(bitstring=b"\x12\x34")

    def at(index: int) -> p4r.Index:
        return p4r.Index(index=index)

    assert (
        client.outcomes(
            update("MODIFY", counter_entry=p4r.CounterEntry(counter_id=counter, data={"packet_count": 1})),
            update("MODIFY", counter_entry=p4r.CounterEntry(counter_id=counter, index=at(7), data={"byte_count": 9})),
            update("MODIFY", counter_entry=p4r.CounterEntry(counter_id=counter, index=at(0))),
            update("MODIFY", meter_entry=p4r.MeterEntry(meter_id=meter, config=config)),
            update("MODIFY", meter_entry=p4r.MeterEntry(meter_id=meter, index=at(2))),
            update("MODIFY", register_entry=p4r.RegisterEntry(register_id=newest, data=bits)),
            update(
                "MODIFY",
                register_entry=p4r.RegisterEntry(register_id=level, index=at(0), data=p4d.P4Data(bitstring=b"\x9d")),
            ),
            update("MODIFY", counter_entry=p4r.CounterEntry(counter_id=counter, index=at(8), data={})),
            update("MODIFY", meter_entry=p4r.MeterEntry(meter_id=meter, index=at(8))),
            update("MODIFY", register_entry=p4r.RegisterEntry(register_id=newest, index=at(4), data=bits)),
            update(
                "MODIFY",
                register_entry=p4r.RegisterEntry(register_id=newest, data=p4d.P4Data(bitstring=bytes([1] * 7))),
            ),
            update("MODIFY", register_entry=p4r.RegisterEntry(register_id=level, data=p4d.P4Data(bitstring=b"\0\x9d"))),
            update("MODIFY", counter_entry=p4r.CounterEntry(counter_id=counter, index=at(-1), data={})),
            update("MODIFY", register_entry=p4r.RegisterEntry(register_id=newest, index=at(-1), data=bits)),
            update("MODIFY", register_entry=p4r.RegisterEntry(register_id=newest)),
            update("MODIFY", register_entry=p4r.RegisterEntry(register_id=newest, data=p4d.P4Data(bool=True))),
            update("INSERT", counter_entry=p4r.CounterEntry(counter_id=counter, data={})),
            update("DELETE", meter_entry=p4r.MeterEntry(meter_id=meter)),
            update("INSERT", register_entry=p4r.RegisterEntry(register_id=newest, data=bits)),
        )
        == [OK] * 7 + [RANGE] * 5 + [INVALID] * 7
    )

    found = client.read(counter_entry=p4r.CounterEntry(counter_id=counter))
    assert [(e.index.index, e.data.packet_count, e.data.byte_count) for e in found] == [
        *((i, 1, 0) for i in range(7)),
        (7, 0, 9),
    ]
    assert client.read(counter_entry=p4r.CounterEntry()) == found
    assert client.read(counter_entry=p4r.CounterEntry(counter_id=counter, index=at(7))) == found[7:]
    assert client.read_code(counter_entry=p4r.CounterEntry(counter_id=counter, index=at(8))) == RANGE

    found = client.read(meter_entry=p4r.MeterEntry(meter_id=meter))
    assert [e.config == config for e in found] == [i != 2 for i in range(8)]
    assert not found[2].HasField("config")
    assert client.read_code(meter_entry=p4r.MeterEntry(meter_id=meter, index=at(-1))) == INVALID

    found = client.read(register_entry=p4r.RegisterEntry())
    values = {(e.register_id, e.index.index): e.data.bitstring for e in found}
    assert values == {**{(newest, i): b"\x12\x34" for i in range(4)}, (level, 0): b"\x9d", (level, 1): b"\0"}


def group(number: int, *replicas: tuple[int, int], **fields: Any) -> dict[str, Any]:
    messages = [p4r.Replica(port=binary(port), instance=instance) for port, instance in replicas]
    entry = p4r.MulticastGroupEntry(multicast_group_id=number, replicas=messages, **fields)
    return {"packet_replication_engine_entry": p4r.PacketReplicationEngineEntry(multicast_group_entry=entry)}


def session(number: int, *ports: int, **fields: Any) -> dict[str, Any]:
    messages = [p4r.Replica(egress_port=port) for port in ports]
    entry = p4r.CloneSessionEntry(session_id=number, replicas=messages, **fields)
    return {"packet_replication_engine_entry": p4r.PacketReplicationEngineEntry(clone_session_entry=entry)}


def test_packet_replication(client: Client) -> None:
    assert (
        client.outcomes(
            update("INSERT", **group(1, (1, 0), (2, 5), metadata=b"flood")),
            update("INSERT", **group(2, (510, 1))),
            update("MODIFY", **group(2, (3, 3))),
            update("INSERT", **session(1, 510, packet_length_bytes=64)),
            update("INSERT", **group(0, (1, 0))),
            update("INSERT", **group(3, (1, 0), (1, 0))),
            update("INSERT", **group(3, (512, 0))),
            update("INSERT", **group(3, (1, 1 << 16))),
            update("INSERT", **session(0, 1)),
            update("INSERT", **session(3, 1, packet_length_bytes=-1)),
            update("INSERT", **session(3, 1, class_of_service=1)),
            update("INSERT", **group(1)),
            update("INSERT", **session(1, 1)),
            update("MODIFY", **group(3)),
            update("DELETE", **group(3)),
            update("MODIFY", **session(3)),
            update("DELETE", **session(3)),
        )
        == [OK] * 4 + [INVALID] * 6 + [UNIMPLEMENTED] + [EXISTS] * 2 + [MISSING] * 4
    )

    def read(**request: Any) -> list[Any]:
        return client.read(**request)

    assert read(**group(1)) == [group(1, (1, 0), (2, 5), metadata=b"flood")["packet_replication_engine_entry"]]
    assert len(read(**group(0))) == 2
    (found,) = read(**session(0))
    assert found.clone_session_entry.packet_length_bytes == 64
    assert found.clone_session_entry.replicas[0].port == binary(510)
    assert client.read_code(**group(3)) == MISSING
    assert client.read_code(**session(3)) == MISSING
    client.write(update("DELETE", **group(1)), update("DELETE", **session(1)), update("INSERT", **group(1, (1, 0))))
    assert read(**session(0)) == []
    assert read(**group(1))[0].multicast_group_entry.metadata == b"", "a new group does not inherit metadata"


def test_backup_replicas(client: Client) -> None:
    first = p4r.Replica(
        port=b"\1", backup_replicas=[p4r.BackupReplica(port=b"\2", instance=5), p4r.BackupReplica(port=b"\3")]
    )
    replicas = [first, p4r.Replica(port=b"\2")]
    flood = {"multicast_group_entry": {"multicast_group_id": 1, "replicas": replicas}}
    mirror = {"clone_session_entry": {"session_id": 1, "replicas": replicas}}
    entities = [{"packet_replication_engine_entry": p4r.PacketReplicationEngineEntry(**e)} for e in (flood, mirror)]
    client.write(*(update("INSERT", **entity) for entity in entities))
    for entity in entities:
        assert client.read(**entity) == list(entity.values())
    too_high = p4r.Replica(port=b"\1", backup_replicas=[p4r.BackupReplica(port=b"\2\0")])
    assert client.outcomes(
        update("MODIFY", packet_replication_engine_entry={"multicast_group_entry": {"multicast_group_id": 1}}),
        update(
            "INSERT",
            packet_replication_engine_entry={
                "multicast_group_entry": {"multicast_group_id": 2, "replicas": [too_high]}
            },
        ),
    ) == [OK, INVALID]
    assert client.read(**entities[0])[0].multicast_group_entry.replicas == []


def test_digest_entries(client: Client) -> None:
    number = client.program.id("digests", "seen_digest_t")
    entry = p4r.DigestEntry(digest_id=number, config={"max_timeout_ns": 5, "max_list_size": 6, "ack_timeout_ns": 7})
    changed = p4r.DigestEntry(digest_id=number, config={"max_list_size": 1})
    assert client.outcomes(
        update("MODIFY", digest_entry=entry),
        update("DELETE", digest_entry=entry),
        update("INSERT", digest_entry=p4r.DigestEntry(digest_id=number)),
        update("INSERT", digest_entry=p4r.DigestEntry(digest_id=number, config={"max_list_size": -1})),
        update("INSERT", digest_entry=entry),
        update("INSERT", digest_entry=entry),
    ) == [MISSING, MISSING, INVALID, INVALID, OK, EXISTS]
    assert client.read(digest_entry=p4r.DigestEntry(digest_id=number)) == [entry]
    assert client.outcomes(update("MODIFY", digest_entry=changed)) == [OK]
    assert client.read(digest_entry=p4r.DigestEntry()) == [changed]
    assert client.outcomes(update("DELETE", digest_entry=p4r.DigestEntry(digest_id=number))) == [OK]
    assert client.read_code(digest_entry=p4r.DigestEntry(digest_id=number)) == MISSING


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
    ternary_entry = client.program.entry("ternary_table", [ternary(1, 3), exact(2, 1)], ("note", 1), priority=1)
    number = client.program.id("digests", "seen_digest_t")
    entities = [
        {"table_entry": entry},
        {"table_entry": ternary_entry},
        {"direct_counter_entry": p4r.DirectCounterEntry(table_entry=entry, data={"packet_count": 1})},
        {
            "register_entry": p4r.RegisterEntry(
                register_id=client.program.id("registers", "level"), data={"bitstring": b"\1"}
            )
        },
        {"counter_entry": p4r.CounterEntry(counter_id=client.program.id("counters", "ports"), index={"index": 1})},
        {"digest_entry": p4r.DigestEntry(digest_id=number, config={"max_list_size": 1})},
        group(1, (1, 2)),
        session(1, 3),
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
