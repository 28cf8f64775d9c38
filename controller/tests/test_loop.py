# SPDX-License-Identifier: Apache-2.0
"""A tick, with the switch's answer in every form and order."""

import asyncio
from typing import Any, Literal

import pytest
from finsy.proto import p4r, rpc_code, rpc_status

from accesspoint.controller.agent.flow import Flow
from accesspoint.controller.agent.loop import Key, Loop
from accesspoint.controller.agent.program import (
    ECT0,
    ECT1,
    GROUP_COUNTERS,
    GROUP_PORT,
    QUEUE_SPARSE,
    FlowKey,
    Program,
    rate_meter,
)
from accesspoint.controller.agent.queue_meters import burst, queue_rates
from accesspoint.controller.agent.regulator import VOLUMES
from accesspoint.controller.agent.transport import RpcError
from accesspoint.controller.config import AccessPointConfig, Ncr

from .test_entries import config

FLOWS = 5


class Switch:
    """Answers a tick's Read with `cells` and `flows`, in this order, and keeps what is written."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        way: Any = self
        loop._transport = way
        self.cells: list[p4r.Entity] = []
        for number, (counter, index) in enumerate(loop._cells, 1):
            entity = p4r.Entity()
            entity.counter_entry.counter_id, entity.counter_entry.index.index = counter, index
            entity.counter_entry.data.packet_count, entity.counter_entry.data.byte_count = number, 100 * number
            self.cells.append(entity)
        self.flows: list[int] | None = None
        """Indices of those that are answered; None: all that were asked for."""
        self.between = b""
        self.refuses: dict[int, int] = {}
        """By the number of the update: the code."""
        self.written: list[p4r.Update] = []

    async def call(self, method: str, request: bytes, *, timeout: float) -> bytes:
        assert timeout == 2.0
        if method == "Write":
            return self.write([*p4r.WriteRequest.FromString(request).updates])
        asked = [
            flow.direct_counter_entry.table_entry
            for flow in p4r.ReadRequest.FromString(request).entities
            if flow.HasField("direct_counter_entry")
        ]
        by_index = {entry.match[3].exact.value: entry for entry in asked}
        entities = [*self.cells]
        for index in range(len(by_index)) if self.flows is None else self.flows:
            entity = p4r.Entity()
            entity.direct_counter_entry.table_entry.CopyFrom(by_index[bytes([index + 1])])
            data = entity.direct_counter_entry.data
            data.packet_count, data.byte_count = index + 1, 1000 * (index + 1)
            entities.append(entity)
        parts = [p4r.ReadResponse(entities=[entity]).SerializeToString() for entity in entities]
        return self.between + self.between.join(parts)

    def write(self, updates: list[p4r.Update]) -> bytes:
        self.written = updates
        if self.refuses:
            status = rpc_status.Status(code=rpc_code.UNKNOWN)
            for number in range(len(updates)):
                status.details.add().Pack(p4r.Error(canonical_code=self.refuses.get(number, 0)))
            raise RpcError(status)
        return b""

    def tick(self) -> None:
        asyncio.run(self.loop._tick())


@pytest.fixture
def loop() -> Loop:
    """With some flows that it has not read yet."""
    of: AccessPointConfig = config(sparse={"fair_share": 0.0})
    program = Program(of.pipeline)
    made = Loop(of, program)
    for index in range(FLOWS):
        key = FlowKey(b"\x0a\0\0\1", b"\x0a\0\0\2", 6, index + 1, 80, 1, 2)
        entity = program.flow_entry(key, (index, 1, 0, 0, 0), rate_meter(8, 1514), 30.0)
        made.add([Flow(key, (index, 1), "uplink", entity, made.flows)], 0.0)
    return made


@pytest.fixture
def switch(loop: Loop) -> Switch:
    return Switch(loop)


def total(loop: Loop, unit: str) -> int:
    volumes = [regulator.volumes for regulator in loop.ports.values()]
    return sum(sum(getattr(each, f"{name}_{unit}")) for each in volumes for name in (*VOLUMES, *GROUP_COUNTERS))


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [0, 2, 3], [4, 3, 2, 1, 0], [1]], ids=str)
def test_flows_are_found_in_any_order_and_with_gaps(loop: Loop, switch: Switch, order: list[int]) -> None:
    switch.flows = order
    switch.tick()
    expected = [index + 1 if index in order else 0 for index in range(FLOWS)]
    assert loop.flows.packets[:FLOWS].tolist() == expected
    assert loop.flows.bytes[:FLOWS].tolist() == [1000 * count for count in expected]
    cells = sum(range(1, len(switch.cells) + 1))
    assert (total(loop, "packets"), total(loop, "bytes")) == (cells, 100 * cells)
    # Who was not answered is asked again.
    assert {flow.index for flow in (*loop._turn, *loop._quiet)} == set(range(FLOWS))


def test_fields_that_nobody_knows_are_passed_over(loop: Loop, switch: Switch) -> None:
    switch.between = b"\xfa\x01\x03abc"
    switch.tick()
    assert loop.flows.packets[:FLOWS].tolist() == [1, 2, 3, 4, 5]


def test_cells_that_nobody_asked_for_count_nothing(loop: Loop, switch: Switch) -> None:
    switch.tick()
    before = total(loop, "packets")
    for index in (4095, 2**40):
        cell = p4r.CounterEntry(counter_id=switch.cells[0].counter_entry.counter_id, index=p4r.Index(index=index))
        cell.data.packet_count = 7
        switch.cells.append(p4r.Entity(counter_entry=cell))
    switch.cells.append(p4r.Entity())
    switch.tick()
    assert total(loop, "packets") == before


@pytest.mark.parametrize("isolated", [True, False])
def test_group_traffic_enters_the_queues_of_the_other_ports(loop: Loop, switch: Switch, isolated: bool) -> None:
    loop.ports[1].port.isolated = isolated
    names = loop._counters
    of_port = {("group_arrived", 1): 7, ("group_arrived", 2): 3, ("group_sent", 1): 3, ("group_sent", 2): 4}
    for entity in switch.cells:
        cell = entity.counter_entry
        count = of_port.get((names[cell.counter_id], cell.index.index), 0)
        cell.data.packet_count, cell.data.byte_count = count, 1000 * count
    switch.tick()
    queued = {
        number: (regulator.estimate.packets, regulator.estimate.bytes) for number, regulator in loop.ports.items()
    }
    # Port 1 sent three that came from port 2, and has to send seven of its own where it is a radio.
    assert queued == {1: (0.0, 0.0) if isolated else (7.0, 7000.0), 2: (3.0, 3000.0)}


def test_a_class_that_is_not_read_any_more_counts_nothing(loop: Loop) -> None:
    rule = {"name": "own", "dst_port": [5, 5], "class_id": 3}
    loop._config.rules = config(rules=[rule]).rules
    loop.configure()
    Switch(loop).tick()
    before = total(loop, "packets")
    of_class = sum(getattr(loop.ports[port].volumes, f"{name}_packets")[3] for port in loop.ports for name in VOLUMES)
    assert of_class > 0
    loop._config.rules = []
    loop.configure()
    assert total(loop, "packets") == before - of_class


@pytest.mark.parametrize(("law", "steps"), [("pi2", (1024, 256, 2048)), ("paper", (1, 1, 1))])
def test_the_law_of_the_paper_is_written_however_small_the_change(
    loop: Loop, law: Literal["paper", "pi2"], steps: tuple[int, int, int]
) -> None:
    loop._config.ncr = Ncr(law=law)
    loop.configure()
    keys: tuple[Key, ...] = (2, None, ECT0), (2, 1, ECT0), (2, 1, ECT1)
    assert tuple(loop._step(key, 32_768) for key in keys) == steps
    assert loop._step((2, None, ECT1), 0) == 1


def test_the_sparse_queue_takes_what_its_flows_bring(loop: Loop) -> None:
    down, up = loop._config.ports
    rates = queue_rates(loop._config, up.capacity)
    assert loop._queue_meters(up.port, rates) == []
    ((_, update),) = loop._queue_meters(up.port, {**rates, QUEUE_SPARSE: 100_000.0})
    cell = update.entity.meter_entry
    assert (update.type, cell.index.index) == (p4r.Update.MODIFY, up.port << 3 | QUEUE_SPARSE)
    assert (cell.config.cir, cell.config.pir, cell.config.cburst) == (100_000, 100_000, burst(100_000.0))
    # Not for every little change, for on some targets a write refills the meter.
    assert loop._queue_meters(up.port, {**rates, QUEUE_SPARSE: 90_000.0}) == []
    assert len(loop._queue_meters(up.port, rates)) == 1
    assert loop._queue_meters(down.port, queue_rates(loop._config, down.capacity)) == []
    # As long as nothing is known of the link, nothing is limited.
    assert loop._queue_meters(up.port, queue_rates(loop._config, 0.0)) == []


def test_group_traffic_takes_what_the_slowest_port_carries(loop: Loop, switch: Switch) -> None:
    switch.tick()
    assert not any(update.entity.HasField("meter_entry") for update in switch.written)
    uplink = loop.ports[2]
    uplink.link.configured /= 2
    rates = queue_rates(loop._config, uplink.capacity / 2)
    switch.tick()
    written = {
        update.entity.meter_entry.index.index: update.entity.meter_entry.config.cir
        for update in switch.written
        if update.entity.HasField("meter_entry") and update.entity.meter_entry.index.index >> 3 == GROUP_PORT
    }
    assert written == {GROUP_PORT << 3 | queue: round(rate) for queue, rate in rates.items()}


def test_a_flow_is_counted_to_the_class_that_its_packets_get(loop: Loop) -> None:
    """B9: what a flow asks for is a key of `classify`; without a rule for it nothing changes in the data plane."""
    flow = loop._by_index[0]

    def class_id() -> int:
        return int(loop.flows.class_id[flow.index])

    built_in = class_id()
    flow.flow_class = 3
    loop.change(flow)
    assert class_id() == built_in
    rules = [
        {"name": name, "flow_class": 3, "class_id": of, "priority": of * 1000} for name, of in (("a", 4), ("b", 5))
    ]
    loop._config.rules = config(rules=rules).rules
    loop.configure()
    assert class_id() == 5
    loop._config.rules = []
    loop.configure()
    assert class_id() == built_in


def test_an_entry_that_the_switch_lost_is_inserted_anew(loop: Loop, switch: Switch) -> None:
    """B8: what is shown as feedback is what the switch has."""
    loop._written[2, None, ECT0] = 5000, False
    switch.refuses = {0: rpc_code.NOT_FOUND}
    key = (2, None, ECT0)
    asyncio.run(loop._write([loop._entry(key, 9000)]))
    assert key not in loop._written
    switch.refuses = {}
    asyncio.run(loop._write(loop._changed(key, 0.5)))
    (update,) = switch.written
    assert (update.type, loop._written[key]) == (p4r.Update.INSERT, (32768, False))


def test_a_flow_that_ended_meanwhile_is_no_error_and_all_else_is(loop: Loop, switch: Switch) -> None:
    changes = loop._flow_updates([0, 1])
    switch.refuses = {1: rpc_code.NOT_FOUND}
    asyncio.run(loop._write(changes))
    switch.refuses = {0: rpc_code.NOT_FOUND, 1: 99}
    with pytest.raises(RpcError, match="code 99"):
        asyncio.run(loop._write(changes))
