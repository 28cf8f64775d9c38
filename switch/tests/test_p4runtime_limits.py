# SPDX-License-Identifier: Apache-2.0
"""What clients can make the switch hold, and that one of them harms no other."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc, rpc_code
from p4rt_client import WAIT, Client, Program, binary, code, exact, insert, modify, update
from p4rt_switch import CPU_PORT, free_address, running, start_switch

OK, FULL, INVALID = rpc_code.OK, rpc_code.RESOURCE_EXHAUSTED, rpc_code.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
MOST_STREAMS, MOST_CONNECTIONS, LARGEST_REQUEST = 512, 256, 64 << 20


async def test_streams_are_counted(address: str) -> None:
    channels = [grpc.aio.insecure_channel(address, OWN_CONNECTION) for _ in range(MOST_STREAMS // 100 + 1)]
    try:
        streams = [p4r_grpc.P4RuntimeStub(channels[number // 100]).StreamChannel() for number in range(MOST_STREAMS)]
        for stream in streams:
            await stream.initial_metadata()  # it is open
        stub = p4r_grpc.P4RuntimeStub(channels[-1])
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stub.StreamChannel().read()
        assert failure.value.code() == EXHAUSTED
        await stub.Capabilities(p4r.CapabilitiesRequest())
        streams[0].cancel()
        while True:  # until the switch has noticed
            with contextlib.suppress(grpc.aio.AioRpcError):
                stream = stub.StreamChannel()
                await stream.write(p4r.StreamMessageRequest(arbitration={"device_id": 1}))
                assert (await stream.read()).arbitration.device_id == 1
                break
    finally:
        for channel in channels:
            await channel.close()


def test_connections_are_counted(client: Client, address: str) -> None:
    host, port = address.split(":")
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=WAIT))
            for _ in range(MOST_CONNECTIONS)
        ]
        # The client has one of the places, so that the last one finds none: it is closed without a word.
        assert idle[-1].recv(1) == b""
        assert client.read(table_entry=p4r.TableEntry())


def test_a_message_has_an_end(client: Client) -> None:
    entry = client.program.entry("lpm_table", [], ("note", 1), metadata=bytes(LARGEST_REQUEST + 1))
    with pytest.raises(grpc.RpcError) as failure:
        client.write(insert(entry))
    assert code(failure) == EXHAUSTED
    client.send(packet=p4r.PacketOut(payload=entry.metadata))
    with pytest.raises(grpc.RpcError) as failure:
        client.receive("packet")
    assert code(failure) == EXHAUSTED
    assert client.read(table_entry=p4r.TableEntry())


def test_a_packet_that_no_buffer_holds_is_refused(client: Client) -> None:
    port = p4r.PacketMetadata(metadata_id=1, value=binary(CPU_PORT))
    client.send(packet=p4r.PacketOut(payload=bytes(100_000), metadata=[port]))
    assert client.receive("error").canonical_code == INVALID


def test_what_is_kept_for_clients_has_an_end(client: Client) -> None:
    def group(number: int, replicas: int, metadata: bytes = b"") -> p4r.Update:
        entry = p4r.MulticastGroupEntry(multicast_group_id=number, metadata=metadata)
        for instance in range(replicas):
            entry.replicas.add(port=b"\1", instance=instance)
        replication = p4r.PacketReplicationEngineEntry(multicast_group_entry=entry)
        return update("INSERT", packet_replication_engine_entry=replication)

    long = bytes(5000)
    keyless = client.program.entry("keyless_table", action=("note", 1), is_default_action=True, metadata=long)
    assert client.outcomes(
        insert(client.program.entry("lpm_table", [], ("note", 1), metadata=long)),
        modify(keyless),
        group(1, 1, long),
        group(1, 4097),
        group(1, 4096),
    ) == [FULL, FULL, FULL, FULL, OK]
    found = [
        client.outcomes(*(group(number, 4096) for number in range(start, start + 64))) for start in (2, 66, 130, 194)
    ]
    outcomes = [outcome for part in found for outcome in part]
    assert outcomes == [OK] * 255 + [FULL]


def test_a_pipeline_that_no_memory_holds_is_refused(client: Client) -> None:
    program = client.program
    for size in (1 << 25, 1 << 40):
        document = json.loads(program.device_config)
        p4info = type(program.p4info)()
        p4info.CopyFrom(program.p4info)
        for pipeline in document["pipelines"]:
            for table in pipeline["tables"]:
                if table["name"].endswith("lpm_table"):
                    table["max_size"] = size
        next(table for table in p4info.tables if table.preamble.alias == "lpm_table").size = size
        for action in ("VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"):
            with pytest.raises(grpc.RpcError) as failure:
                client.push(action, program, p4info=p4info, p4_device_config=json.dumps(document).encode())
            assert code(failure) == grpc.StatusCode.INVALID_ARGUMENT
            assert "lpm_table" in failure.value.details()


@pytest.fixture
def large_table(client: Client, access_point: Program) -> p4r.ReadRequest:
    """A request whose answer has many portions."""
    client.push(program=access_point)
    match = [[exact(1, number), *(exact(field, 1) for field in range(2, 6))] for number in range(20_000)]
    entries = [access_point.entry("flows_ipv4", fields, ("set_flow_ipv4", 1, 2, 3, 4)) for fields in match]
    client.write(*map(insert, entries))
    return p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry(table_id=entries[0].table_id))])


def test_reads_that_nobody_takes_harm_no_other(client: Client, address: str, large_table: p4r.ReadRequest) -> None:
    small = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
    with grpc.insecure_channel(address, [*OWN_CONNECTION, *small]) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        reads = [stub.Read(large_table) for _ in range(20)]
        refused = 0
        for read in reads[:0:-1]:
            try:
                next(read)
            except grpc.RpcError as failure:
                assert failure.code() == EXHAUSTED
                refused += 1
        assert refused >= 1
        found = sum(len(answer.entities) for answer in client.stub.Read(large_table, timeout=WAIT))
        assert found == 20_000
        for read in reads:
            read.cancel()


def resident(process: subprocess.Popen) -> int:
    """Bytes of memory."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def test_packets_go_before_requests() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, before - 1)
    except PermissionError:
        pytest.skip("only root puts packets before what else runs")
    os.setpriority(os.PRIO_PROCESS, 0, before)
    address = free_address()
    switch = start_switch(address)
    with running(address, switch):
        Client(address).become_primary().close()  # it answers: it has started whole
        nice = {}
        for thread in Path(f"/proc/{switch.pid}/task").iterdir():
            fields = (thread / "stat").read_text().rpartition(")")[2].split()
            nice[(thread / "comm").read_text().strip()] = int(fields[16])
        assert nice["packets"] == max(-20, before - 10) and nice["apswitch"] >= min(19, before + 5), nice


def test_a_client_that_floods_and_dies_harms_no_other(kinds: Program) -> None:
    address = free_address()
    switch = start_switch(address)
    with running(address, switch):
        client = Client(address, program=kinds).become_primary()
        client.push(program=kinds)
        entry = kinds.entry("keyless_table", action=("note", 3), is_default_action=True)
        before = resident(switch)
        command = [sys.executable, str(Path(__file__).parent / "flood_client.py"), address]
        flood = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert flood.stdout is not None and flood.stdout.readline() == "refused\n"
            deadline = time.monotonic() + 2
            rounds = 0
            while time.monotonic() < deadline or rounds < 20:
                client.write(modify(entry))
                request = p4r.TableEntry(table_id=entry.table_id, is_default_action=True)
                assert client.read(table_entry=request) == [entry]
                rounds += 1
            assert flood.poll() is None, "it floods all the time"
        finally:
            flood.kill()
            flood.communicate()
        assert resident(switch) - before < 200 << 20
        late: Any = Client(address, program=kinds, role="flood")
        while True:  # until the switch has noticed that its predecessor is gone
            late.arbitrate(2)
            if late.status() == (OK, 2):
                break
        client.write(modify(entry))
        client.close()
        late.close()
