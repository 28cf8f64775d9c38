# SPDX-License-Identifier: Apache-2.0
"""What a tick makes of a switch's answer, however that is put together."""

import socket
from collections.abc import Iterator
from typing import Literal

import pytest
from finsy.proto import p4r
from hypothesis import given
from hypothesis import strategies as st

from controller.acks import burst, meter_rates, queue_rates
from controller.board import GROUP, VOLUMES, Board
from controller.config import AccessPointConfig, Ncr
from controller.messages import FlowKind, NewFlow, Session
from controller.program import ECT0, ECT1, GROUP_PORT, QUEUE_SPARSE
from controller.ticker import Ticker, within

from .test_entries import config

FLOWS = 5
TABLE = 7
METER = 9


@given(st.binary(max_size=20_000), st.binary(max_size=3))
def test_a_field_is_found_behind_its_length(value: bytes, behind: bytes) -> None:
    message = p4r.Entity(table_entry=p4r.TableEntry(metadata=value)).SerializeToString()
    start, end = within(message + behind, 1)
    assert (end, p4r.TableEntry.FromString(message[start:end]).metadata) == (len(message), value)


def flow(index: int) -> NewFlow:
    entry = p4r.TableEntry(table_id=TABLE)
    entry.match.add(field_id=1).exact.value = bytes([index + 1])
    named = p4r.DirectCounterEntry(table_entry=entry)
    reading = p4r.ReadRequest(entities=[p4r.Entity(direct_counter_entry=named)]).SerializeToString()
    kind = FlowKind(
        egress_port=2,
        tcp=True,
        own_class=0,
        thinned=False,
        data_class=2,
        ack_class=1,
        sparse_rate=1.0,
        metered_rate=1.0,
        station=0,
        written=0,
        written_scalable=0,
    )
    return NewFlow(index, (bytes([index + 1]),), reading, named.SerializeToString(), b"", kind)


def meter_update(port: int, queue: int, rate: float) -> bytes:
    """Of a queue's meter, as the configuration has it."""
    entry = p4r.MeterEntry(meter_id=METER, index=p4r.Index(index=port << 3 | queue))
    entry.config.cir = entry.config.pir = round(rate)
    return p4r.WriteRequest(updates=[p4r.Update(entity=p4r.Entity(meter_entry=entry))]).SerializeToString()


@pytest.fixture
def ticker() -> Iterator[Ticker]:
    """In its first tick, which has asked for all cells and flows."""
    of: AccessPointConfig = config(sparse={"fair_share": 0.0})
    with socket.create_server(("127.0.0.1", 0)) as server:
        counters = {name: number for number, name in enumerate((*VOLUMES, *GROUP), 1)}
        meters = {(port, queue): meter_update(port, queue, rate) for (port, queue), rate in meter_rates(of).items()}
        session = Session(socket.AF_INET, server.getsockname(), "localhost", 1, 1, counters, {}, {}, meters)
        made = Ticker(of, session, Board.create(len(of.ports)), 0.0)
        for index in range(FLOWS):
            made.add(flow(index))
            made._flows.weight[index] = 1.0
        made.begin(0.0)
        yield made
        made.channel.close()


def cells(ticker: Ticker) -> list[p4r.Entity]:
    """The answer's cells: the number of packets is that of the cell, the bytes a hundred times that."""
    found = []
    for number, (counter, index) in enumerate(ticker._places, 1):
        entity = p4r.Entity()
        entity.counter_entry.counter_id, entity.counter_entry.index.index = counter, index
        entity.counter_entry.data.packet_count, entity.counter_entry.data.byte_count = number, 100 * number
        found.append(entity)
    return found


def counter(index: int) -> p4r.Entity:
    """The answer's counter of a flow."""
    entity = p4r.Entity()
    entity.direct_counter_entry.ParseFromString(flow(index).named)
    data = entity.direct_counter_entry.data
    data.packet_count, data.byte_count = index + 1, 1000 * (index + 1)
    return entity


def answer(ticker: Ticker, *messages: bytes) -> None:
    for message in messages:
        ticker._have_some(ticker._tick, message)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [0, 2, 3], [4, 3, 2, 1, 0], [1]], ids=str)
def test_flows_are_found_in_any_order_and_with_gaps(ticker: Ticker, order: list[int]) -> None:
    found = [*cells(ticker), *(counter(index) for index in order)]
    middle = len(found) - 1
    answer(ticker, *(p4r.ReadResponse(entities=part).SerializeToString() for part in (found[:middle], found[middle:])))
    if len(order) < FLOWS:
        assert ticker.busy
        ticker._left = 0
        ticker._go_on()
    assert not ticker.busy
    expected = [index + 1 if index in order else 0 for index in range(FLOWS)]
    assert ticker._flows.packets[:FLOWS].tolist() == expected
    assert ticker._flows.bytes[:FLOWS].tolist() == [1000 * count for count in expected]
    total = sum(range(1, len(ticker._places) + 1))
    volumes = [regulator.volumes for regulator in ticker.regulators]
    assert sum(sum(getattr(each, f"{name}_packets")) for each in volumes for name in (*VOLUMES, *GROUP)) == total
    assert sum(sum(getattr(each, f"{name}_bytes")) for each in volumes for name in (*VOLUMES, *GROUP)) == 100 * total


def test_fields_that_nobody_knows_are_passed_over(ticker: Ticker) -> None:
    unknown = b"\xfa\x01\x03abc"
    found = [*cells(ticker), *(counter(index) for index in range(FLOWS))]
    parts = [p4r.ReadResponse(entities=[entity]).SerializeToString() for entity in found]
    answer(ticker, unknown + unknown.join(parts))
    assert not ticker.busy
    assert ticker._flows.packets[:FLOWS].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("turn", [1, -1], ids=["as asked", "backwards"])
