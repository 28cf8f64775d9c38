# SPDX-License-Identifier: Apache-2.0
"""The cell of 802.11g in which stations contend: what is left of it, how fast, and who counts as contending."""

from itertools import pairwise
from random import Random
from types import SimpleNamespace

import pytest

from accesspoint.experiments.runs import registry
from accesspoint.experiments.scenes.contention import (
    BANDWIDTH,
    FRAME,
    PERIOD,
    Contention,
    Senders,
    contenders,
    link_rates,
)
from accesspoint.experiments.scenes.scene import AccessPoint
from accesspoint.topologies.links.dcf import DATA, MAX_STATIONS, PAYLOAD, Cell, saturation


def test_one_station_gets_what_the_protocol_leaves() -> None:
    # IEEE Std 802.11-2020, in us: DIFS 28, 7.5 slots of 9, 1536 octets at 54 Mb/s 254, SIFS 10, ACK at 24 Mb/s 38.
    assert saturation(1, False)[0] == pytest.approx(1448 * 8 / (28 + 67.5 + 254 + 10 + 38), rel=0.02)


def test_contention_costs_more_the_more_contend() -> None:
    both = [saturation(stations, True, seconds=30) for stations in (1, 2, 3, 5, MAX_STATIONS)]
    assert all(more[0] < fewer[0] and more[1] < fewer[1] for fewer, more in pairwise(both))
    assert both[-1][0] < both[0][0] / 4


def test_a_cell_takes_its_time_to_come_down_and_to_recover() -> None:
    cell = Cell(MAX_STATIONS)
    down = [cell.contend(range(MAX_STATIONS), True, PERIOD)[0] for _ in range(50)]
    assert down[0] > 1.5 * down[4] > 0 and sum(down[:5]) > 3 * sum(down[-5:])
    up = [cell.contend([0], True, PERIOD)[0] for _ in range(25)]
    assert up[0] < up[-1] / 3 and up[-1] * PAYLOAD * 8 / PERIOD > 15e6


def test_links_have_the_rates_of_the_cell() -> None:
    contending = range(MAX_STATIONS)
    uplink, downlink = link_rates(Cell(MAX_STATIONS), contending, True)
    frames, _ = Cell(MAX_STATIONS).contend(contending, True, PERIOD)
    assert uplink == round(frames / PERIOD * (DATA + 14) * 8)
    assert downlink == round(frames / MAX_STATIONS / PERIOD * 66 * 8), "every station gets as many frames through"


def test_a_cell_in_which_stations_contend_begins_at_its_worst() -> None:
    seen = 0
    for experiment in registry.experiments().values():
        for scene in (experiment.scene_of(point, arm) for point in experiment.points() for arm in experiment.arms):
            if isinstance(scene, AccessPoint) and any(isinstance(one, Contention) for one in scene.traffic):
                assert scene.profile.up * PAYLOAD / FRAME < BANDWIDTH / 2 * 1e6, experiment.name
                seen += 1
    assert seen


def test_whose_packets_wait_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [0, 0, 0]
    monkeypatch.setattr(Senders, "_read", lambda self: list(counts))
    senders = Senders(SimpleNamespace(pid=1), 3)
    counts[:] = [5, 0, 0]
    senders.look()
    assert senders.behind(4) == [5, 0, 0] and senders.behind(0) == [0, 0, 0]
    counts[:] = [5, 3, 0]
    senders.look()
    assert senders.behind(3) == [0, 3, 0], "the last three came from the second"
    assert senders.behind(4) == [5, 3, 0] and senders.latest == 1
    senders.look()
    assert senders.latest == 1
    counts[:] = [5, 3, 9]
    assert senders.look() == 4 and senders.latest == 2


def test_who_has_few_packets_contends_seldom() -> None:
    random = Random(1)
    assert contenders([0, 0, 0], random) == [] and contenders([0, 7, 0], random) == [1]
    assert contenders([5, 5, 5], random) == [0, 1, 2]
    times = sum(1 in contenders([190, 10, 0], random) for _ in range(1000))
    assert times == pytest.approx(100, abs=30), "10 of the 100 turns that it has while 200 packets leave"
