# SPDX-License-Identifier: Apache-2.0
"""Arbitration, packet I/O, digests and idle timeouts (P4Runtime 1.4, "P4Runtime Stream Messages")."""

import queue
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from accesspoint.checks.harness.apswitch import CPU_PORT
from accesspoint.checks.harness.p4runtime import Client, binary, code, exact, insert, modify, update

OK, BACKUP, NO_PRIMARY = rpc_code.OK, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND

SOURCE = 0x020000000001
FRAME = bytes.fromhex("0200000000ff 020000000001 1234") + b"payload".ljust(46, b"\0")


def ends_with(client: Client) -> grpc.StatusCode:
    """The status with which the switch ended the stream."""
    with pytest.raises(grpc.RpcError) as failure:
        client.receive("arbitration")
    return code(failure)


def packet_out(client: Client, frame: bytes = FRAME, port: int = CPU_PORT) -> None:
    client.send(packet=p4r.PacketOut(payload=frame, metadata=[p4r.PacketMetadata(metadata_id=1, value=binary(port))]))


def test_three_controllers(connect: Any, kinds: Any) -> None:
    first, second, third = connect(program=kinds), connect(program=kinds), connect(program=kinds)
    third.arbitrate(None)
    assert third.status() == (NO_PRIMARY, None)
    first.arbitrate(10)
    assert first.status() == (OK, 10)
    assert third.status() == (BACKUP, 10)
    second.arbitrate(5)
    assert second.status() == (BACKUP, 10)
    first.push(program=kinds)
    with pytest.raises(grpc.RpcError) as failure:
        second.push(program=kinds)
    assert code(failure) == grpc.StatusCode.PERMISSION_DENIED

    high = 1 << 64 | 3
    second.arbitrate(high)
    assert first.status() == third.status() == (BACKUP, high)
    assert second.status() == (OK, high)
    entry = kinds.entry("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_note", 1))
    for backup in (first, third):
        with pytest.raises(grpc.RpcError) as failure:
            backup.write(insert(entry))
        assert code(failure) == grpc.StatusCode.PERMISSION_DENIED
    second.write(insert(entry))

    second.close()
    assert first.status() == third.status() == (NO_PRIMARY, high)
    with pytest.raises(grpc.RpcError) as failure:
        first.write(insert(entry), election_id={"high": 1, "low": 3})
    assert code(failure) == grpc.StatusCode.PERMISSION_DENIED
    first.arbitrate(high - 1)
    assert first.status() == (NO_PRIMARY, high)
    first.arbitrate(high)
    assert first.status() == (OK, high)
    assert third.status() == (BACKUP, high)
    assert first.read(table_entry=p4r.TableEntry(table_id=entry.table_id)) == [entry], "state outlives its writer"
    first.arbitrate(1)
    assert first.status() == third.status() == (NO_PRIMARY, high)


def test_arbitration_errors_end_the_stream(connect: Any) -> None:
    connect().become_primary(7)
    for changes, expected in [
        ({"device_id": 2}, grpc.StatusCode.NOT_FOUND),
        ({}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"role": {"name": "r", "config": {"type_url": "x"}}}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"role": {"id": 1}}, grpc.StatusCode.INVALID_ARGUMENT),
    ]:
        client = connect()
        client.arbitrate(7, **changes)
        assert ends_with(client) == expected, changes
    for changes in ({"device_id": 2}, {"role": {"name": "other"}}):
        client = connect()
        client.arbitrate(1)
        assert client.status() == (BACKUP, 7)
        client.arbitrate(1, **changes)
        assert ends_with(client) == grpc.StatusCode.FAILED_PRECONDITION, changes


def test_roles_have_primaries_of_their_own(connect: Any, kinds: Any) -> None:
    default, monitor = connect(program=kinds), connect(program=kinds, role="monitor")
    default.become_primary(9).push(program=kinds)
    monitor.become_primary(1)
    assert default.receives_nothing()
    monitor.write(insert(kinds.entry("optional_table", [], ("note", 1), priority=1)))
    with pytest.raises(grpc.RpcError) as failure:
        default.write(role="unheard of")
    assert code(failure) == grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError) as failure:
        default.write(role="monitor")
    assert code(failure) == grpc.StatusCode.PERMISSION_DENIED


