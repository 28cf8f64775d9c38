# SPDX-License-Identifier: Apache-2.0
"""Entries of a configuration, and a change that writes only the difference."""

from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from finsy.proto import p4r

from accesspoint.checks.harness.switches import ROOT
from accesspoint.controller.agent import classes, ports, queue_meters
from accesspoint.controller.agent.entries import EntrySet, identity
from accesspoint.controller.agent.flow import NOTE
from accesspoint.controller.agent.flow_table import FlowTable
from accesspoint.controller.agent.flows import Flows, Indices
from accesspoint.controller.agent.program import (
    FLOW_CLASS_THINNED,
    GROUP_PORT,
    QUEUE_CONTROL,
    FlowKey,
    Program,
    rate_meter,
    table_entry,
)
from accesspoint.controller.agent.target import TARGETS
from accesspoint.controller.config import AccessPointConfig, Pipeline

from .test_config import access_point

COMPILED = ROOT / "p4src/compiled"
PIPELINE = {"p4info": str(COMPILED / "ap.p4info.txtpb"), "device_config": str(COMPILED / "ap.json")}


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(Pipeline.model_validate(PIPELINE))


def config(**fields: Any) -> AccessPointConfig:
    return AccessPointConfig.model_validate(access_point(pipeline=PIPELINE, **fields))


def wanted(of: AccessPointConfig) -> list[Any]:
    return [
        *ports.entities(of, TARGETS["v1model"]),
        *classes.entities(of, Program(of.pipeline)),
        *queue_meters.entities(of),
    ]


def kinds(updates: list[p4r.Update], program: Program) -> set[tuple[str, str]]:
    """Kind of update and name of the object, once each."""
    names = {table.id: table.alias for table in program.schema.tables}
    return {
        (
            p4r.Update.Type.Name(update.type),
            names.get(update.entity.table_entry.table_id, str(update.entity.WhichOneof("entity"))),
        )
        for update in updates
    }


def installed(program: Program, of: AccessPointConfig) -> EntrySet:
    entries = EntrySet(program)
    for update in entries.updates(wanted(of)):
        entries._installed[identity(update.entity)] = update.entity
    return entries


def test_a_plain_switch_has_no_priority_no_gate_and_no_flow_digests(program: Program) -> None:
    plain = config(features={"ack_priority": False, "ack_filter": False, "sparse": False, "ncr": False})
    updates = EntrySet(program).updates(wanted(plain))
    assert not {("INSERT", "ack_priority"), ("INSERT", "gate")} & kinds(updates, program)
    digests = [update for update in updates if update.entity.HasField("digest_entry")]
    assert len(digests) == 1
    for update in updates:
        entry = update.entity.table_entry
        if entry.table_id == program.schema.tables["classify"].id:
            queue, regulated = entry.action.action.params[1].value, entry.action.action.params[2].value
            assert (queue, regulated) == (b"\0", b"\0")


def test_the_same_configuration_writes_nothing(program: Program) -> None:
    entries = installed(program, config())
    assert entries.updates(wanted(config())) == []


def test_a_feature_touches_its_own_entries_only(program: Program) -> None:
    entries = installed(program, config())
    off = config(features={"ack_priority": False, "ack_filter": False})
    assert kinds(entries.updates(wanted(off)), program) == {("DELETE", "ack_priority")}
    unfiltered = config(features={"ack_filter": False})
    assert kinds(entries.updates(wanted(unfiltered)), program) == {("MODIFY", "ack_priority")}
    unregulated = config(features={"ncr": False})
    scalable = {("DELETE", "classify"), ("DELETE", "step")}
    assert kinds(entries.updates(wanted(unregulated)), program) == {("MODIFY", "classify"), *scalable}
    paper = config(ncr={"law": "paper"})
    assert kinds(entries.updates(wanted(paper)), program) == scalable
    gated = config(features={"gate": {"2": {"buffer": 90, "batch": 16}}})
    assert kinds(entries.updates(wanted(gated)), program) == {("INSERT", "gate")}
    faster = config(queue_shares={"acks": 0.7})
    assert kinds(entries.updates(wanted(faster)), program) == {("MODIFY", "meter_entry")}


