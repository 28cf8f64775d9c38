# SPDX-License-Identifier: Apache-2.0
"""Batches of which all updates take effect or none, and packets that meet all of them or none (P4Runtime 1.4, "Batch
Atomicity"), and what packets meet while the program is exchanged."""

import itertools
import json
import threading
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.fixture import answer_of, request_frame
from accesspoint.checks.harness.p4runtime import Client, Program, binary, code, delete, exact, insert, modify, update

OK, EXISTS, MISSING, INVALID = rpc_code.OK, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND, rpc_code.INVALID_ARGUMENT
ABORTED = rpc_code.ABORTED
SEVERAL_TABLES = 26  # request
A, B = 1, 0x1234
FRAME = request_frame(bytes(6), SEVERAL_TABLES, A, B)
BACK = p4r.PacketMetadata(metadata_id=1, value=b"\0")


def outcomes(client: Client, atomicity: str, *updates: p4r.Update) -> list[int]:
    return client.outcomes(*updates, atomicity=atomicity)


def everything(client: Client) -> list[Any]:
    """Return all that can be read, but for what packets change."""
    entry = p4r.TableEntry(meter_config={}, counter_data={})
    replication: list[dict[str, Any]] = [{"multicast_group_entry": {}}, {"clone_session_entry": {}}]
    return [
        *client.read(table_entry=entry),
        *client.read(table_entry=p4r.TableEntry(is_default_action=True)),
        *client.read(counter_entry={}),
        *client.read(meter_entry={}),
        *client.read(register_entry={}),
        *client.read(digest_entry={}),
        *itertools.chain(*(client.read(packet_replication_engine_entry=entry) for entry in replication)),
    ]


def exact_entry(client: Client, number: int, **fields: Any) -> p4r.TableEntry:
    return client.program.entry("exact_table", [exact(1, number), exact(2, 0x0800)], ("count_and_say", 1), **fields)


def group(number: int, *ports: int, metadata: bytes = b"") -> p4r.PacketReplicationEngineEntry:
    replicas = [p4r.Replica(port=binary(port)) for port in ports]
    entry = p4r.MulticastGroupEntry(multicast_group_id=number, replicas=replicas, metadata=metadata)
    return p4r.PacketReplicationEngineEntry(multicast_group_entry=entry)


def session(number: int, *ports: int) -> p4r.PacketReplicationEngineEntry:
    entry = p4r.CloneSessionEntry(session_id=number, replicas=[p4r.Replica(port=binary(port)) for port in ports])
    return p4r.PacketReplicationEngineEntry(clone_session_entry=entry)


def one_of_each(client: Client) -> list[p4r.Update]:
    """Updates of every kind to what `state` has written."""
    program = client.program
    meter = {"cir": 9, "cburst": 9, "pir": 9, "pburst": 9}
    counter = p4r.CounterEntry(counter_id=program.id("counters", "requests"), data={"packet_count": 9, "byte_count": 9})
    rates = p4r.MeterEntry(meter_id=program.id("meters", "rates"), config=meter)
    register = p4r.RegisterEntry(register_id=program.id("registers", "cells"), data={"bitstring": b"\x09"})
    digest = p4r.DigestEntry(digest_id=program.id("digests", "source_t"), config={"max_list_size": 9})
    first = p4r.TableEntry(table_id=exact_entry(client, 1).table_id, match=exact_entry(client, 1).match)
    return [
        modify(exact_entry(client, 1, counter_data={"packet_count": 1}, metadata=b"new")),
        update("MODIFY", direct_counter_entry={"table_entry": first, "data": {"packet_count": 7}}),
        update("MODIFY", direct_meter_entry={"table_entry": first, "config": meter}),
        delete(exact_entry(client, 2)),
        insert(exact_entry(client, 3)),
        modify(program.entry("keyless_table", action=("say", 9), is_default_action=True)),
        update("MODIFY", counter_entry=counter),
        update("MODIFY", meter_entry=rates),
        update("MODIFY", register_entry=register),
        update("MODIFY", packet_replication_engine_entry=group(1, 3, metadata=b"new")),
        update("DELETE", packet_replication_engine_entry=group(2)),
        update("INSERT", packet_replication_engine_entry=group(3, 1)),
        update("MODIFY", packet_replication_engine_entry=session(1, 3)),
        update("DELETE", packet_replication_engine_entry=session(2)),
        update("INSERT", packet_replication_engine_entry=session(3, 1)),
        update("MODIFY", digest_entry=digest),
    ]


