# SPDX-License-Identifier: Apache-2.0
"""One port's regulator: what it makes of volumes and flows over time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from accesspoint.controller.agent.flow_table import FlowKind, FlowTable
from accesspoint.controller.agent.program import FLOW_CLASS_THINNED, QUEUE_SPARSE, QUEUE_THINNED
from accesspoint.controller.agent.regulator import PortRegulator, slowest_uplink
from accesspoint.controller.config import AccessPointConfig

from .test_entries import config

CAPACITY = 125_000.0
MAX_THINNED = 0.25
FRAME = 1514
CLASSES = [0, 1, 2]


def uplink(**fields: Any) -> PortRegulator:
    of: AccessPointConfig = config(**fields)
    return PortRegulator(of, of.ports[1], FlowTable(), CLASSES)


def add(regulator: PortRegulator, index: int, weight: float = 1.0, **fields: Any) -> None:
    """A flow that goes up, of TCP."""
    kind = {
        "tcp": True,
        "own_class": 0,
        "data_class": 2,
        "ack_class": 1,
        "thinned": False,
        "sparse_rate": 1_250.0,
        "metered_rate": 1_250.0,
        "station": 0,
        "written": 0,
        "written_scalable": 0,
        **fields,
    }
    regulator._flows.add(index, FlowKind(egress_port=2, **kind))
    regulator._flows.weight[index] = weight
    regulator.active[index] = None


def read(regulator: PortRegulator, now: float, sizes: dict[int, float], size: int | NDArray[np.int64] = FRAME) -> None:
    """New readings of flows' counters, in packets of one size, or of each flow's."""
    at = np.array(list(sizes), np.int64)
    volumes = np.array([int(volume) for volume in sizes.values()], np.int64)
    regulator._flows.take(at, volumes // size, volumes, now, 0.5)


def run(
    regulator: PortRegulator,
    seconds: float,
    uploads: Callable[[float], float],
    queue: float = 6,
    acks: float = 0.0,
    filtered: float = 0.0,
    start: float = 0.0,
) -> float:
    """Tick with rates in bytes/s and a standing queue in packets; a flow 0 uploads. Returns the time at the end."""
    steps = round(seconds / 0.01)
    volumes = regulator.volumes
    data, ack = 2, 1
    for step in range(1, steps + 1):
        now = start + step * 0.01
        volumes.sent_bytes[data] += round(uploads(now) * 0.01)
        volumes.sent_packets[data] = volumes.sent_bytes[data] // FRAME
        volumes.arrived_packets[data] = volumes.sent_packets[data] + round(queue)
        volumes.arrived_bytes[data] = volumes.sent_bytes[data] + round(queue) * FRAME
        volumes.arrived_bytes[ack] += round(acks * 0.01)
        volumes.filtered_bytes[ack] += round(filtered * 0.01)
        volumes.sent_bytes[ack] = volumes.arrived_bytes[ack] - volumes.filtered_bytes[ack]
        for name in ("arrived", "filtered", "sent"):
            getattr(volumes, f"{name}_packets")[ack] = getattr(volumes, f"{name}_bytes")[ack] // 66
        if 0 in regulator.active and step % 10 == 0:
            read(regulator, now, {0: volumes.sent_bytes[data]})
        regulator.update(now)
    return start + steps * 0.01


def test_a_standing_queue_gets_feedback_and_an_empty_one_none() -> None:
    regulator = uplink()
    end = run(regulator, 5, lambda now: CAPACITY, queue=20)
    assert regulator.feedback > 0.1
    run(regulator, 5, lambda now: CAPACITY / 4, queue=0, start=end)
    assert regulator.feedback == 0.0


def test_the_queue_is_right_beside_group_traffic() -> None:
    # 40 % of the link are copies of multicast: what left of unicast alone would say that the link was idle.
    regulator = uplink()
    volumes = regulator.volumes
    for step in range(1, 501):
        sent = step * 0.01 * CAPACITY
        volumes.sent_packets[2], volumes.sent_bytes[2] = int(0.6 * sent / FRAME), int(0.6 * sent)
        volumes.group_sent_packets[0], volumes.group_sent_bytes[0] = int(0.4 * sent / FRAME), int(0.4 * sent)
        volumes.arrived_packets[2] = volumes.sent_packets[2] + 12
        volumes.arrived_bytes[2] = volumes.sent_bytes[2] + 12 * FRAME
        volumes.others_packets = volumes.group_sent_packets[0] + 8
        volumes.others_bytes = volumes.group_sent_bytes[0] + 8 * FRAME
        regulator.update(step * 0.01)
    assert regulator.estimate.packets == pytest.approx(20, abs=1)
    assert regulator.feedback > 0.1
    # What classes share is what the group traffic leaves.
    assert sum(regulator.class_desired) == pytest.approx(0.6 * CAPACITY, rel=0.05)


def test_acks_that_are_filtered_need_no_share() -> None:
    # 0.32 Mb/s of ACKs arrive, 0.06 are left: the uploads are welcome to the other 0.94.
    regulator = uplink()
    add(regulator, 0)
    run(regulator, 30, lambda now: 0.94 * CAPACITY, acks=0.32 * CAPACITY, filtered=0.26 * CAPACITY)
    assert regulator.class_feedback[1] == 0.0
    assert regulator.class_feedback[2] < 1e-4
    assert regulator.class_rates[1] == pytest.approx(0.06 * CAPACITY, rel=0.1)


def test_uploads_that_take_the_acks_share_are_held_back() -> None:
    # Without a filter the ACKs ask for more than they get.
    regulator = uplink()
    add(regulator, 0)
    run(regulator, 10, lambda now: 0.8 * CAPACITY, acks=0.32 * CAPACITY)
    assert regulator.class_feedback[2] > 0.0
    assert regulator.class_feedback[1] == 0.0


def test_the_class_weight_protects() -> None:
    def pressure(downlink: float) -> float:
        regulator = uplink(class_weights={"downlink": downlink, "uplink": 1})
        run(regulator, 10, lambda now: 0.6 * CAPACITY, acks=0.5 * CAPACITY)
        return regulator.class_feedback[2]

    assert pressure(8.0) > pressure(0.5)


def test_the_heavier_of_two_flows_may_have_more() -> None:
    regulator = uplink(sparse={"fair_share": 0.0})
    add(regulator, 7, weight=3.0)
    add(regulator, 8)
    volumes = regulator.volumes
    for tick in range(1000):
        now = tick * 0.01
        volumes.sent_packets[2], volumes.sent_bytes[2] = int(now * CAPACITY / FRAME), int(now * CAPACITY)
        volumes.arrived_packets[2] = volumes.sent_packets[2] + 6
        volumes.arrived_bytes[2] = volumes.sent_bytes[2] + 6 * FRAME
        read(regulator, now, dict.fromkeys((7, 8), now * CAPACITY / 2))
        regulator.update(now)
    assert regulator._flows.feedback[7] == 0.0
    assert regulator._flows.feedback[8] > 0.0
    assert regulator.largest_flow_feedback == regulator._flows.feedback[8]
    assert regulator._flows.changed(np.array([7, 8]), regulator.law, 1, 1) == [8]


def _uploads(regulator: PortRegulator, rates: dict[int, float], size: int | dict[int, int] = FRAME) -> None:
    """Ten seconds of flows with these parts of the capacity, and a standing queue."""
    volumes = regulator.volumes
    sizes = np.array([size[index] if isinstance(size, dict) else size for index in rates])
    for tick in range(1000):
        now = tick * 0.01
        volumes.sent_packets[2], volumes.sent_bytes[2] = int(now * CAPACITY / FRAME), int(now * CAPACITY)
        volumes.arrived_packets[2] = volumes.sent_packets[2] + 6
        volumes.arrived_bytes[2] = volumes.sent_bytes[2] + 6 * FRAME
        read(regulator, now, {index: now * CAPACITY * part for index, part in rates.items()}, sizes)
        regulator.update(now)


@pytest.mark.parametrize("size", [91, FRAME])
def test_a_flow_of_small_packets_is_sparse_within_its_fair_share(size: int) -> None:
    # What asks for a quarter leaves three quarters to the other, and could have as much.
    regulator = uplink(sparse={"fair_share": 1.0})
    for index in (7, 8):
        add(regulator, index)
    _uploads(regulator, {7: 0.25, 8: 0.75}, size)
    rate, crowded = regulator._flows.meter(7)
    assert rate == pytest.approx(0.75 * CAPACITY if size < FRAME else 1_250, rel=0.02)
    # Full frames are what the port is busy with.
    assert crowded == (size == FRAME)
    assert regulator._flows.elastic(np.array([7]), sparse=True).tolist() == [0.0 if size < FRAME else 1.0]


def test_who_goes_ahead_within_a_fair_share_brings_its_part_of_the_sparse_queue() -> None:
    regulator = uplink()
    static = regulator.queue_rates()[QUEUE_SPARSE]
    assert static == 0.2 * CAPACITY
    add(regulator, 7)
    add(regulator, 8)
    # Datagrams like the ACKs of QUIC beside an upload: they ask for a third, and may have as much as the other gets.
    regulator._flows._tcp[7] = False
    _uploads(regulator, {7: 0.33, 8: 0.67}, {7: 91, 8: FRAME})
    fair, _ = regulator._flows.meter(7)
    assert fair == pytest.approx(0.67 * CAPACITY, rel=0.02)
    assert regulator.queue_rates()[QUEUE_SPARSE] == pytest.approx(static + fair, rel=0.02)
    # However many there are, the queue never takes more than the port carries.
    regulator = uplink()
    for index in range(7):
        add(regulator, index)
        regulator._flows._tcp[index] = False
    _uploads(regulator, dict.fromkeys(range(7), 0.13), 91)
    assert regulator.queue_rates()[QUEUE_SPARSE] == CAPACITY


def test_small_packets_above_the_fair_share_stay_ahead_and_are_thinned() -> None:
    # The ACKs of a tunnel ask for 0.64 of the uplink, and their share is what the upload beside them leaves.
    regulator = uplink(ncr={"device_limit": 0.01})
    add(regulator, 7, tcp=False)
    add(regulator, 8)
    flows, law = regulator._flows, regulator.law
    _uploads(regulator, {7: 0.64, 8: 0.36}, {7: 138, 8: FRAME})
    fair, _ = flows.meter(7)
    assert flows.entry_class(7, 0) == FLOW_CLASS_THINNED and flows.entry_class(8, 0) == 0
    others = law.dropped(regulator.feedback) + regulator.class_feedback.get(2, 0.0)
    assert 0.64 * CAPACITY * (1 - flows.feedback[7] - others) == pytest.approx(fair, rel=0.03)
    # They have a queue of their own, with a meter that stands before the drops.
    assert regulator.queue_rates()[QUEUE_SPARSE] == 0.2 * CAPACITY
    assert regulator.queue_rates()[QUEUE_THINNED] == CAPACITY / 0.5
    # What other terms take away is not taken twice.
    flows.thin(np.array([7]), np.array([fair]), np.array([1.0]), MAX_THINNED)
    assert flows.entry_class(7, 0) == FLOW_CLASS_THINNED and flows.feedback[7] == 0.0


@pytest.mark.parametrize(
    ("part", "size", "tcp", "own_class"),
    [(0.8, FRAME, False, 0), (0.8, 138, True, 0), (0.8, 138, False, 3), (0.7, 138, False, 0)],
)
def test_what_is_not_small_or_of_tcp_or_asks_for_far_more_is_not_torn_apart(
    part: float, size: int, tcp: bool, own_class: int
) -> None:
    regulator = uplink()
    add(regulator, 7, tcp=tcp, own_class=own_class)
    flows, at = regulator._flows, np.array([7])
    for second in range(1, 4):
        read(regulator, second, {7: second * 0.5 * CAPACITY}, size)
    flows.thin(at, part * flows.rates.value[at], np.zeros(1), MAX_THINNED)
    assert flows.entry_class(7, own_class) == own_class and flows.feedback[7] == 0.0


def test_who_is_thinned_stays_so_until_it_asks_for_clearly_less_or_more() -> None:
    regulator = uplink()
    add(regulator, 7, tcp=False)
    flows, at = regulator._flows, np.array([7])
    for second in range(1, 4):
        read(regulator, second, {7: second * 0.5 * CAPACITY}, 138)
    asked, nothing = float(flows.rates.value[7]), np.zeros(1)
    # The first is near its fair share: one packet above its meter would put it behind the bulk for a second.
    flows.sparse_rate[at] = flows._metered[at] = 2 * asked
    steps = [(1.07, 0), (1.04, 1), (1.1, 1), (1.2, 0), (0.74, 0), (0.76, 1), (0.74, 1), (0.7, 0)]
    for part, thinned in steps:
        flows.thin(at, np.array([part * asked]), nothing, MAX_THINNED)
        assert flows.thinned[7] == thinned, part
    flows._metered[at] = flows.sparse_rate[at] = asked
    flows.thin(at, np.array([2 * asked]), nothing, MAX_THINNED)
    assert flows.thinned[7], "the meter that its entry has is not written again before it differs by a quarter"
    flows.stop(at)
    flows._metered[at] = flows.sparse_rate[at] = 2 * asked
    assert flows.changed(at, regulator.law, 65536, 65536) == []
    flows.thin(at, np.array([0.9 * asked]), nothing, MAX_THINNED)
    assert flows.changed(at, regulator.law, 65536, 65536) == [7]
    flows.stop(at)
    assert not flows.thinned[7]


@pytest.mark.parametrize("queue", [3, 100])
def test_who_waits_and_sends_no_more_keeps_its_share(queue: int) -> None:
    # A tunnel asks for more than the uplink has, and goes ahead. What another station has sent waits behind it: as long
    # as it does, its sender asks for nothing, and is not done.
    regulator = uplink()
    add(regulator, 7, tcp=False, station=1)
    add(regulator, 8, station=2)
    flows, volumes = regulator._flows, regulator.volumes
    for tick in range(1000):
        now = tick * 0.01
        volumes.sent_packets[2], volumes.sent_bytes[2] = int(now * CAPACITY / 138), int(now * CAPACITY)
        volumes.arrived_packets[2] = volumes.sent_packets[2] + queue
        volumes.arrived_bytes[2] = volumes.sent_bytes[2] + queue * FRAME
        read(regulator, now, {7: now * CAPACITY * 1.05}, 138)
        read(regulator, now, {8: min(now, 1.0) * 3 * FRAME})
        regulator.update(now)
    assert 8 in regulator.active
    dropped = flows.feedback[7] + regulator.law.dropped(regulator.feedback)
    allowed = flows.rates.value[7] * (1 - dropped) if flows.thinned[7] else flows.sparse_rate[7]
    # A silent flow asks for what is queued in a quarter of a second, and for all if that is more than the port has.
    assert allowed == pytest.approx((0.5 if queue == 100 else 1 - 3 * FRAME / 0.25 / CAPACITY) * CAPACITY, rel=0.03)
    # Once the queue has been empty nobody waits.
    volumes.arrived_packets[2], volumes.arrived_bytes[2] = volumes.sent_packets[2], volumes.sent_bytes[2]
    regulator.update(now + 0.01)
    regulator.update(now + 2.0)
    assert 8 not in regulator.active


def test_a_limited_sender_that_answers_to_nothing_loses_no_more_with_time() -> None:
    # Its station may send half of what the port has, and what it sends above is lost: the flow term has no part in it.
    regulator = uplink()
    add(regulator, 7, tcp=False, station=1)
    add(regulator, 8, tcp=False, station=2)
    regulator._flows.set_limits(5, 0.0, 0.5 * CAPACITY)
    regulator._flows.assign_stations(7, 5, 0, 1, 1.0)
    _uploads(regulator, {7: 1.2, 8: 0.02}, {7: FRAME, 8: 91})
    assert regulator._flows.held[7] == pytest.approx(1 - 0.5 / 1.2, rel=0.02)
    assert regulator._flows.feedback[7] == 0.0


def test_acks_of_tcp_bring_nothing_to_the_sparse_queue() -> None:
    regulator = uplink()
    add(regulator, 7)
    add(regulator, 8)
    _uploads(regulator, {7: 0.33, 8: 0.67}, {7: 66, 8: FRAME})
    assert regulator._flows.acknowledges[7]
    assert regulator.queue_rates()[QUEUE_SPARSE] == 0.2 * CAPACITY


@pytest.mark.parametrize("isolated", [True, False])
def test_a_station_gets_no_more_for_more_flows(isolated: bool) -> None:
    regulator = uplink(ncr={"isolate_stations": isolated})
    add(regulator, 0, station=1)
    for index in range(1, 9):
        add(regulator, index, station=2)
    # By station each has its half, and the eight flows more; by flow the one has more than its ninth.
    _uploads(regulator, {0: 0.3, **dict.fromkeys(range(1, 9), 0.7 / 8)})
    feedback = regulator._flows.feedback
    assert (feedback[0] == 0.0) == isolated
    assert (feedback[1:9] > 0.0).all() == isolated


def test_what_a_station_does_not_ask_for_stays_its_own() -> None:
    regulator = uplink()
    add(regulator, 0, station=1)
    add(regulator, 20, station=1)
    for index in range(1, 9):
        add(regulator, index, station=2)
    # The first station's second flow takes little: its upload may have the rest of the station's half.
    _uploads(regulator, {0: 0.49, 20: 0.005, **dict.fromkeys(range(1, 9), 0.505 / 8)})
    feedback = regulator._flows.feedback
    assert feedback[0] == 0.0 and feedback[20] == 0.0
    assert (feedback[1:9] > 0.0).all()


def test_slow_flows_of_full_frames_are_not_sparse_while_they_fill_a_queue() -> None:
    # 30 uploads have 4 kB/s each, which is sparse on an empty port: nobody would be held back.
    regulator = uplink()
    for index in range(30):
        add(regulator, index, sparse_rate=4_000.0, metered_rate=4_000.0)
    _uploads(regulator, dict.fromkeys(range(30), 0.03))
    at = np.arange(30)
    assert regulator._flows.elastic(at, sparse=True).all()
    assert regulator._flows.meter(0) == (4_000, True)
    assert regulator._flows.values(0, regulator.law) == regulator._flows.values(29, regulator.law)


def test_on_a_crowded_port_only_small_packets_are_sparse() -> None:
    for size, elastic in ((FRAME, 1.0), (100, 0.0)):
        regulator = uplink(sparse={"fair_share": 1.0})
        for index in range(100):
            add(regulator, index, sparse_rate=4_000.0, metered_rate=4_000.0)
        _uploads(regulator, dict.fromkeys(range(100), 0.01), size)
        at = np.arange(100)
        assert regulator._flows.elastic(at, sparse=True).tolist() == [elastic] * 100
        assert regulator._flows.meter(0) == (4_000, True)


def test_a_flow_that_stops_is_looked_at_no_more() -> None:
    regulator = uplink()
    add(regulator, 0, written=30_000)
    read(regulator, 0.0, {0: 0})
    read(regulator, 0.1, {0: 1000})
    regulator.update(0.2)
    assert list(regulator.active) == [0]
    assert regulator._flows.feedback[0] > 0.0
    assert regulator.update(1.5).tolist() == [0]
    assert list(regulator.active) == []
    assert regulator._flows.feedback[0] == 0.0
    assert regulator._flows.changed(np.array([0]), regulator.law, 256, 2048) == [0]


def test_a_port_that_is_not_regulated_any_more_forgets() -> None:
    regulator = uplink()
    end = run(regulator, 5, lambda now: CAPACITY, queue=20)
    add(regulator, 0, written=30_000)
    read(regulator, end, {0: 0})
    read(regulator, end + 0.01, {0: 1000})
    regulator.config.features.ncr = False
    regulator.configure(regulator.config)
    regulator.update(end + 1.0)
    assert (regulator.feedback, regulator.class_feedback, regulator._flows.feedback[0]) == (0.0, {}, 0.0)


def test_a_loop_goes_on_where_another_left_off() -> None:
    regulator = uplink()
    add(regulator, 0, written=6_554)
    regulator.resume(0.04, {2: 0.01})
    volumes = regulator.volumes
    # What was lost at the full queue over weeks is no queue.
    volumes.arrived_packets[2], volumes.sent_packets[2] = 1_001_000, 1_000_000
    volumes.arrived_bytes[2], volumes.sent_bytes[2] = 1_001_000 * FRAME, 1_000_000 * FRAME
    read(regulator, 0.0, {0: 1_000_000 * FRAME})
    regulator.update(0.0)
    assert regulator.estimate.packets == 0
    assert regulator.feedback == pytest.approx(0.04)
    assert regulator.class_feedback[2] == pytest.approx(0.01)
    assert regulator._flows.feedback[0] == pytest.approx(0.1, abs=1e-4)
    # What had been queued after all turns up as it leaves.
    volumes.sent_packets[2] += 20
    volumes.sent_bytes[2] += 20 * FRAME
    regulator.update(0.01)
    volumes.arrived_packets[2] += 5
    volumes.arrived_bytes[2] += 5 * FRAME
    regulator.update(0.02)
    assert regulator.estimate.packets == 5


def test_a_small_packet_flow_is_counted_to_what_it_acknowledges() -> None:
    regulator = uplink()
    add(regulator, 0)
    flows = regulator._flows
    assert flows.class_id[0] == 2
    read(regulator, 0.0, {0: 6600}, size=66)
    assert flows.class_id[0] == 1
    flows.set_class(0, 5)
    assert flows.class_id[0] == 5
    read(regulator, 0.1, {0: 7260}, size=66)
    assert flows.class_id[0] == 5
    flows.set_class(0, 0)
    assert flows.class_id[0] == 1


def test_a_stations_queue_outlasts_the_frame_that_an_ack_waits_for() -> None:
    of = config()
    down, up = (next(port for port in of.ports if port.role == role) for role in ("station", "uplink"))
    slow = of.model_copy(update={"ports": [down, up.model_copy(update={"capacity_bps": 500_000})]})
    regulators = [PortRegulator(slow, port, FlowTable(), CLASSES) for port in slow.ports]
    for regulator in regulators:
        regulator.ack_capacity = slowest_uplink(regulators, regulator)
        regulator.aim()
    frame_time = FRAME * 8 / 500_000
    assert frame_time > of.ncr.queue_target_ms / 1000
    assert regulators[0].target > frame_time * down.capacity
    assert regulators[1].target == 4 * FRAME
    reasons = [regulator.target_reason for regulator in regulators]
    assert reasons[0] == "15 ms were asked for, and ACKs wait for 24.2 ms behind one frame of their link"
    assert reasons[1] == "15 ms were asked for, and the least, queue_target_packets 4, takes 96.9 ms here"
    assert PortRegulator(of, down, FlowTable(), CLASSES).target_reason is None


def test_what_scalable_senders_get_moves_before_the_rest() -> None:
    regulator = uplink()
    table, law = regulator._flows, regulator.law
    add(regulator, 0)
    for feedback, changed in ((0.0002, []), (0.001, [0]), (0.0011, []), (0.0, [0])):
        table.feedback[0] = feedback
        assert table.changed(np.array([0]), law, 256, 2048) == changed
        if changed:
            assert table.values(0, law) == (round(feedback * 65535), round(2 * feedback**0.5 * 65535))