def test_who_asks_is_checked_first(connect: Any) -> None:
    client = connect()
    for ask in (
        lambda: client.write(device_id=2),
        lambda: client.stub.Read(p4r.ReadRequest(device_id=2)).next(),
        lambda: client.stub.GetForwardingPipelineConfig(p4r.GetForwardingPipelineConfigRequest(device_id=2)),
        lambda: client.stub.SetForwardingPipelineConfig(p4r.SetForwardingPipelineConfigRequest(device_id=2)),
    ):
        with pytest.raises(grpc.RpcError) as failure:
            ask()
        assert code(failure) == grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError) as failure:
        client.write()
    assert code(failure) == grpc.StatusCode.PERMISSION_DENIED
    client.become_primary()
    for ask in (client.write, lambda: client.read(table_entry=p4r.TableEntry())):
        with pytest.raises(grpc.RpcError) as failure:
            ask()
        assert code(failure) == grpc.StatusCode.FAILED_PRECONDITION


def test_a_packet_out_passes_the_pipeline_and_comes_back(client: Client) -> None:
    client.write(insert(client.program.entry("lpm_table", [], ("note", 0x40))))
    packet_out(client)
    packet = client.receive("packet")
    assert packet.payload == FRAME
    assert [(m.metadata_id, m.value) for m in packet.metadata] == [(1, binary(CPU_PORT)), (2, b"\0"), (3, b"\x40")]


def test_every_packet_out_comes_back_in_order(client: Client) -> None:
    frames = [FRAME + binary(number) for number in range(300)]
    for frame in frames:
        packet_out(client, frame)
    assert [client.receive("packet").payload for _ in frames] == frames


def test_bad_stream_messages_are_answered_by_errors(client: Client, connect: Any) -> None:
    port = p4r.PacketMetadata(metadata_id=1, value=b"\1")
    for metadata, expected in [
        ([], rpc_code.INVALID_ARGUMENT),
        ([port, port], rpc_code.INVALID_ARGUMENT),
        ([port, p4r.PacketMetadata(metadata_id=7, value=b"\1")], rpc_code.INVALID_ARGUMENT),
        ([p4r.PacketMetadata(metadata_id=1, value=b"\2\0")], rpc_code.OUT_OF_RANGE),
    ]:
        packet = p4r.PacketOut(payload=FRAME, metadata=metadata)
        client.send(packet=packet)
        error = client.receive("error")
        assert (error.canonical_code, error.packet_out.packet_out) == (expected, packet)
    client.send(digest_ack=p4r.DigestListAck(digest_id=99, list_id=1))
    error = client.receive("error")
    assert error.canonical_code == rpc_code.INVALID_ARGUMENT
    assert error.digest_list_ack.digest_list_ack.digest_id == 99
    client.send(other={"type_url": "x"})
    error = client.receive("error")
    assert (error.canonical_code, error.other.other.type_url) == (rpc_code.UNIMPLEMENTED, "x")
    client.send()
    assert client.receive("error").canonical_code == rpc_code.INVALID_ARGUMENT
    backup = connect(program=client.program)
    packet_out(backup)
    assert backup.receive("error").canonical_code == rpc_code.PERMISSION_DENIED
    packet_out(client)
    assert client.receive("packet").payload == FRAME, "the stream goes on"


def test_only_the_primary_gets_packets(client: Client, connect: Any) -> None:
    other = connect(program=client.program)
    other.arbitrate(0)
    assert other.status() == (BACKUP, 1)
    packet_out(client)
    client.receive("packet")
    assert other.receives_nothing()
    other.become_primary(2)
    assert client.status() == (BACKUP, 2)
    packet_out(other)
    other.receive("packet")
    assert client.receives_nothing()


def enable_digest(client: Client, **config: int) -> int:
    number = client.program.id("digests", "seen_digest_t")
    client.write(
        update("INSERT", digest_entry=p4r.DigestEntry(digest_id=number, config=config)),
        modify(client.program.entry("exact_table", action=("send_digest",), is_default_action=True)),
    )
    return number


def from_source(source: int) -> bytes:
    return FRAME[:6] + source.to_bytes(6, "big") + FRAME[12:]


def sources(digest_list: p4r.DigestList) -> list[int]:
    return [int.from_bytes(data.struct.members[0].bitstring, "big") for data in digest_list.data]


