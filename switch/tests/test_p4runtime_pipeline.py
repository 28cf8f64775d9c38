# SPDX-License-Identifier: Apache-2.0
"""Pipeline configs, the command line's address, and finsy (P4Runtime 1.4, "SetForwardingPipelineConfig RPC")."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import finsy as fy
import grpc
import pytest
from finsy.proto import p4i, p4r

from accesspoint.checks.harness.apswitch import ROOT, start_switch
from accesspoint.checks.harness.p4runtime import WAIT, Client, Program, code, exact, insert

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def entries(client: Client) -> list[p4r.TableEntry]:
    return [entry for entry in client.read(table_entry=p4r.TableEntry()) if not entry.is_const]


@pytest.fixture
def marked(client: Client) -> Client:
    """A client whose pipeline has a cookie and one entry, by which a test sees that they were kept."""
    client.push(program=client.program, cookie=42)
    client.write(insert(client.program.entry("optional_table", [], ("note", 1), priority=1)))
    return client


def is_kept(client: Client) -> bool:
    return client.pipeline().config.cookie.cookie == 42 and len(entries(client)) == 1


def test_a_pipeline_is_returned_as_it_was_set(client: Client, kinds: Program, connect: Any) -> None:
    client.push(program=kinds, cookie=42)
    config = connect().pipeline().config
    assert config.p4info == kinds.p4info
    assert config.p4_device_config == kinds.device_config
    assert config.cookie.cookie == 42
    for response_type, fields in [
        ("COOKIE_ONLY", {"cookie"}),
        ("P4INFO_AND_COOKIE", {"cookie", "p4info"}),
        ("DEVICE_CONFIG_AND_COOKIE", {"cookie", "p4_device_config"}),
    ]:
        assert {field.name for field, _ in client.pipeline(response_type).config.ListFields()} == fields


def test_no_pipeline_is_no_config(connect: Any) -> None:
    assert not connect().pipeline().HasField("config")
    assert connect().stub.Capabilities(p4r.CapabilitiesRequest()).p4runtime_api_version == "1.5.0"


def edited(change: Callable[[Any], Any]) -> Callable[[Program], dict[str, Any]]:
    """The kinds program with an edited P4Info."""

    def config(program: Program) -> dict[str, Any]:
        p4info = p4i.P4Info()
        p4info.CopyFrom(program.p4info)
        change(p4info)
        return {"p4info": p4info}

    return config


def table(p4info: Any, name: str) -> Any:
    return next(t for t in p4info.tables if t.preamble.alias == name)


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
            edited(lambda p4info: setattr(table(p4info, "exact_table").match_fields[0], "bitwidth", 47)),
            "hdr.ethernet.src_addr",
        ),
        (
            edited(lambda p4info: setattr(table(p4info, "lpm_table").match_fields[0], "match_type", 2)),
            "hdr.ethernet.dst_addr",
        ),
        (edited(lambda p4info: table(p4info, "exact_table").match_fields.pop()), "exact_table"),
        (edited(lambda p4info: setattr(table(p4info, "exact_table"), "size", 5)), "exact_table"),
        (edited(lambda p4info: table(p4info, "exact_table").action_refs.add(id=99)), "exact_table"),
        (edited(lambda p4info: table(p4info, "lpm_table").direct_resource_ids.append(99)), "lpm_table"),
        (edited(lambda p4info: setattr(table(p4info, "lpm_table"), "idle_timeout_behavior", 1)), "lpm_table"),
        (edited(lambda p4info: setattr(p4info.actions[1].params[0], "bitwidth", 8)), "bits"),
        (edited(lambda p4info: setattr(p4info.actions[1].preamble, "name", "x")), "action x"),
        (edited(lambda p4info: setattr(p4info.counters[0], "size", 9)), "KindsIngress.ports"),
        (edited(lambda p4info: setattr(p4info.meters[0].spec, "unit", 1)), "KindsIngress.rates"),
        (
            edited(lambda p4info: setattr(p4info.registers[0].type_spec.bitstring.bit, "bitwidth", 9)),
            "KindsIngress.newest",
        ),
        (edited(lambda p4info: setattr(p4info.registers[0], "size", 9)), "KindsIngress.newest"),
        (edited(lambda p4info: setattr(p4info.digests[0].preamble, "name", "x")), "digest x"),
        (edited(lambda p4info: p4info.type_info.structs["seen_digest_t"].members.pop()), "seen_digest_t"),
        (edited(lambda p4info: p4info.type_info.structs.clear()), "seen_digest_t"),
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


def test_verify_changes_nothing(marked: Client, access_point: Program) -> None:
    marked.push("VERIFY", access_point)
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
    assert marked.outcomes(insert(marked.program.entry("optional_table", [], ("note", 1), priority=2))) == [
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


def test_commit_starts_with_nothing(marked: Client) -> None:
    marked.push(program=marked.program)
    assert entries(marked) == []
    with pytest.raises(grpc.RpcError) as failure:
        marked.push("UNSPECIFIED", marked.program)
    assert code(failure) == INVALID


def test_reconcile_keeps_the_state_under_an_unchanged_p4info(marked: Client, access_point: Program) -> None:
    program = marked.program
    meter = {"cir": 1, "cburst": 2, "pir": 3, "pburst": 4}
    number = program.id("digests", "seen_digest_t")
    flood = p4r.MulticastGroupEntry(multicast_group_id=1, replicas=[p4r.Replica(port=b"\1")], metadata=b"m")
    resources = {"meter_config": meter, "counter_data": {"packet_count": 5, "byte_count": 6}, "idle_timeout_ns": 10**12}
    entry = program.entry("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_note", 1), **resources)
    kept: list[dict[str, Any]] = [
        {"table_entry": entry},
        {"packet_replication_engine_entry": p4r.PacketReplicationEngineEntry(multicast_group_entry=flood)},
        {"digest_entry": p4r.DigestEntry(digest_id=number, config={"max_list_size": 3})},
    ]
    marked.write(*(p4r.Update(type="INSERT", entity=p4r.Entity(**entity)) for entity in kept))
    default = program.entry("keyless_table", action=("note", 3), is_default_action=True)
    register = p4r.RegisterEntry(
        register_id=program.id("registers", "newest"), index={"index": 2}, data={"bitstring": b"\7"}
    )
    marked.write(
        p4r.Update(type="MODIFY", entity=p4r.Entity(table_entry=default)),
        p4r.Update(type="MODIFY", entity=p4r.Entity(register_entry=register)),
    )

    document = json.loads(program.device_config)
    document["program"] = "another.p4"
    changed = json.dumps(document).encode()
    marked.push("RECONCILE_AND_COMMIT", program, cookie=44, p4_device_config=changed)
    assert marked.pipeline().config.p4_device_config == changed
    assert marked.pipeline().config.cookie.cookie == 44
    wanted = p4r.TableEntry(table_id=program.id("tables", "exact_table"), meter_config={}, counter_data={})
    assert marked.read(table_entry=wanted) == [entry]
    assert marked.read(digest_entry=p4r.DigestEntry()) == [kept[2]["digest_entry"]]
    assert marked.read(table_entry=p4r.TableEntry(table_id=default.table_id, is_default_action=True)) == [default]
    assert marked.read(register_entry=register) == [register]
    any_group = p4r.PacketReplicationEngineEntry(multicast_group_entry={})
    assert marked.read(packet_replication_engine_entry=any_group) == [kept[1]["packet_replication_engine_entry"]]

    before = entries(marked)
    with pytest.raises(grpc.RpcError) as failure:
        marked.push("RECONCILE_AND_COMMIT", access_point)
    assert code(failure) == INVALID
    assert entries(marked) == before


def test_a_wrapped_device_config_is_understood(client: Client, kinds: Program) -> None:
    length, varint = len(kinds.device_config), b""
    while length:
        varint += bytes([length & 0x7F | (0x80 if length > 0x7F else 0)])
        length >>= 7
    client.push(program=kinds, p4_device_config=b"\x1a" + varint + kinds.device_config)


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
    frame = bytes(12) + b"\x12\x34" + bytes(46)

    async def work(switch: fy.Switch) -> tuple[Any, Any]:
        await switch.insert([fy.P4DigestEntry("seen_digest_t", max_list_size=1)])
        await switch.modify([fy.P4TableEntry("exact_table", is_default_action=True, action=fy.Action("send_digest"))])
        packet = asyncio.ensure_future(anext(switch.read_packets()))
        digest = asyncio.ensure_future(anext(switch.read_digests("seen_digest_t")))
        await asyncio.sleep(0)  # both listen now
        await switch.write(fy.P4PacketOut(frame, egress_port=510, pad=0))
        await switch.write((await digest).ack())
        return await packet, await digest

    packet, digest = await with_finsy(address, Path(__file__).parents[1] / "testdata/programs/kinds.p4info.txtpb", work)
    assert packet.payload == frame
    assert packet["ingress_port"] == 510
    assert [dict(data) for data in digest] == [{"src_addr": 0, "egress_port": 510}]
