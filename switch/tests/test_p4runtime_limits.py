# SPDX-License-Identifier: Apache-2.0
"""Limits of what clients can make the switch hold, so that one of them harms no other."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc, rpc_code

from accesspoint.checks.harness.apswitch import CPU_PORT, free_address, running, start_switch
from accesspoint.checks.harness.p4runtime import WAIT, Client, Program, binary, code, exact, insert, modify, update

OK, FULL, INVALID = rpc_code.OK, rpc_code.RESOURCE_EXHAUSTED, rpc_code.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
MAX_STREAMS, MAX_CONNECTIONS, MAX_REQUEST_BYTES = 512, 256, 64 << 20
MAX_SILENT_STREAMS, MAX_SILENCE = 64, 20  # streams of a connection that have not arbitrated; seconds
MAX_MEMORY_BYTES = 512 << 20


async def test_streams_are_counted(address: str) -> None:
    channels = [
        grpc.aio.insecure_channel(address, OWN_CONNECTION) for _ in range(MAX_STREAMS // MAX_SILENT_STREAMS + 1)
    ]
    try:
        stubs = [p4r_grpc.P4RuntimeStub(channel) for channel in channels]
        streams = [stubs[number // MAX_SILENT_STREAMS].StreamChannel() for number in range(MAX_STREAMS)]
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


async def test_streams_that_say_nothing_end(address: str) -> None:
    async with grpc.aio.insecure_channel(address, OWN_CONNECTION) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        streams = [stub.StreamChannel() for _ in range(MAX_SILENT_STREAMS)]
        for stream in streams:
            await stream.initial_metadata()
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stub.StreamChannel().read()
        assert failure.value.code() == EXHAUSTED and "not arbitrated" in (failure.value.details() or "")
        await streams[0].write(p4r.StreamMessageRequest(arbitration={"device_id": 1}))
        assert (await streams[0].read()).arbitration.device_id == 1
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await asyncio.wait_for(streams[1].read(), MAX_SILENCE + WAIT)
        assert failure.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await streams[0].write(p4r.StreamMessageRequest(arbitration={"device_id": 1}))
        assert (await streams[0].read()).arbitration.device_id == 1


def test_connections_are_counted(client: Client, address: str) -> None:
    host, port = address.split(":")
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=WAIT))
            for _ in range(MAX_CONNECTIONS)
        ]
        # The client has one of the places, so that the last one finds none: it is closed without a word.
        assert idle[-1].recv(1) == b""
        assert client.read(table_entry=p4r.TableEntry())


def test_a_message_has_an_end(client: Client) -> None:
    entry = client.program.entry("lpm_table", [], ("say", 1), metadata=bytes(MAX_REQUEST_BYTES + 1))
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
    keyless = client.program.entry("keyless_table", action=("say", 1), is_default_action=True, metadata=long)
    assert client.outcomes(
        insert(client.program.entry("lpm_table", [], ("say", 1), metadata=long)),
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


def test_arrays_are_counted_in_bytes(client: Client) -> None:
    document = json.loads(client.program.device_config)
    wide = next(array for array in document["register_arrays"] if array["name"].endswith("cells"))
    for size, width, fits in ((1 << 24, 2048, False), (1 << 21, 2048, False), (1 << 19, 2048, True)):
        wide["size"], wide["bitwidth"] = size, width
        p4info = type(client.program.p4info)()
        p4info.CopyFrom(client.program.p4info)
        register = next(register for register in p4info.registers if register.preamble.alias == "cells")
        register.size = size
        register.type_spec.bitstring.bit.bitwidth = width
        config = {"p4info": p4info, "p4_device_config": json.dumps(document).encode()}
        if fits:
            client.push("VERIFY", **config)
            continue
        failures = []
        for action in ("VERIFY", "VERIFY_AND_COMMIT"):
            with pytest.raises(grpc.RpcError) as failure:
                client.push(action, **config)
            assert code(failure) == grpc.StatusCode.INVALID_ARGUMENT
            failures.append(failure.value.details())
        assert failures[0] == failures[1] and f"cells` takes {size * width // 8} bytes" in failures[0]


class Small:
    """Small reads of another client, whose times it keeps."""

    def __init__(self, address: str, request: p4r.ReadRequest) -> None:
        self.channel = grpc.insecure_channel(address, OWN_CONNECTION)
        self.stub, self.request = p4r_grpc.P4RuntimeStub(self.channel), request
        self.times: list[float] = []

    def __enter__(self) -> "Small":
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()
        self.channel.close()

    def _run(self) -> None:
        while not self.stopped.wait(0.002):
            began = time.perf_counter()
            assert sum(len(answer.entities) for answer in self.stub.Read(self.request, timeout=WAIT)) == 10
            self.times.append(time.perf_counter() - began)

    def median(self) -> float:
        return sorted(self.times)[len(self.times) // 2]


def ten_counters(program: Program, counter: str) -> p4r.ReadRequest:
    number = program.id("counters", counter)
    cells = [p4r.CounterEntry(counter_id=number, index={"index": index}) for index in range(10)]
    return p4r.ReadRequest(device_id=1, entities=[p4r.Entity(counter_entry=cell) for cell in cells])


@contextlib.contextmanager
def access_point_switch(access_point: Program) -> Iterator[tuple[Client, subprocess.Popen, Small]]:
    """A switch with the access point's program, its primary, and another client that reads all the time."""
    address = free_address()
    process = start_switch(address)
    with running(address, process):
        client = Client(address, program=access_point).become_primary()
        client.push(program=access_point)
        counter = max(access_point.p4info.counters, key=lambda counter: counter.size).preamble.name
        with Small(address, ten_counters(access_point, counter)) as small:
            yield client, process, small
        client.close()