def test_acks_are_filtered_where_they_leave_through_the_uplink_alone(program: Program) -> None:
    """Paper 000's direction; those of uploads cross the air to the stations, where the one that is left may be lost."""
    of = config(ports=[
        {"port": 1, "role": "station", "capacity_bps": 1_000_000},
        {"port": 2, "role": "uplink", "capacity_bps": 14_000_000},
        {"port": 3, "role": "station", "capacity_bps": "auto"},
    ])  # fmt: skip
    table = program.schema.tables["ack_priority"].id

    def filters(of: AccessPointConfig) -> dict[int, int]:
        entries = [each.entity.table_entry for each in EntrySet(program).updates(wanted(of))]
        return {
            int.from_bytes(entry.match[0].exact.value): int.from_bytes(entry.action.action.params[1].value)
            for entry in entries
            if entry.table_id == table
        }

    assert filters(of) == {1: 0, 2: 1, 3: 0}
    assert filters(of.model_copy(update={"features": of.features.model_copy(update={"ack_priority": False})})) == {}


def test_a_rule_is_one_entry_above_the_built_in_ones(program: Program) -> None:
    entries = installed(program, config())
    rule = {"name": "game", "protocol": 17, "dst_port": [3000, 3010], "dscp": 46, "class_id": 4, "queue": 3}
    (update,) = entries.updates(wanted(config(rules=[rule])))
    entry = update.entity.table_entry
    assert update.type == p4r.Update.INSERT
    assert entry.priority > classes.PRIORITY_AHEAD
    ranges = [field.range for field in entry.match if field.HasField("range")]
    assert [(int.from_bytes(r.low), int.from_bytes(r.high)) for r in ranges] == [(3000, 3010)]


@pytest.mark.parametrize("sparse", [False, True])
def test_acks_are_counted_to_what_they_acknowledge(program: Program, sparse: bool) -> None:
    entries = [
        entry
        for entry in classes.entities(config(features={"sparse": sparse}), program)
        if entry.table_id == "classify"  # type: ignore[attr-defined]
    ]
    seen = {
        (entry.match["direction"], entry.match["pure_ack"]): entry.action.args["class_id"]  # type: ignore[attr-defined]
        for entry in entries
        if "pure_ack" in entry.match  # type: ignore[attr-defined]
    }
    assert seen == {(0, 0): 0, (0, 1): 0, (1, 0): 2, (1, 1): 1, (2, 0): 1, (2, 1): 2}
    assert len(entries) == (33 if sparse else 12)


def test_identity_is_the_key_and_not_the_value(program: Program) -> None:
    def entity(port: int, role: int) -> p4r.Entity:
        return table_entry("ingress_roles", {"ingress_port": port}, "set_ingress_role", role=role).encode(
            program.schema
        )

    assert identity(entity(1, 1)) == identity(entity(1, 2))
    assert identity(entity(1, 1)) != identity(entity(2, 1))


def test_a_meter_has_one_rate() -> None:
    meter = rate_meter(32_000, 3_028)
    assert (meter.cir, meter.pir, meter.cburst, meter.pburst) == (4_000, 4_000, 3_028, 3_028)


def test_an_index_comes_back_with_a_new_generation() -> None:
    indices = Indices(3)
    first = [indices.take() for _ in range(3)]
    assert first == [(0, 1), (1, 1), (2, 1)]
    assert indices.take() is None
    indices.give(1)
    assert indices.take() == (1, 2)
    for _ in range(254):
        indices.give(1)
        taken = indices.take()
    # 0 is what registers begin with, and nobody's.
    assert taken == (1, 1)
    indices.give(0)
    indices.give(2)
    assert [indices.take(), indices.take()] == [(0, 2), (2, 2)]


@pytest.mark.parametrize("size", [4, 16])
def test_a_flow_is_encoded_as_finsy_does(program: Program, size: int) -> None:
    key = FlowKey(bytes(size - 1) + b"\x07", b"\x0a" + bytes(size - 1), 6, 80, 65535, 1, 509, 100, 4094)
    made = program.flow_entry(key, (300, 0, 3, 0, 9), rate_meter(32_000, 3_028), 2.5)
    by_finsy = table_entry(
        f"flows_ipv{key.version}",
        {
            "src_addr": int.from_bytes(key.src_addr),
            "dst_addr": int.from_bytes(key.dst_addr),
            "protocol": 6,
            "src_port": 80,
            "dst_port": 65535,
            "ingress_port": 1,
            "egress_port": 509,
            "outer_vid": 100,
            "inner_vid": 4094,
        },
        f"set_flow_ipv{key.version}",
        flow_index=300,
        generation=0,
        flow_class=3,
        feedback=0,
        scalable_feedback=9,
    )
    by_finsy.meter_config = rate_meter(32_000, 3_028)
    by_finsy.idle_timeout_ns = 2_500_000_000
    assert made == by_finsy.encode(program.schema)
    assert program.flow_key(made.table_entry.match, key.version) == key


