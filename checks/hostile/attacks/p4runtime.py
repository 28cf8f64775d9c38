# SPDX-License-Identifier: Apache-2.0
"""P4Runtime of the switch: reads, writes, streams. No election is needed for most of it."""

import time
from collections.abc import Iterator
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc

from accesspoint.checks.harness.p4runtime import delete, exact, insert, modify, update
from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.intruder import ELECTION, Intruder, access_point, changed, tree
from accesspoint.checks.hostile.tools import channel, hold, many, mutations, throw, together

READ, WRITE = "/p4.v1.P4Runtime/Read", "/p4.v1.P4Runtime/Write"
SET, CAPABILITIES = "/p4.v1.P4Runtime/SetForwardingPipelineConfig", "/p4.v1.P4Runtime/Capabilities"
EVERYTHING: list[dict[str, Any]] = [
    {"table_entry": {}},
    {"counter_entry": {}},
    {"meter_entry": {}},
    {"register_entry": {}},
    {"direct_counter_entry": {"table_entry": {}}},
    {"direct_meter_entry": {"table_entry": {}}},
    {"action_profile_member": {}},
    {"action_profile_group": {}},
    {"packet_replication_engine_entry": {"multicast_group_entry": {}}},
    {"digest_entry": {}},
    {"value_set_entry": {}},
]


def read(*entities: dict[str, Any]) -> bytes:
    return p4r.ReadRequest(device_id=1, entities=[p4r.Entity(**one) for one in entities]).SerializeToString()


@attack("switch", seconds=6, short=True)
def read_of_5000_register_wildcards(target: Target) -> None:
    """A Read of 5000 times `register_entry {}`: 20 kB that ask for gigabytes"""
    many(target, READ, [read(*[{"register_entry": {}}] * 5000)], connections=1, at_once=1, stream=True)


@attack("switch", seconds=6)
def reads_of_everything(target: Target) -> None:
    """64 Reads at a time of all there is, on 8 connections, each answer read to its end"""
    many(target, READ, [read(*EVERYTHING)], connections=8, at_once=8, stream=True)


@attack("switch", seconds=6)
def reads_of_each_kind(target: Target) -> None:
    """Reads of 1000 wildcards of each kind of entity"""
    many(target, READ, [read(*[kind] * 1000) for kind in EVERYTHING], connections=4, at_once=2, stream=True)


@attack("switch", seconds=5)
def reads_that_nobody_takes(target: Target) -> None:
    """480 Reads of everything on 30 connections whose answers are never read"""
    request = p4r.ReadRequest.FromString(read(*EVERYTHING * 20))
    hold(
        target,
        lambda here: p4r_grpc.P4RuntimeStub(here).Read(request, timeout=target.left()),
        connections=30,
        each=16,
        unread=True,
    )


@attack("switch", seconds=5)
def reads_of_a_million_entries(target: Target) -> None:
    """Reads that name a million single entries each"""
    program = access_point()
    entry = program.entry("flows_ipv4", [exact(field, 1) for field in range(1, 10)])
    one = p4r.ReadRequest(entities=[p4r.Entity(table_entry=entry)]).SerializeToString()
    many(target, READ, [b"\x08\x01" + one * 1_000_000], connections=2, at_once=2, stream=True)


@attack("switch", seconds=5, short=True)
def streams_that_never_arbitrate(target: Target) -> None:
    """600 StreamChannels that say nothing, on six connections"""

    def silent() -> Iterator[Any]:
        while target.running():
            time.sleep(0.2)
        yield from ()

    hold(
        target,
        lambda here: p4r_grpc.P4RuntimeStub(here).StreamChannel(silent(), timeout=target.left() + 5),
        connections=6,
        each=100,
    )


@attack("switch", seconds=5)
def arbitrations(target: Target) -> None:
    """Arbitration over and over with other roles, ids and configurations, on 100 streams"""

    def claims() -> Iterator[Any]:
        while target.running():
            number = target.random.randrange(1 << 16)
            role = {"name": f"role{number % 200}" + "x" * (number % 2 * 10_000)} if number % 3 else {}
            yield p4r.StreamMessageRequest(
                arbitration={"device_id": number % 2, "election_id": {"low": number}, "role": role}
            )

    def one(number: int) -> None:
        while target.running():
            try:
                for _ in p4r_grpc.P4RuntimeStub(channel(target, number)).StreamChannel(claims(), timeout=target.left()):
                    pass
            except grpc.RpcError as failure:
                target.refused(failure.code().name, failure.details())
                time.sleep(0.01)

    together(*[lambda number=number: one(number) for number in range(20)])


@attack("switch", seconds=6)
def giant_requests(target: Target) -> None:
    """Requests of 60 MB of bytes that mean nothing, 16 at a time on 8 connections"""
    entry = p4r.TableEntry(table_id=1, metadata=bytes(60 << 20))
    request = p4r.WriteRequest(device_id=1, updates=[insert(entry)]).SerializeToString()
    many(target, WRITE, [request], connections=8, at_once=2)


@attack("switch", seconds=6)
def writes_of_millions_of_updates(target: Target) -> None:
    """Writes of 4 million empty updates (16 MB), which are gigabytes once they are decoded"""
    few = p4r.WriteRequest(updates=[p4r.Update(type="INSERT", entity=p4r.Entity(table_entry={}))]).SerializeToString()
    intruder = Intruder(target)
    who = p4r.WriteRequest(device_id=1, election_id={"low": ELECTION}).SerializeToString()
    many(target, WRITE, [who + few * 2_000_000, b"\x08\x01" + b"\x22\x00" * 8_000_000], connections=2, at_once=1)
    intruder.client.close()