@pytest.fixture
def state(client: Client) -> Client:
    meter = {"cir": 1, "cburst": 2, "pir": 3, "pburst": 4}
    resources = {"meter_config": meter, "counter_data": {"packet_count": 5, "byte_count": 6}, "metadata": b"old"}
    digest = p4r.DigestEntry(digest_id=client.program.id("digests", "source_t"), config={"max_list_size": 3})
    client.write(
        insert(exact_entry(client, 1, **resources)),
        insert(exact_entry(client, 2, **resources)),
        update("INSERT", packet_replication_engine_entry=group(1, 1, 2, metadata=b"old")),
        update("INSERT", packet_replication_engine_entry=group(2, 1, 2)),
        update("INSERT", packet_replication_engine_entry=session(1, 1, 2)),
        update("INSERT", packet_replication_engine_entry=session(2, 1, 2)),
        update("INSERT", digest_entry=digest),
    )
    return client


def test_a_batch_that_fails_leaves_no_trace(state: Client) -> None:
    before = everything(state)
    good = one_of_each(state)
    bad = [
        (insert(exact_entry(state, 1)), EXISTS),  # only the data plane knows
        (insert(p4r.TableEntry()), INVALID),  # its message says so
    ]
    for update_, expected in bad:
        found = outcomes(state, "ROLLBACK_ON_ERROR", *good, update_, *good)
        assert found == [ABORTED] * len(good) + [expected] + [ABORTED] * len(good)
        assert everything(state) == before
    assert outcomes(state, "ROLLBACK_ON_ERROR", *good) == [OK] * len(good)
    after = everything(state)
    assert after != before
    assert outcomes(state, "ROLLBACK_ON_ERROR", *good) != [OK] * len(good)
    assert everything(state) == after


def test_a_long_batch_is_taken_back_as_a_whole(client: Client, access_point: Program) -> None:
    client.push(program=access_point)
    match = [[exact(1, number), *(exact(field, 1) for field in range(2, 10))] for number in range(20_000)]
    entries = [access_point.entry("flows_ipv4", fields, ("set_flow_ipv4", 1, 2, 3, 4, 5)) for fields in match]
    batch = [insert(entry) for entry in [*entries, entries[0]]]
    assert outcomes(client, "ROLLBACK_ON_ERROR", *batch) == [ABORTED] * len(entries) + [EXISTS]
    assert client.read(table_entry=p4r.TableEntry(table_id=entries[0].table_id)) == []
    with pytest.raises(grpc.RpcError) as failure:
        client.write(*batch, atomicity="DATAPLANE_ATOMIC")
    assert code(failure) == grpc.StatusCode.UNIMPLEMENTED


def test_what_cannot_be_atomic_is_refused(client: Client) -> None:
    """A clone session is used after ingress and after egress, and a register wherever the program says."""
    entry = insert(client.program.entry("lpm_table", [], ("say", 1)))
    number = client.program.id("registers", "cells")
    register = p4r.RegisterEntry(register_id=number, index={"index": 0}, data={"bitstring": b"\1"})
    for other in (
        update("INSERT", packet_replication_engine_entry=session(1, 1)),
        update("MODIFY", register_entry=register),
    ):
        with pytest.raises(grpc.RpcError) as failure:
            client.write(entry, other, atomicity="DATAPLANE_ATOMIC")
        assert code(failure) == grpc.StatusCode.UNIMPLEMENTED
        assert [e for e in client.read(table_entry=p4r.TableEntry()) if not e.is_const] == []
        client.write(other, atomicity="DATAPLANE_ATOMIC")
    client.write(entry, atomicity="DATAPLANE_ATOMIC")
    with pytest.raises(grpc.RpcError) as failure:
        client.write(atomicity=7)
    assert code(failure) == grpc.StatusCode.INVALID_ARGUMENT