def test_group_traffic_goes_by_the_slowest_port_that_is_known() -> None:
    of = config()
    first, second = of.ports

    def rates(*capacities: int | Literal["auto"]) -> dict[int, float]:
        ports_of = [
            port.model_copy(update={"capacity_bps": bps}) for port, bps in zip((first, second), capacities, strict=True)
        ]
        found = queue_meters.meter_rates(of.model_copy(update={"ports": ports_of}))
        return {port: found[port, QUEUE_CONTROL] for port in (first.port, second.port, GROUP_PORT)}

    part = of.queue_shares.control / 8
    assert rates(8_000_000, 1_000_000)[GROUP_PORT] == 1_000_000 * part
    # What is to be learned has no limit before, and says nothing of the others.
    assert rates("auto", 8_000_000) == {first.port: 0, second.port: 8_000_000 * part, GROUP_PORT: 8_000_000 * part}
    assert rates("auto", "auto")[GROUP_PORT] == 0
    assert not queue_meters.queue_meter(first.port, QUEUE_CONTROL, 0).config


def test_scalable_senders_may_wait_for_a_millisecond_or_two_frames(program: Program) -> None:
    of = config()
    fast, slow = (
        port.model_copy(update={"capacity_bps": bps})
        for port, bps in zip(of.ports, (100_000_000, 1_000_000), strict=True)
    )
    unknown = slow.model_copy(update={"port": 9, "capacity_bps": "auto"})

    def thresholds(**ncr: Any) -> dict[Any, int]:
        now = config(ncr=ncr).model_copy(update={"ports": [fast, slow, unknown]})
        entries: list[Any] = classes.entities(now, program)
        return {
            entry.match["egress_port"]: entry.action.args["threshold"] for entry in entries if entry.table_id == "step"
        }

    assert thresholds() == {fast.port: 1_000, slow.port: 24_224}
    assert thresholds(step_ms=30) == {fast.port: 30_000, slow.port: 30_000}
    assert thresholds(law="paper") == {}


def test_a_flow_that_an_earlier_loop_thinned_goes_on_so_and_is_of_no_class_of_the_operators(program: Program) -> None:
    of = config()
    loop: Any = SimpleNamespace(flows=FlowTable())
    first, second = (port.port for port in of.ports)
    key = FlowKey(b"\x0a\0\0\1", b"\x0a\0\0\2", 17, 51820, 51820, first, second, 0, 0)
    entity = program.flow_entry(key, (5, 1, FLOW_CLASS_THINNED, 9_000, 0), rate_meter(32_000, 3_028), 30.0)
    entity.table_entry.metadata = NOTE.pack(2.0, 1.0)
    flows = Flows(of, program, loop)
    flows.adopt([entity.table_entry], 1)
    flow = flows.by_index[5]
    kind = flow.kind(of)
    assert (flow.flow_class, flow.weight) == (0, 2.0)
    assert (kind.own_class, kind.thinned, kind.written) == (0, True, 9_000)


def test_flows_are_over_by_what_was_read_of_them_not_by_how_long_nothing_was_read(program: Program) -> None:
    of = config(flow_idle_timeout=5.0)
    loop: Any = SimpleNamespace(flows=FlowTable())
    flows, entries = Flows(of, program, loop), []
    first, second = (port.port for port in of.ports)
    for index in (1, 2):
        key = FlowKey(b"\x0a\0\0\1", b"\x0a\0\0\2", 17, 5000, 5000 + index, first, second, 0, 0)
        entity = program.flow_entry(key, (index, 1, 0, 0, 0), rate_meter(32_000, 3_028), 5.0)
        entity.table_entry.metadata = NOTE.pack(1.0, 1.0)
        entries.append(entity.table_entry)
    flows.adopt(entries, 1)
    sends, ended = flows.by_index[1], flows.by_index[2]

    def over(read: float) -> list[FlowKey]:
        """Return what is over once counters were read twice, so many seconds apart, long ago."""
        at, rates = np.array([1, 2]), loop.flows.rates
        rates.forget(at, 0.0)
        rates.update(at, np.array([100.0, 100.0]), 0.0, 0.5)
        rates.update(at, np.array([200.0, 100.0]), read, 0.5)
        return flows.over()

    assert over(4.0) == []
    assert over(6.0) == [ended.key]
    # The switch has none of their entries any more.
    loop.flows.rates.miss(np.array([1, 2]), 12.0)
    assert flows.over() == [sends.key, ended.key]