def test_digests_are_collected_and_held_back_until_acknowledged(client: Client) -> None:
    number = enable_digest(client, max_timeout_ns=10**12, max_list_size=2, ack_timeout_ns=10**12)
    nowhere = 1  # a port that is not there, so that no packet comes back
    for source in (1, 1, 2, 2, 1, 3):
        packet_out(client, from_source(source), nowhere)
    first = client.receive("digest")
    assert first.digest_id == number
    assert sources(first) == [1, 2]
    assert [member.bitstring for member in first.data[0].struct.members] == [b"\1", b"\1"]
    assert first.timestamp > 0
    assert client.receives_nothing(), "3 waits for company, 1 and 2 for their acknowledgement"
    packet_out(client, from_source(2), nowhere)
    assert client.receives_nothing()
    client.send(digest_ack=p4r.DigestListAck(digest_id=number, list_id=first.list_id))
    client.read(digest_entry=p4r.DigestEntry())
    while client.received.empty():  # the acknowledgement overtakes nothing, but it takes a moment
        packet_out(client, from_source(2), nowhere)
        client.receives_nothing(0.05)
    second = client.receive("digest")
    assert sources(second) == [3, 2]
    assert second.list_id != first.list_id


def test_a_digest_does_not_wait_longer_than_its_timeout(client: Client) -> None:
    enable_digest(client, max_timeout_ns=50_000_000, max_list_size=1000, ack_timeout_ns=10**9)
    packet_out(client, from_source(1), 1)
    assert sources(client.receive("digest")) == [1]


def test_a_new_primary_gets_what_its_predecessor_did_not_acknowledge(client: Client, connect: Any) -> None:
    enable_digest(client, max_list_size=1, ack_timeout_ns=10**12)
    packet_out(client, from_source(1), 1)
    assert sources(client.receive("digest")) == [1]
    packet_out(client, from_source(1), 1)
    assert client.receives_nothing()
    heir = connect(program=client.program).become_primary(2)
    packet_out(heir, from_source(1), 1)
    assert sources(heir.receive("digest")) == [1]


def test_an_idle_entry_is_told_again_and_again(client: Client) -> None:
    entry = client.program.entry(
        "exact_table", [exact(1, 1), exact(2, 1)], ("count_and_note", 1), idle_timeout_ns=50_000_000, metadata=b"m"
    )
    lasting = client.program.entry("exact_table", [exact(1, 2), exact(2, 1)], ("count_and_note", 1))
    client.write(insert(entry), insert(lasting))
    for _ in range(2):
        notification = client.receive("idle_timeout_notification")
        (idle,) = notification.table_entry
        assert (idle.match, idle.idle_timeout_ns, idle.metadata) == (entry.match, 50_000_000, b"m")
        assert notification.timestamp > 0


def test_hits_are_counted_and_keep_an_entry_busy(client: Client) -> None:
    entry = client.program.entry("exact_table", [exact(1, SOURCE), exact(2, 0x1234)], ("count_and_note", 1))
    client.write(insert(entry))
    for _ in range(3):
        packet_out(client)
        client.receive("packet")
    (found,) = client.read(direct_counter_entry=p4r.DirectCounterEntry(table_entry={"table_id": entry.table_id}))
    assert found.data.packet_count == 3
    cell = p4r.CounterEntry(counter_id=client.program.id("counters", "ports"), index={"index": 0x1234 & 7})
    assert client.read(counter_entry=cell)[0].data.packet_count == 3
    register = p4r.RegisterEntry(register_id=client.program.id("registers", "newest"), index={"index": 1})
    assert client.read(register_entry=register)[0].data.bitstring == binary(SOURCE)
    level = p4r.RegisterEntry(register_id=client.program.id("registers", "level"), index={"index": 1})
    assert client.read(register_entry=level)[0].data.bitstring == b"\xff"


def test_a_client_that_takes_nothing_and_vanishes_harms_nobody(client: Client) -> None:
    arbitration = p4r.MasterArbitrationUpdate(device_id=1, election_id={"low": 9})
    outgoing: queue.Queue = queue.Queue()
    silent = client.stub.StreamChannel(iter(outgoing.get, None))  # nobody iterates over its messages
    outgoing.put(p4r.StreamMessageRequest(arbitration=arbitration))
    assert client.status() == (BACKUP, 9)
    port = p4r.PacketMetadata(metadata_id=1, value=binary(CPU_PORT))
    for _ in range(3000):
        outgoing.put(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=FRAME + bytes(1000), metadata=[port])))
    client.write(insert(client.program.entry("optional_table", [], ("note", 1), priority=1)), election_id={"low": 9})
    silent.cancel()
    outgoing.put(None)
    assert client.status() == (NO_PRIMARY, 9)
    client.become_primary(9)
    packet_out(client)
    while client.receive("packet").payload != FRAME:
        pass  # what its predecessor sent
