# SPDX-License-Identifier: Apache-2.0
"""Pipeline configs that apswitch refuses, saves and reconciles, the command line's address, and finsy.

`checks/conformance` asks what the specification says of SetForwardingPipelineConfig.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import finsy as fy
import grpc
import pytest
from finsy.proto import p4i, p4r

from accesspoint.checks.conformance.checks.digests import DIGEST
from accesspoint.checks.conformance.fixture import PROGRAMS, request_frame
from accesspoint.checks.harness.apswitch import ROOT, start_switch
from accesspoint.checks.harness.p4runtime import WAIT, Client, Program, code, exact, insert

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def entries(client: Client) -> list[p4r.TableEntry]:
    return [entry for entry in client.read(table_entry=p4r.TableEntry()) if not entry.is_const]


@pytest.fixture
def marked(client: Client) -> Client:
    """A client whose pipeline has a cookie and one entry, by which a test sees that they were kept."""
    client.push(program=client.program, cookie=42)
    client.write(insert(client.program.entry("optional_table", [], ("say", 1), priority=1)))
    return client


def is_kept(client: Client) -> bool:
    return client.pipeline().config.cookie.cookie == 42 and len(entries(client)) == 1


def edited(change: Callable[[Any], Any]) -> Callable[[Program], dict[str, Any]]:
    """The program with an edited P4Info."""

    def config(program: Program) -> dict[str, Any]:
        p4info = p4i.P4Info()
        p4info.CopyFrom(program.p4info)
        change(p4info)
        return {"p4info": p4info}

    return config


def table(p4info: Any, name: str) -> Any:
    return next(t for t in p4info.tables if t.preamble.alias == name)


def action(p4info: Any, name: str) -> Any:
    return next(a for a in p4info.actions if a.preamble.alias == name)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda program: {"p4_device_config": b""}, "p4_device_config"),
        (lambda program: {"p4_device_config": b"{"}, "p4_device_config"),
        (lambda program: {"p4_device_config": b"\x89PNG"}, "p4_device_config"),
        (lambda program: {"p4_device_config": program.device_config[:20_000]}, "p4_device_config"),
        (lambda program: {"p4_device_config": b"[]"}, "p4_device_config"),
        (lambda program: {"p4_device_config": b"{}"}, "p4_device_config"),
        (lambda program: {"p4info": None}, "P4Info"),
        (edited(lambda p4info: table(p4info, "lpm_table").preamble.MergeFrom(p4i.Preamble(name="x"))), "table x"),
        (
            edited(
                lambda p4info: table(p4info, "lpm_table").preamble.MergeFrom(
                    p4i.Preamble(id=table(p4info, "exact_table").preamble.id)
                )
            ),
            "table id",
        ),
        (
            edited(lambda p4info: setattr(table(p4info, "exact_table").match_fields[0], "bitwidth", 7)),
            "hdr.request.a",
        ),
        (
            edited(lambda p4info: setattr(table(p4info, "lpm_table").match_fields[0], "match_type", 2)),
            "hdr.request.c",
        ),
        (edited(lambda p4info: table(p4info, "exact_table").match_fields.pop()), "exact_table"),
        (edited(lambda p4info: setattr(table(p4info, "exact_table"), "size", 5)), "exact_table"),
        (edited(lambda p4info: table(p4info, "exact_table").action_refs.add(id=99)), "exact_table"),
        (edited(lambda p4info: table(p4info, "lpm_table").direct_resource_ids.append(99)), "lpm_table"),
        (edited(lambda p4info: setattr(table(p4info, "lpm_table"), "idle_timeout_behavior", 1)), "lpm_table"),
        (edited(lambda p4info: setattr(action(p4info, "say").params[0], "bitwidth", 8)), "value"),
        (edited(lambda p4info: setattr(action(p4info, "say").preamble, "name", "x")), "action x"),
        (edited(lambda p4info: setattr(p4info.counters[0], "size", 9)), "EntitiesIngress.requests"),
        (edited(lambda p4info: setattr(p4info.meters[0].spec, "unit", 1)), "EntitiesIngress.rates"),
        (
            edited(lambda p4info: setattr(p4info.registers[0].type_spec.bitstring.bit, "bitwidth", 9)),
            "EntitiesIngress.cells",
        ),
        (edited(lambda p4info: setattr(p4info.registers[0], "size", 9)), "EntitiesIngress.cells"),
        (edited(lambda p4info: setattr(p4info.digests[0].preamble, "name", "x")), "digest x"),
        (edited(lambda p4info: p4info.type_info.structs["source_t"].members.pop()), "source_t"),
        (edited(lambda p4info: p4info.type_info.structs.clear()), "source_t"),
        (
            edited(lambda p4info: setattr(p4info.controller_packet_metadata[1].metadata[0], "bitwidth", 10)),
            "packet_out",
        ),
        (edited(lambda p4info: p4info.tables[0].ClearField("preamble")), "preamble"),
    ],
)
def test_a_config_that_does_not_hold_together_is_refused(marked: Client, change: Any, named: str) -> None:
    for action in ("VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"):
        with pytest.raises(grpc.RpcError) as failure:
            marked.push(action, marked.program, **change(marked.program))
        assert code(failure) == INVALID
        assert named in failure.value.details()
        assert "\n" not in failure.value.details()
    assert is_kept(marked)


def test_what_cannot_run_here_is_named(marked: Client) -> None:
    config = edited(lambda p4info: p4info.externs.add())(marked.program)
    with pytest.raises(grpc.RpcError) as failure:
        marked.push("VERIFY", marked.program, **config)
    assert code(failure) == grpc.StatusCode.UNIMPLEMENTED
    assert is_kept(marked)


def test_random_configs_never_harm(marked: Client) -> None:
    text = marked.program.device_config
    for position in range(0, len(text), len(text) // 40):
        for mutant in (text[:position], text[:position] + b"9" + text[position + 1 :], text[position:]):
            try:
                marked.push("VERIFY", marked.program, p4_device_config=mutant)
            except grpc.RpcError as failure:
                assert failure.code() == INVALID, failure
    assert is_kept(marked)


def test_saved_and_committed(marked: Client, access_point: Program) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        marked.push("COMMIT")
    assert code(failure) == grpc.StatusCode.NOT_FOUND
    marked.push("VERIFY_AND_SAVE", access_point, cookie=43)
    assert marked.pipeline().config.cookie.cookie == 42
    with pytest.raises(grpc.RpcError) as failure:
        marked.push("COMMIT", access_point)
    assert code(failure) == INVALID
    # Writes go to the saved pipeline from now on.
    forward = access_point.entry("forward", [exact(1, 1), exact(2, 0), exact(3, 0)], ("forward_to", 1))
    number = access_point.id("digests", "source_digest_t")
    flood = p4r.MulticastGroupEntry(multicast_group_id=1, replicas=[p4r.Replica(port=b"\1")], metadata=b"m")
    written: list[dict[str, Any]] = [
        {"table_entry": forward},
        {"digest_entry": p4r.DigestEntry(digest_id=number, config={"max_list_size": 3})},
        {"packet_replication_engine_entry": p4r.PacketReplicationEngineEntry(multicast_group_entry=flood)},
    ]
    marked.write(*(p4r.Update(type="INSERT", entity=p4r.Entity(**entity)) for entity in written))
    assert entries(marked) == [forward]
    assert marked.outcomes(insert(marked.program.entry("optional_table", [], ("say", 1), priority=2))) == [
        grpc.StatusCode.INVALID_ARGUMENT.value[0]
    ]
    marked.push("COMMIT")
    assert marked.pipeline().config.cookie.cookie == 43
    assert entries(marked) == [forward]
    for entity in written[1:]:
        assert marked.read(**entity) == list(entity.values())
    with pytest.raises(grpc.RpcError) as failure:
        marked.push("COMMIT")
    assert code(failure) == grpc.StatusCode.NOT_FOUND


def test_what_is_saved_is_gone_when_something_else_is_committed(marked: Client, access_point: Program) -> None:
    marked.push("VERIFY_AND_SAVE", access_point)
    assert entries(marked) == []
    marked.push(program=marked.program)
    with pytest.raises(grpc.RpcError) as failure:
        marked.push("COMMIT")
    assert code(failure) == grpc.StatusCode.NOT_FOUND


def test_a_wrapped_device_config_is_understood(client: Client, entities: Program) -> None:
    length, varint = len(entities.device_config), b""
    while length:
        varint += bytes([length & 0x7F | (0x80 if length > 0x7F else 0)])
        length >>= 7
    client.push(program=entities, p4_device_config=b"\x1a" + varint + entities.device_config)


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start_switch(address)
        _, errors = process.communicate(timeout=WAIT)
    assert process.returncode != 0
    lines = errors.strip().splitlines()
    assert len(lines) == 1
    assert address in lines[0]
    assert "--grpc-server-addr" in lines[0]


async def with_finsy(address: str, p4info: Path, work: Callable[[fy.Switch], Any]) -> Any:
    """Run `work` with finsy as the primary of a switch with this program, and return its answer."""
    answer = asyncio.get_running_loop().create_future()

    async def ready(switch: fy.Switch) -> None:
        try:
            answer.set_result(await work(switch))
        except Exception as failure:
            answer.set_exception(failure)

    device_config = p4info.parent / (p4info.name.partition(".")[0] + ".json")
    options = fy.SwitchOptions(p4info=p4info, p4blob=device_config, ready_handler=ready)
    controller = asyncio.create_task(fy.Controller([fy.Switch("switch", address, options)]).run())
    try:
        return await asyncio.wait_for(answer, WAIT)
    finally:
        controller.cancel()
        await asyncio.gather(controller, return_exceptions=True)


async def test_finsy_drives_the_access_point(address: str) -> None:
    classify = fy.P4TableEntry(
        "classify",
        match=fy.Match(dscp=46, src_port="1000...2000"),
        priority=5,
        action=fy.Action("set_class", class_id=1, queue=7, regulated=0),
    )

    async def work(switch: fy.Switch) -> list[Any]:
        groups = [fy.P4MulticastGroupEntry(1, replicas=(1, 2)), fy.P4CloneSessionEntry(1, replicas=(510,))]
        await switch.insert([*groups, fy.P4DigestEntry("source_digest_t", max_list_size=1), classify])
        wanted = [fy.P4TableEntry("classify"), fy.P4CounterEntry("arrived", index=5), fy.P4MulticastGroupEntry(1)]
        found = cast(AsyncIterator[Any], switch.read(wanted))  # finsy's overloads are coroutines
        return [entity async for entity in found]

    entry, counter, group = await with_finsy(address, ROOT / "p4src/compiled/ap.p4info.txtpb", work)
    assert entry.match == {"dscp": (46, 63), "src_port": (1000, 2000)}
    assert (entry.priority, entry.action) == (classify.priority, classify.action)
    assert (counter.index, counter.packet_count) == (5, 0)
    assert group.replicas == (1, 2)


async def test_finsy_reads_packets_and_digests(address: str) -> None:
    frame = request_frame(bytes(6), DIGEST, 1, 2, 3)

    async def work(switch: fy.Switch) -> tuple[Any, Any]:
        await switch.insert([fy.P4DigestEntry("source_t", max_list_size=1)])
        packet = asyncio.ensure_future(anext(switch.read_packets()))
        digest = asyncio.ensure_future(anext(switch.read_digests("source_t")))
        await asyncio.sleep(0)  # both listen now
        await switch.write(fy.P4PacketOut(frame, egress_port=0, pad=0))
        await switch.write((await digest).ack())
        return await packet, await digest

    packet, digest = await with_finsy(address, PROGRAMS / "entities.p4info.txtpb", work)
    assert packet.payload.endswith(frame[14:])
    assert packet["ingress_port"] == 510
    assert [dict(data) for data in digest] == [{"a": 1, "b": 2, "c": 3}]