@attack("switch", seconds=5)
def writes_that_are_wrong(target: Target) -> None:
    """Batches of 8192 updates that each fail, by a primary: every one wants its own answer"""
    intruder = Intruder(target)
    wrong = [insert(p4r.TableEntry(table_id=number)) for number in range(8192)]
    while target.running():
        intruder.write(*wrong)


@attack("switch", seconds=5)
def writes_at_full_speed(target: Target) -> None:
    """60,000 flows inserted, changed and deleted over and over by a primary"""
    intruder = Intruder(target)
    entry = intruder.program.entry
    flows = [
        entry(
            "flows_ipv4",
            [exact(1, 0x0B000000 + number), exact(2, 1), exact(3, 6), *(exact(field, 1) for field in range(4, 10))],
            ("set_flow_ipv4", number, 0, 0, 0, 0),
        )
        for number in range(60_000)
    ]
    batches = [flows[start : start + 4000] for start in range(0, len(flows), 4000)]
    while target.running():
        for operation in (insert, modify, delete):
            for batch in batches:
                if target.running():
                    intruder.write(*map(operation, batch))


@attack("switch", seconds=8)
def lpm_churn(target: Target) -> None:
    """100,000 entries of one prefix length inserted and removed one way and the other, in a program of the primary's"""
    intruder = Intruder(target)
    document, p4info = tree(intruder.program), changed(intruder.program.p4info)
    for pipeline in document["pipelines"]:
        for table in pipeline["tables"]:
            if table["name"].endswith("flows_ipv4"):
                table["match_type"], table["key"][0]["match_type"], table["max_size"] = "lpm", "lpm", 200_000
    flows = next(table for table in p4info.tables if table.preamble.alias == "flows_ipv4")
    flows.match_fields[0].match_type, flows.size = 3, 200_000
    if not intruder.push(document, p4info):
        return
    intruder.let_through()

    def churn(number: int) -> p4r.TableEntry:
        prefix = p4r.FieldMatch(field_id=1, lpm={"value": (0x0B000000 + number).to_bytes(4, "big"), "prefix_len": 32})
        match = [prefix, exact(2, 1), exact(3, 6), *(exact(field, 1) for field in range(4, 10))]
        return intruder.program.entry("flows_ipv4", match, ("set_flow_ipv4", number % 65536, 0, 0, 0, 0))

    entries = [churn(number) for number in range(100_000)]
    batches = [entries[start : start + 4000] for start in range(0, len(entries), 4000)]
    while target.running():
        for operation, order in ((insert, batches), (delete, batches), (insert, batches), (delete, batches[::-1])):
            for batch in order:
                if target.running():
                    intruder.write(*map(operation, batch))


@attack("switch", seconds=5)
def packet_outs(target: Target) -> None:
    """Packet-outs without end on three streams, by a primary that takes nothing"""
    packet = p4r.PacketOut(payload=bytes(1400), metadata=[p4r.PacketMetadata(metadata_id=1, value=b"\x01")])
    message = p4r.StreamMessageRequest(packet=packet)
    first = p4r.StreamMessageRequest(arbitration={"device_id": 1, "election_id": {"low": ELECTION}})

    def flood() -> Iterator[Any]:
        yield first
        while target.running():
            yield message

    def one(number: int) -> None:
        call = p4r_grpc.P4RuntimeStub(channel(target, number, unread=True)).StreamChannel(flood())
        call.add_done_callback(lambda done: target.refused(done.code().name, done.details()))
        time.sleep(target.left())
        call.cancel()

    together(*[lambda number=number: one(number) for number in range(3)])


@attack("switch", seconds=5)
def groups_without_end(target: Target) -> None:
    """Multicast groups and clone sessions with as many replicas as are taken, by a primary"""
    intruder = Intruder(target)
    number = 0
    while target.running():
        number += 1
        replicas = [{"port": b"\1", "instance": instance} for instance in range(4096)]
        group = {"multicast_group_id": number, "replicas": replicas}
        clone = {"session_id": number, "replicas": replicas}
        intruder.write(
            update("INSERT", packet_replication_engine_entry={"multicast_group_entry": group}),
            update("INSERT", packet_replication_engine_entry={"clone_session_entry": clone}),
        )


@attack("switch", seconds=5, short=True)
def p4runtime_mutations(target: Target) -> None:
    """Random mutations of valid P4Runtime requests, by a primary"""
    intruder = Intruder(target)
    program = intruder.program
    entry = program.entry(
        "flows_ipv4",
        [exact(1, 0x0B000001), exact(2, 1), exact(3, 6), *(exact(field, 1) for field in range(4, 10))],
        ("set_flow_ipv4", 1, 0, 0, 0, 0),
    )
    who: dict[str, Any] = {"device_id": 1, "election_id": {"low": ELECTION}}
    group = {"multicast_group_entry": {"multicast_group_id": 1, "replicas": [{"port": b"\1", "instance": 1}]}}
    changes = [
        insert(entry),
        modify(entry),
        delete(entry),
        update("INSERT", packet_replication_engine_entry=group),
        update("MODIFY", register_entry={"register_id": program.id("registers", "newest_ack"), "index": {"index": 1}}),
        update("MODIFY", counter_entry={"counter_id": program.id("counters", "sent"), "index": {"index": 1}}),
        update("INSERT", digest_entry={"digest_id": program.id("digests", "source_digest_t"), "config": {}}),
    ]
    atomic = ["CONTINUE_ON_ERROR", "ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"]
    valid = {
        READ: [read(one) for one in EVERYTHING],
        WRITE: [
            p4r.WriteRequest(**who, updates=[one], atomicity=how).SerializeToString()
            for one in changes
            for how in atomic
        ],
        CAPABILITIES: [b"\x0a\x00"],
    }
    throw(target, mutations(target, valid), streaming=(READ,))