def test_only_cells_that_changed_are_counted_again(ticker: Ticker, turn: int) -> None:
    found = cells(ticker)
    for tick in range(4):
        for entity in found[tick::5]:
            # The last time the number takes more octets than before.
            entity.counter_entry.data.packet_count += 10 ** (2 * tick)
        flows = [counter(asked.index) for asked in ticker._asked.values()]
        answer(ticker, p4r.ReadResponse(entities=[*found[::turn], *flows]).SerializeToString())
        assert not ticker.busy
        shown = ticker._board.ports
        for data in ("packet_count", "byte_count"):
            total = sum(getattr(entity.counter_entry.data, data) for entity in found)
            name = "packets" if data == "packet_count" else "bytes"
            assert shown[name].sum() + shown[f"group_{name}"].sum() == total
        ticker.begin(0.01 * (tick + 1))


@pytest.mark.parametrize("isolated", [True, False])
def test_group_traffic_enters_the_queues_of_the_other_ports(ticker: Ticker, isolated: bool) -> None:
    ticker.regulators[0].port.isolated = isolated
    arrived, sent = ticker.session.counters["group_arrived"], ticker.session.counters["group_sent"]
    found = []
    for counter_id, index in ticker._places:
        entity = p4r.Entity()
        entity.counter_entry.counter_id, entity.counter_entry.index.index = counter_id, index
        if counter_id in (arrived, sent):
            of_port = {(arrived, 1): 7, (arrived, 2): 3, (sent, 1): 3, (sent, 2): 4}[counter_id, index]
            entity.counter_entry.data.packet_count, entity.counter_entry.data.byte_count = of_port, 1000 * of_port
        found.append(entity)
    flows = [counter(asked.index) for asked in ticker._asked.values()]
    # Nobody has watched what was counted before: first nothing is taken for queued.
    for regulator in ticker.regulators:
        regulator.estimate._start_empty = False
    answer(ticker, p4r.ReadResponse(entities=[*found, *flows]).SerializeToString())
    assert not ticker.busy
    queued = {
        regulator.port.port: (regulator.estimate.packets, regulator.estimate.bytes) for regulator in ticker.regulators
    }
    # Port 1 sent three that came from port 2, and has to send seven of its own where it is a radio.
    assert queued == {1: (0.0, 0.0) if isolated else (7.0, 7000.0), 2: (3.0, 3000.0)}


def test_a_class_that_is_not_read_any_more_counts_nothing(ticker: Ticker) -> None:
    rule = {"name": "own", "dst_port": [5, 5], "class_id": 3}
    ticker.configure(config(rules=[rule], sparse={"fair_share": 0.0}))
    ticker._cell, ticker._left = 0, len(ticker._cells) + FLOWS
    found = [*cells(ticker), *(counter(index) for index in range(FLOWS))]
    answer(ticker, p4r.ReadResponse(entities=found).SerializeToString())
    before = ticker._board.ports["packets"].sum()
    of_class = ticker._board.ports["packets"][:, :, 3].sum()
    assert of_class > 0
    ticker.configure(config(sparse={"fair_share": 0.0}))
    assert ticker._board.ports["packets"].sum() == before - of_class


@pytest.mark.parametrize(("law", "steps"), [("pi2", (1024, 256, 2048)), ("paper", (1, 1, 1))])
def test_the_law_of_the_paper_is_written_however_small_the_change(
    ticker: Ticker, law: Literal["paper", "pi2"], steps: tuple[int, int, int]
) -> None:
    ticker.configure(ticker.config.model_copy(update={"ncr": Ncr(law=law)}))
    keys = (2, None, ECT0), (2, 1, ECT0), (2, 1, ECT1)
    assert tuple(ticker._step(key, 32_768) for key in keys) == steps
    assert ticker._step((2, None, ECT1), 0) == 1


def test_the_sparse_queue_takes_what_its_flows_bring(ticker: Ticker) -> None:
    down, up = ticker.config.ports
    rates = queue_rates(ticker.config.queue_shares, up.capacity)
    assert ticker._queue_meters(up.port, rates) == []
    (written,) = ticker._queue_meters(up.port, {**rates, QUEUE_SPARSE: 100_000.0})
    (update,) = p4r.WriteRequest.FromString(written).updates
    cell = update.entity.meter_entry
    assert (cell.meter_id, cell.index.index) == (METER, up.port << 3 | QUEUE_SPARSE)
    assert (cell.config.cir, cell.config.pir, cell.config.cburst) == (100_000, 100_000, burst(100_000.0))
    # Not for every little change, for on some targets a write refills the meter.
    assert ticker._queue_meters(up.port, {**rates, QUEUE_SPARSE: 90_000.0}) == []
    assert len(ticker._queue_meters(up.port, rates)) == 1
    assert ticker._queue_meters(down.port, queue_rates(ticker.config.queue_shares, down.capacity)) == []
    # As long as nothing is known of the link, nothing is limited.
    assert ticker._queue_meters(up.port, queue_rates(ticker.config.queue_shares, 0.0)) == []


def test_group_traffic_takes_what_the_slowest_port_carries(ticker: Ticker) -> None:
    assert ticker._group_meters() == []
    uplink = next(regulator for regulator in ticker.regulators if regulator.port.role == "uplink")
    uplink.capacity /= 2
    rates = queue_rates(ticker.config.queue_shares, uplink.capacity)
    written = [p4r.WriteRequest.FromString(update).updates[0].entity.meter_entry for update in ticker._group_meters()]
    assert {cell.index.index: cell.config.cir for cell in written} == {
        GROUP_PORT << 3 | queue: round(rate) for queue, rate in rates.items()
    }