def test_reads_are_counted_before_they_are_collected(access_point: Program) -> None:
    with access_point_switch(access_point) as (client, process, small):
        everything = p4r.Entity(register_entry=p4r.RegisterEntry())
        for number in (5000, 500_000):
            began = time.monotonic()
            with pytest.raises(grpc.RpcError) as failure:
                list(client.stub.Read(p4r.ReadRequest(device_id=1, entities=[everything] * number), timeout=6 * WAIT))
            assert code(failure) == EXHAUSTED and "are the most" in failure.value.details()
            assert time.monotonic() - began < 3 * WAIT
        # As much as is allowed comes, portion by portion.
        request = p4r.ReadRequest(device_id=1, entities=[everything] * 10)
        found = sum(len(answer.entities) for answer in client.stub.Read(request, timeout=12 * WAIT))
        assert found == 10 * sum(register.size for register in access_point.p4info.registers)
        too_long = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(counter_entry={})] * (1 << 21))
        with pytest.raises(grpc.RpcError) as failure:
            list(client.stub.Read(too_long, timeout=6 * WAIT))
        assert code(failure) == EXHAUSTED and "bytes" in failure.value.details()
        assert small.times and peak(process) < MAX_MEMORY_BYTES


@pytest.mark.realtime
def test_large_reads_hold_up_no_small_ones(access_point: Program) -> None:
    with access_point_switch(access_point) as (client, _, small):
        everything = p4r.Entity(register_entry=p4r.RegisterEntry())
        for _ in client.stub.Read(p4r.ReadRequest(device_id=1, entities=[everything] * 10), timeout=12 * WAIT):
            pass
        assert small.median() < 0.1


def test_a_pipeline_is_made_ready_beside_what_others_ask(access_point: Program) -> None:
    with access_point_switch(access_point) as (client, _, small):
        # A program that takes its time: the tables of the access point, over and over.
        began, before = time.monotonic(), len(small.times)
        for _ in range(3):
            client.push("VERIFY", access_point)
        took = time.monotonic() - began
        meanwhile = small.times[before:]
        assert len(meanwhile) >= 5
        # Nobody waited for as long as one of them takes.
        assert sorted(meanwhile)[len(meanwhile) // 2] < took / 6, (took, meanwhile)


def test_requests_under_way_have_a_budget(access_point: Program) -> None:
    with access_point_switch(access_point) as (client, process, _):
        request = p4r.WriteRequest(device_id=1, election_id={"low": 99})
        request.updates.add().entity.table_entry.metadata = bytes(60 << 20)
        with contextlib.ExitStack() as stack:
            options = [*OWN_CONNECTION, ("grpc.max_send_message_length", -1)]
            channels = [stack.enter_context(grpc.insecure_channel(client.address, options)) for _ in range(6)]
            stubs = [p4r_grpc.P4RuntimeStub(channel) for channel in channels * 2]
            calls = [stub.Write.future(request, timeout=6 * WAIT) for stub in stubs]
            for call in calls:
                assert client.read(table_entry=p4r.TableEntry())
                assert call.exception().code() in (EXHAUSTED, grpc.StatusCode.PERMISSION_DENIED)
        assert peak(process) < MAX_MEMORY_BYTES < len(calls) * request.ByteSize()


@pytest.fixture
def large_table(client: Client, access_point: Program) -> p4r.ReadRequest:
    """A request whose answer has many portions."""
    client.push(program=access_point)
    match = [[exact(1, number), *(exact(field, 1) for field in range(2, 10))] for number in range(20_000)]
    entries = [access_point.entry("flows_ipv4", fields, ("set_flow_ipv4", 1, 2, 3, 4, 5)) for fields in match]
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


def peak(process: subprocess.Popen) -> int:
    """Bytes of memory at most so far."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


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


def test_a_client_that_floods_and_dies_harms_no_other(entities: Program) -> None:
    address = free_address()
    switch = start_switch(address)
    with running(address, switch):
        client = Client(address, program=entities).become_primary()
        client.push(program=entities)
        entry = entities.entry("keyless_table", action=("say", 3), is_default_action=True)
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
        late: Any = Client(address, program=entities, role="flood")
        while True:  # until the switch has noticed that its predecessor is gone
            late.arbitrate(2)
            if late.status() == (OK, 2):
                break
        client.write(modify(entry))
        client.close()
        late.close()
