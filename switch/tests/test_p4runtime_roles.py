# SPDX-License-Identifier: Apache-2.0
"""Roles and their configurations (P4Runtime 1.4, "Role Config"), in Stratum's scheme, which is finsy's."""

import asyncio
from typing import Any

import finsy as fy
import grpc
import pytest
from finsy.proto import p4r, rpc_code, stratum
from google.protobuf import any_pb2

from accesspoint.checks.conformance.checks.digests import DIGEST
from accesspoint.checks.conformance.fixture import PROGRAMS, request_frame
from accesspoint.checks.harness.p4runtime import (
    WAIT,
    Client,
    Program,
    binary,
    code,
    delete,
    exact,
    insert,
    modify,
    update,
)

OK, DENIED = rpc_code.OK, rpc_code.PERMISSION_DENIED
REASON = 0x40  # of a packet-in: the request's `a`
FRAME = request_frame(bytes(6), DIGEST, REASON)


def packed(config: Any) -> any_pb2.Any:
    message = any_pb2.Any()
    message.Pack(config)
    return message


def role(connect: Any, program: Program, name: str, election_id: int = 1, **config: Any) -> Client:
    """The primary of a role with this configuration."""
    client = connect(program=program, role=name)
    client.arbitrate(election_id, role={"name": name, "config": packed(stratum.P4RoleConfig(**config))})
    notice = client.receive("arbitration")
    assert notice.status.code == OK
    answer = stratum.P4RoleConfig()
    assert notice.role.config.Unpack(answer) and answer == stratum.P4RoleConfig(**config)
    return client