class Packets:
    """Packets of a primary of another role, on their way all the time. seen: the answer of each: hit and value."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._send)
        self.seen: list[tuple[int, int]] = []

    def _send(self) -> None:
        while not self.stopping.is_set():
            for _ in range(20):
                self.client.send(packet=p4r.PacketOut(payload=FRAME, metadata=[BACK]))
            for _ in range(20):
                answer = answer_of(0, self.client.receive("packet").payload)
                self.seen.append((answer.hit, answer.value))

    def __enter__(self) -> "Packets":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join()


def test_packets_meet_all_of_an_atomic_batch_or_none(client: Client, connect: Any) -> None:
    program = client.program
    filler = [program.entry("ternary_table", [exact(2, number)], ("say", 0), priority=1) for number in range(8)]

    def batch(low: int, high: int) -> list[p4r.Update]:
        # The updates between the two are more than the packet thread does between two polls of its ports.
        first = program.entry("lpm_table", [], ("say_both", 0, low))
        last = program.entry("keyless_table", action=("say", high), is_default_action=True)
        return [modify(first), *(modify(entry) for entry in filler * 40), modify(last)]

    states = [batch(0x01, 0x10), batch(0x02, 0x20)]
    client.write(*map(insert, filler), insert(program.entry("lpm_table", [], ("say", 0))))
    client.write(*states[0])
    with Packets(connect(program=program, role="packets").become_primary()) as packets:
        for number in range(60):
            client.write(*states[number % 2], atomicity="DATAPLANE_ATOMIC")
    assert set(packets.seen) == {(0x01, 0x10), (0x02, 0x20)}


def test_packets_never_meet_an_empty_table_while_the_program_is_exchanged(client: Client, connect: Any) -> None:
    program = client.program
    entry = program.entry("exact_table", [exact(1, A), exact(2, B)], ("count_and_say", 1))
    client.write(insert(entry), modify(program.entry("keyless_table", action=("say", 0x40), is_default_action=True)))
    document = json.loads(program.device_config)
    with Packets(connect(program=program, role="packets").become_primary()) as packets:
        for number in range(5):
            document["program"] = f"{number}.p4"
            client.push("RECONCILE_AND_COMMIT", program, p4_device_config=json.dumps(document).encode())
    assert set(packets.seen) == {(1, 0x40)}
    (found,) = client.read(direct_counter_entry=p4r.DirectCounterEntry(table_entry={"table_id": entry.table_id}))
    assert found.data.packet_count == len(packets.seen), "no count is lost either"
    ports = p4r.CounterEntry(counter_id=program.id("counters", "requests"), index={"index": A})
    assert client.read(counter_entry=ports)[0].data.packet_count == len(packets.seen)


def test_reconcile_keeps_what_fits_another_p4info(client: Client) -> None:
    """A table and a counter less, another size: entries of the others stay, and what would be lost is named."""
    program = client.program
    kept = program.entry("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_say", 1), metadata=b"kept")
    lost = program.entry("lpm_table", [], ("say", 1))
    client.write(insert(kept), insert(lost))
    document = json.loads(program.device_config)
    p4info = type(program.p4info)()
    p4info.CopyFrom(program.p4info)
    for pipeline in document["pipelines"]:
        for table in pipeline["tables"]:
            if table["name"].endswith("lpm_table"):
                table["key"][0]["match_type"] = "exact"
    (changed,) = (table for table in p4info.tables if table.preamble.alias == "lpm_table")
    changed.match_fields[0].match_type = 2
    config = {"p4info": p4info, "p4_device_config": json.dumps(document).encode()}
    before = everything(client)
    with pytest.raises(grpc.RpcError) as failure:
        client.push("RECONCILE_AND_COMMIT", program, **config)
    assert code(failure) == grpc.StatusCode.INVALID_ARGUMENT
    assert "lpm_table" in failure.value.details()
    assert everything(client) == before
    client.write(delete(lost))
    client.push("RECONCILE_AND_COMMIT", program, **config)
    assert client.pipeline().config.p4info == p4info
    assert client.read(table_entry=p4r.TableEntry(table_id=kept.table_id)) == [kept]
    assert client.outcomes(insert(program.entry("lpm_table", [exact(1, 5)], ("say", 1)))) == [OK]
