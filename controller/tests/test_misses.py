# SPDX-License-Identifier: Apache-2.0
"""Limits of stations that are missed: when one is, and that REST, /metrics and the log have it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from accesspoint.controller.agent.flow_table import DOWN, UP, FlowKind, FlowTable
from accesspoint.controller.agent.misses import MISSED_ABOVE, MISSED_SECONDS, Demand, Limit, Misses
from accesspoint.controller.agent.program import Program
from accesspoint.controller.agent.stations import Stations
from accesspoint.controller.agent.usage import Usage
from accesspoint.controller.config import Pipeline

from .test_entries import PIPELINE, config

MAC, ADDRESS = 0x02_00_00_00_00_11, "02:00:00:00:00:11"
ALLOWED = 100_000.0
"""bytes/s"""
STATION_PORT, UPLINK, OTHER_PORT = 1, 2, 3


def missed(rate: Callable[[int], float], withheld: Callable[[int], float] = lambda second: 0.0) -> list[int]:
    """Return the seconds in which a limit is missed; `rate` by the limit, and what the port withheld in each second."""
    misses, limit, total, found = Misses(), (MAC, "down"), 0.0, []
    for second in range(20):
        total += withheld(second) * ALLOWED
        misses.update([Demand(limit, 1, rate(second) * ALLOWED, ALLOWED)], {1: total}, 100.0 + second)
        found += [second] if misses.missed == {limit} else []
    return found


def test_limit_is_missed_after_five_seconds_until_it_is_kept() -> None:
    assert missed(lambda second: 1.1 if second < 12 else 1.0) == [*range(5, 12)]


def test_limit_within_its_tolerance_is_not_missed() -> None:
    assert missed(lambda second: MISSED_ABOVE) == []


def test_limit_kept_for_a_moment_begins_its_seconds_again() -> None:
    assert missed(lambda second: 1.0 if second == 4 else 1.5) == [*range(10, 20)]


def test_sender_that_is_cut_to_its_limit_does_not_miss_it() -> None:
    # What a port withholds is known from the second reading of its counters on.
    assert missed(lambda second: 7.0, lambda second: 6.0) == []
    assert missed(lambda second: 7.0, lambda second: 5.0) == [*range(5, 20)]


def test_counters_that_start_again_withhold_nothing() -> None:
    assert missed(lambda second: 1.5, lambda second: -50.0 if second == 8 else 0.0) == [*range(5, 20)]


def test_ports_and_directions_are_judged_apart() -> None:
    misses, limits = Misses(), [(MAC, "up"), (MAC, "down")]
    for second in range(6):
        asked = [Demand(limit, port, 1.5 * ALLOWED, ALLOWED) for port, limit in enumerate(limits)]
        misses.update(asked, {0: second * ALLOWED, 1: 0.0}, float(second))
    assert misses.missed == {(MAC, "down")}
    misses.update([], {}, 7.0)
    assert not misses.missed


def sent(table: FlowTable, rates: dict[int, float], seconds: int = 5) -> None:
    """Send flows by index, in bytes/s; until the average has reached that."""
    at = np.array(list(rates), np.int64)
    for tenth in range(10 * seconds + 1):
        sizes = np.array([tenth * rate / 10 for rate in rates.values()]).astype(np.int64)
        table.take(at, sizes // 1000, sizes, 1.0 + tenth / 10, 0.5)


def flow(table: FlowTable, index: int, port: int, sender: int, receiver: int) -> None:
    table.add(index, FlowKind(port, False, 0, False, 1, 2, 1000.0, 1000.0, 1, 0, 0))
    table.assign_stations(index, sender, receiver, 1, 1.0)


def test_what_a_station_asks_is_by_port_and_of_those_with_limits() -> None:
    table = FlowTable()
    assert table.demands() == []
    table.set_limits(1, down=200_000.0, up=0.0)
    table.set_limits(2, down=0.0, up=50_000.0)
    for index, (port, sender, receiver) in enumerate(
        [(STATION_PORT, 0, 1), (STATION_PORT, 2, 1), (UPLINK, 2, 0), (OTHER_PORT, 2, 3), (UPLINK, 1, 0)]
    ):
        flow(table, index, port, sender, receiver)
    sent(table, dict.fromkeys(range(5), 10_000.0))
    assert [(way, slot, port, round(rate, -1), limit) for way, slot, port, rate, limit in table.demands()] == [
        (UP, 2, STATION_PORT, 10_000, 50_000),
        (UP, 2, UPLINK, 10_000, 50_000),
        (UP, 2, OTHER_PORT, 10_000, 50_000),
        (DOWN, 1, STATION_PORT, 20_000, 200_000),
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"stations": {ADDRESS: {"limit_down_bps": 800_000}}},
        {"stations": {ADDRESS: {"group": "guests"}}, "groups": {"guests": {"limit_down_bps": 800_000}}},
        {"groups": {"default": {"limit_down_bps": 800_000}}},
    ],
)
def test_missed_limit_is_in_usage_and_in_the_log_once(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    of = config(**settings)
    program = Program(Pipeline.model_validate(PIPELINE))
    usage = Usage(of, program, Stations(of, program), FlowTable())
    flow(usage.table, 1, STATION_PORT, 0, usage._slot(MAC))
    sent(usage.table, {1: 2 * ALLOWED})

    def told() -> tuple[bool, bool]:
        (seen,) = usage.of(MAC)
        return seen["limit_down_missed"], seen["limit_up_missed"]

    for second in range(8):
        assert told() == (second > MISSED_SECONDS, False)
        usage.judge({STATION_PORT: 0.0}, 10.0 + second)
    usage.table.set_limits(usage._slot(MAC), 3 * ALLOWED, 0.0)
    usage.judge({STATION_PORT: 0.0}, 20.0)
    assert told() == (False, False)
    begins = f"{of.name}: station {ADDRESS}: limit_down_bps is missed"
    assert [record.getMessage() for record in caplog.records] == [
        f"{begins}: more has passed for 5 s", f"{begins} no longer"
    ]  # fmt: skip


def test_missed_limit_is_forgotten_with_the_session(caplog: pytest.LogCaptureFixture) -> None:
    of = config()
    program = Program(Pipeline.model_validate(PIPELINE))
    usage = Usage(of, program, Stations(of, program), FlowTable())
    limit: Limit = MAC, "up"
    for second in (0, 6):
        usage.misses.update([Demand(limit, UPLINK, 2.0, 1.0)], {}, float(second))
    assert usage.of(MAC)[0]["limit_up_missed"]
    usage.forget_misses()
    assert not usage.of(MAC)[0]["limit_up_missed"]
    assert caplog.records[-1].getMessage().endswith("limit_up_bps is not watched: the session has ended")