def test_a_role_writes_and_reads_what_is_its(client: Client, connect: Any) -> None:
    program = client.program
    tables = {name: program.id("tables", name) for name in ("exact_table", "lpm_table", "optional_table")}
    ports = program.id("counters", "requests")
    left = role(connect, program, "left", exclusive_p4_ids=[tables["exact_table"]], shared_p4_ids=[ports])
    right = role(connect, program, "right", shared_p4_ids=[tables["lpm_table"], ports])
    mine = program.entry("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_say", 1))
    theirs = program.entry("lpm_table", [], ("say", 1))
    counter = p4r.CounterEntry(counter_id=ports, index={"index": 1}, data={"packet_count": 3})
    group = p4r.PacketReplicationEngineEntry(multicast_group_entry={"multicast_group_id": 1})
    direct = p4r.DirectCounterEntry(table_entry=mine, data={"packet_count": 1})
    batch = [
        insert(mine),
        insert(theirs),
        update("MODIFY", counter_entry=counter),
        update("INSERT", packet_replication_engine_entry=group),
        modify(program.entry("keyless_table", action=("say", 1), is_default_action=True)),
    ]
    assert left.outcomes(*batch) == [OK, DENIED, OK, DENIED, DENIED]
    assert left.outcomes(*batch[:2], atomicity="ROLLBACK_ON_ERROR") == [rpc_code.ABORTED, DENIED]
    assert right.outcomes(delete(mine), update("MODIFY", direct_counter_entry=direct), insert(theirs)) == [
        DENIED,
        DENIED,
        OK,
    ]

    def found(of: str) -> set[int]:
        request = p4r.ReadRequest(device_id=1, role=of, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
        responses = client.stub.Read(request)
        return {entity.table_entry.table_id for response in responses for entity in response.entities}

    constant = program.id("tables", "constant_table")
    assert found("left") == {tables["exact_table"]}
    assert found("right") == {tables["lpm_table"]}
    assert found("") == {tables["exact_table"], tables["lpm_table"], constant}
    request = p4r.ReadRequest(device_id=1, role="right", entities=[p4r.Entity(counter_entry=counter)])
    (found_counter,) = (entity for answer in client.stub.Read(request) for entity in answer.entities)
    assert found_counter.counter_entry == counter
    assert client.outcomes(delete(mine), delete(theirs)) == [OK, OK], "the default role has full access"


def test_what_is_exclusive_is_no_other_roles(client: Client, connect: Any) -> None:
    table = client.program.id("tables", "exact_table")
    owner = role(connect, client.program, "owner", exclusive_p4_ids=[table])

    def refused(config: Any) -> None:
        other = connect(program=client.program, role="other")
        other.arbitrate(1, role={"name": "other", "config": config})
        with pytest.raises(grpc.RpcError) as failure:
            other.receive("arbitration")
        assert code(failure) == grpc.StatusCode.INVALID_ARGUMENT

    refused(packed(stratum.P4RoleConfig(exclusive_p4_ids=[table])))
    refused(packed(stratum.P4RoleConfig(shared_p4_ids=[table])))
    refused(packed(p4r.Role(name="x")))
    refused(any_pb2.Any(type_url="type.googleapis.com/stratum.P4RoleConfig", value=b"\xff\xff"))
    owner.close()
    while True:  # until the switch has noticed
        try:
            role(connect, client.program, "other", exclusive_p4_ids=[table])
            return
        except grpc.RpcError as failure:
            assert failure.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("role", [{"config": packed(stratum.P4RoleConfig())}, {"id": 1}])
def test_default_role_with_configuration_or_id_is_refused(connect: Any, role: Any) -> None:
    client = connect()
    client.arbitrate(1, role=role)
    with pytest.raises(grpc.RpcError) as failure:
        client.receive("arbitration")
    assert code(failure) == grpc.StatusCode.INVALID_ARGUMENT


def test_a_new_configuration_comes_from_the_primary(client: Client, connect: Any) -> None:
    table = client.program.id("tables", "lpm_table")
    entry = client.program.entry("lpm_table", [], ("say", 1))
    primary = role(connect, client.program, "r", election_id=5)
    assert primary.outcomes(insert(entry)) == [DENIED]
    backup = connect(program=client.program, role="r")
    backup.arbitrate(4, role={"name": "r", "config": packed(stratum.P4RoleConfig(shared_p4_ids=[table]))})
    assert backup.receive("arbitration").status.code == rpc_code.ALREADY_EXISTS
    assert primary.outcomes(insert(entry)) == [DENIED], "a backup's is not used"
    config = packed(stratum.P4RoleConfig(shared_p4_ids=[table]))
    primary.arbitrate(5, role={"name": "r", "config": config})
    for other in (backup, primary):
        assert other.receive("arbitration").role.config == config
    assert primary.outcomes(insert(entry)) == [OK]


def test_only_a_role_that_may_sets_the_pipeline(client: Client, connect: Any) -> None:
    may = role(connect, client.program, "may", can_push_pipeline=True)
    may_not = role(connect, client.program, "may not")
    may.push("VERIFY", client.program)
    with pytest.raises(grpc.RpcError) as failure:
        may_not.push("VERIFY", client.program)
    assert code(failure) == grpc.StatusCode.PERMISSION_DENIED


def packet_out(client: Client) -> None:
    client.send(packet=p4r.PacketOut(payload=FRAME, metadata=[p4r.PacketMetadata(metadata_id=1, value=b"\0")]))


def test_packets_go_to_the_roles_that_want_them(client: Client, connect: Any) -> None:
    wants = role(connect, client.program, "wants", receives_packet_ins=True)
    seen = stratum.P4RoleConfig.PacketFilter(metadata_id=2, value=b"\0" + binary(REASON))
    fits = role(connect, client.program, "fits", receives_packet_ins=True, packet_in_filter=seen)
    other = stratum.P4RoleConfig.PacketFilter(metadata_id=2, value=binary(REASON + 1))
    no_fit = role(connect, client.program, "no fit", receives_packet_ins=True, packet_in_filter=other)
    deaf = role(connect, client.program, "deaf")
    packet_out(deaf)
    for receiver in (client, wants, fits):
        assert receiver.receive("packet").payload.endswith(FRAME[14:])
    assert no_fit.receives_nothing() and deaf.received.empty()


def test_digests_and_idle_entries_go_to_the_roles_that_have_them(client: Client, connect: Any) -> None:
    program = client.program
    digest, table = program.id("digests", "source_t"), program.id("tables", "exact_table")
    learner = role(connect, program, "learner", exclusive_p4_ids=[digest])
    owner = role(connect, program, "owner", exclusive_p4_ids=[table])
    learner.write(update("INSERT", digest_entry=p4r.DigestEntry(digest_id=digest, config={"max_list_size": 1})))
    idle = program.entry("exact_table", [exact(1, 7), exact(2, 7)], ("count_and_say", 1), idle_timeout_ns=10**8)
    owner.write(insert(idle))
    packet_out(client)
    assert learner.receive("digest").digest_id == digest
    assert owner.receive("idle_timeout_notification").table_entry[0].match == idle.match
    assert learner.received.empty()
    while owner.received.qsize():
        owner.receive("idle_timeout_notification")


async def test_finsy_takes_a_role(client: Client, address: str) -> None:
    config = stratum.P4RoleConfig(shared_p4_ids=[client.program.id("tables", "lpm_table")])
    done = asyncio.get_running_loop().create_future()

    async def ready(switch: fy.Switch) -> None:
        try:
            await switch.insert([fy.P4TableEntry("lpm_table", match=None, action=fy.Action("say", value=1))])
            with pytest.raises(fy.P4ClientError) as failure:
                await switch.insert([fy.P4MulticastGroupEntry(1, replicas=(1,))])
            done.set_result(failure.value.details[0].canonical_code)
        except Exception as failure:
            done.set_exception(failure)

    options = fy.SwitchOptions(
        p4info=PROGRAMS / "entities.p4info.txtpb",
        ready_handler=ready,
        role_name="left",
        role_config=config,
        initial_election_id=9,
    )
    controller = asyncio.create_task(fy.Controller([fy.Switch("switch", address, options)]).run())
    try:
        assert await asyncio.wait_for(done, WAIT) == DENIED
    finally:
        controller.cancel()
        await asyncio.gather(controller, return_exceptions=True)
    assert len([e for e in client.read(table_entry=p4r.TableEntry()) if not e.is_const]) == 1
