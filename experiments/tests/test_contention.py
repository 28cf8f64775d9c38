# SPDX-License-Identifier: Apache-2.0
"""The cell of 802.11g in which stations contend: its table, and who counts as contending."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from experiments.contention import Senders, link_rates
from topologies.dcf import MOST, SATURATION, saturation


@pytest.mark.parametrize(("stations", "acks"), [(1, False), (1, True), (3, True), (10, True)])
def test_the_table_is_what_the_simulation_gives(stations: int, acks: bool) -> None:
    assert saturation(stations, acks) == SATURATION[stations, acks]


def test_one_station_gets_what_the_protocol_leaves() -> None:
    # IEEE Std 802.11-2020, in us: DIFS 28, 7.5 slots of 9, 1536 octets at 54 Mb/s 254, SIFS 10, ACK at 24 Mb/s 38.
    assert saturation(1, False)[0] == pytest.approx(1448 * 8 / (28 + 67.5 + 254 + 10 + 38), rel=0.02)


def test_contention_costs_more_the_more_contend() -> None:
    both = [SATURATION[stations, True] for stations in range(1, MOST + 1)]
    assert all(more[0] > fewer[0] and more[1] > fewer[1] for more, fewer in pairwise(both))
    uplink, downlink = link_rates(10, True)
    assert uplink == round(both[-1][0] * 1e6 * 1514 / 1448) and downlink == round(both[-1][1] * 66 * 8)
    assert link_rates(10, False)[1] == downlink, "the first ACK finds what the others leave"


def test_stations_with_a_packet_in_the_queue_contend(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [0, 0, 0]
    monkeypatch.setattr(Senders, "_read", lambda self: list(counts))
    senders = Senders(SimpleNamespace(pid=1), 3)
    assert senders.behind(0) == 0
    counts[:] = [5, 0, 0]
    assert senders.behind(4) == 1
    counts[:] = [5, 3, 0]
    assert senders.behind(3) == 1, "the last three came from the second"
    assert senders.behind(4) == 2
    counts[:] = [5, 3, 9]
    assert senders.behind(1) == 1
    assert senders.behind(17) == 3
