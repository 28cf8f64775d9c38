# SPDX-License-Identifier: Apache-2.0
"""One port's regulator: what it makes of volumes and flows over time."""

from collections.abc import Callable
from typing import Any

import pytest

from controller.config import AccessPointConfig
from controller.flows import Flow
from controller.program import FlowKey, Program, rate_meter
from controller.regulator import PortRegulator, Volume

from .test_entries import config
from .test_entries import program as program  # a fixture

CAPACITY = 125_000.0
FRAME = 1514


def uplink(**fields: Any) -> PortRegulator:
    of: AccessPointConfig = config(**fields)
    regulator = PortRegulator(of, of.ports[1])
    regulator.volumes = {class_id: Volume() for class_id in (0, 1, 2)}
    return regulator


def upload(regulator: PortRegulator, program: Program, rate: float) -> None:
    """An active data flow that sends at this rate, in bytes/s."""
    flow = flow_of(program, 0)
    flow.rate.value, flow.rate.last_moved = rate, 1e9
    regulator.active = {0: flow}


def flow_of(program: Program, index: int) -> Flow:
    key = FlowKey(b"\x0a\0\0\1", b"\x0a\0\0\2", 6, 1000 + index, 80)
    entry = program.flow_entry(key, index, 1, 0, rate_meter(32_000, 3_028), 30.0)
    flow = Flow(key, (index, 1), (1, 2), "uplink", entry)
    flow.packets, flow.bytes = 100, 100 * FRAME
    return flow


def run(
    regulator: PortRegulator,
    seconds: float,
    uploads: Callable[[float], float],
    queue: float = 6,
    acks: float = 0.0,
    filtered: float = 0.0,
    start: float = 0.0,
) -> float:
    """Tick with rates in bytes/s and a standing queue in packets; returns the time at the end."""
    steps = round(seconds / 0.01)
    data, ack = regulator.volumes[2], regulator.volumes[1]
    for step in range(1, steps + 1):
        now = start + step * 0.01
        data.sent_bytes += round(uploads(now) * 0.01)
        data.sent_packets = data.sent_bytes // FRAME
        data.arrived_packets = data.sent_packets + round(queue)
        data.arrived_bytes = data.sent_bytes + round(queue) * FRAME
        ack.arrived_bytes += round(acks * 0.01)
        ack.filtered_bytes += round(filtered * 0.01)
        ack.sent_bytes = ack.arrived_bytes - ack.filtered_bytes
        for name in ("arrived", "filtered", "sent"):
            setattr(ack, f"{name}_packets", getattr(ack, f"{name}_bytes") // 66)
        regulator.update(now)
    return start + steps * 0.01


def test_a_standing_queue_gets_feedback_and_an_empty_one_none() -> None:
    regulator = uplink()
    end = run(regulator, 5, lambda now: CAPACITY, queue=20)
    assert regulator.feedback > 0.1
    run(regulator, 5, lambda now: CAPACITY / 4, queue=0, start=end)
    assert regulator.feedback == 0.0


def test_acks_that_are_filtered_need_no_share(program: Program) -> None:
    # 0.32 Mb/s of ACKs arrive, 0.06 are left: the uploads are welcome to the other 0.94.
    regulator = uplink()
    upload(regulator, program, 0.94 * CAPACITY)
    run(regulator, 30, lambda now: 0.94 * CAPACITY, acks=0.32 * CAPACITY, filtered=0.26 * CAPACITY)
    assert regulator.class_feedback[1] == 0.0
    assert regulator.class_feedback[2] < 1e-4
    assert regulator.class_rates[1] == pytest.approx(0.06 * CAPACITY, rel=0.1)


def test_uploads_that_take_the_acks_share_are_held_back(program: Program) -> None:
    # Without a filter the ACKs ask for more than they get.
    regulator = uplink()
    upload(regulator, program, 0.8 * CAPACITY)
    run(regulator, 10, lambda now: 0.8 * CAPACITY, acks=0.32 * CAPACITY)
    assert regulator.class_feedback[2] > 0.0
    assert regulator.class_feedback[1] == 0.0


def test_the_class_weight_protects() -> None:
    def pressure(downlink: float) -> float:
        regulator = uplink(class_weights={"downlink": downlink, "uplink": 1})
        run(regulator, 10, lambda now: 0.7 * CAPACITY, acks=0.6 * CAPACITY)
        return regulator.class_feedback[2]

    assert pressure(8.0) > pressure(0.5)


def test_the_heavier_of_two_flows_may_have_more(program: Program) -> None:
    regulator = uplink()
    flows = [flow_of(program, 0), flow_of(program, 1)]
    flows[0].weight = 3.0
    regulator.active = {flow.index: flow for flow in flows}
    for tick in range(1000):
        now = tick * 0.01
        regulator.volumes[2] = Volume(
            arrived_packets=int(now * CAPACITY / FRAME) + 6,
            arrived_bytes=int(now * CAPACITY) + 6 * FRAME,
            sent_packets=int(now * CAPACITY / FRAME),
            sent_bytes=int(now * CAPACITY),
        )
        for flow in flows:
            flow.rate.update(now * CAPACITY / 2, now)
        regulator.update(now)
    assert flows[0].feedback == 0.0
    assert flows[1].feedback > 0.0
    assert regulator.largest_flow_feedback == flows[1].feedback


def test_a_flow_that_stops_is_looked_at_no_more(program: Program) -> None:
    regulator = uplink()
    flow = flow_of(program, 0)
    flow.rate.update(0, 0.0)
    flow.rate.update(1000, 0.1)
    flow.feedback = 0.3
    regulator.active = {0: flow}
    regulator.update(0.2)
    assert regulator.active == {0: flow}
    assert regulator.update(1.5) == [flow]
    assert regulator.active == {}
    assert flow.feedback == 0.0


def test_a_port_that_is_not_regulated_any_more_forgets(program: Program) -> None:
    regulator = uplink()
    end = run(regulator, 5, lambda now: CAPACITY, queue=20)
    flow = flow_of(program, 0)
    flow.rate.update(0, end)
    flow.rate.update(1000, end + 0.01)
    flow.feedback = 0.3
    regulator.active = {0: flow}
    regulator._config.features.ncr = False
    regulator.update(end + 1.0)
    assert (regulator.feedback, regulator.class_feedback, flow.feedback) == (0.0, {}, 0.0)


def test_a_small_packet_flow_is_counted_to_what_it_acknowledges(program: Program) -> None:
    flow = flow_of(program, 0)
    assert flow.class_id == 2
    flow.packets, flow.bytes = 100, 6600
    assert flow.class_id == 1
    flow.flow_class = 5
    assert flow.class_id == 5


def test_a_stations_queue_outlasts_the_frame_that_an_ack_waits_for() -> None:
    of = config()
    down, up = (next(port for port in of.ports if port.role == role) for role in ("station", "uplink"))
    slow = of.model_copy(update={"ports": [down, up.model_copy(update={"capacity_bps": 500_000})]})
    frame_time = FRAME * 8 / 500_000
    assert frame_time > of.ncr.queue_target_ms / 1000
    assert PortRegulator(slow, slow.ports[0]).target > frame_time * down.capacity_bps / 8
    assert PortRegulator(slow, slow.ports[1]).target == PortRegulator(of, up).target == 4 * FRAME
