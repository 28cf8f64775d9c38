# SPDX-License-Identifier: Apache-2.0
"""The papers' congestion controls in ns-3 (hosts/ns3): counts of a connection, and that each obeys its algorithm.

The algorithms themselves are those of the BPF programs, which hosts/tests/test_cc_reference.py tests.
"""

import ctypes
from collections.abc import Sequence

import pytest

from accesspoint.topologies.ns3 import virtual

CONTROLS = ("ns3::TcpPacketVegas", "ns3::TcpVegasFair", "ns3::TcpRenoMaxwin", "ns3::TcpAv")


class Counts(ctypes.Structure):
    """`Counts` of hosts/ns3/count_check.cc."""

    sent: int
    again: int
    real_sent: int
    real_again: int
    largest_window: int
    smallest_threshold: int
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("sent", "again", "real_sent", "real_again", "largest_window", "smallest_threshold")
    ]


@pytest.fixture(scope="module")
def library(ns3: None) -> ctypes.CDLL:
    del ns3
    return virtual.load()


def transfer(
    library: ctypes.CDLL, control: str, lost: Sequence[int] = (), size: int = 200_000, pause: float = 0
) -> Counts:
    """Send so many bytes over 8 Mb/s and 20 ms, in two halves with a pause between them, s."""
    numbers, counts = (ctypes.c_uint32 * len(lost))(*lost), Counts()
    losses = ctypes.c_size_t(len(lost))
    arrived = library.counted(control.encode(), size, ctypes.c_double(pause), numbers, losses, ctypes.byref(counts))
    assert arrived == size
    return counts


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize(
    "lost",
    [[], [30], [30, 31, 32], [30, 34, 40, 41], [30, 60, 90], list(range(25, 31))],
    ids=["none", "one", "three", "scattered", "in turn", "many"],
)
def test_what_is_sent_and_lost_is_counted(library: ctypes.CDLL, control: str, lost: list[int]) -> None:
    """Counts agree with the headers of a real connection: a SYN is neither, a fast retransmission is both."""
    counts = transfer(library, control, lost)
    assert counts.real_again >= len(lost)
    assert (counts.sent, counts.again) == (counts.real_sent, counts.real_again)


def test_what_a_timeout_repairs_is_sent_and_not_lost(library: ctypes.CDLL) -> None:
    counts = transfer(library, "ns3::TcpAv", (200, 201))
    assert (counts.sent, counts.again) == (counts.real_sent, 0)
    assert counts.real_again >= 2


def test_reno_maxwin_window_stays_at_bound(library: ctypes.CDLL) -> None:
    assert transfer(library, "ns3::TcpPacketReno").largest_window > 50
    assert transfer(library, "ns3::TcpRenoMaxwin").largest_window == 10
    assert transfer(library, "ns3::TcpRenoMaxwin[Bound=20]").largest_window == 20


def test_vegas_window_follows_its_bounds(library: ctypes.CDLL) -> None:
    windows = [
        transfer(library, f"ns3::TcpPacketVegas[Alpha={alpha}|Beta={alpha}|Gamma={gamma}]").largest_window
        for alpha, gamma in ((0, 0), (10, 1), (10, 100))
    ]
    assert windows == sorted(set(windows))


def test_vegas_fair_window_grows_after_pause(library: ctypes.CDLL) -> None:
    def window(control: str, *more: str) -> int:
        options = "|".join(("Alpha=0", "Beta=0", "Gamma=0", *more))
        return transfer(library, f"ns3::{control}[{options}]", size=1_000_000, pause=4).largest_window

    more = ("MoreAlpha=100", "MoreBeta=100", "Introduction=1000000")
    plain = window("TcpPacketVegas")
    assert window("TcpVegasFair", *more, "Pause=3s") > plain
    assert window("TcpVegasFair", *more, "Pause=9s") == plain


def test_av_threshold_is_the_targets_window(library: ctypes.CDLL) -> None:
    half = transfer(library, "ns3::TcpAv[Target=0]", (30,)).smallest_threshold
    held = transfer(library, "ns3::TcpAv[Target=8000]", (30,)).smallest_threshold
    assert half < 20 <= held < 100


def test_av_gives_way_after_timeout(library: ctypes.CDLL) -> None:
    held, gave_way = (
        transfer(library, f"ns3::TcpAv[Target=8000|TimeoutLimit={limit}]", (200, 201)).smallest_threshold
        for limit in (1, 0)
    )
    assert gave_way < 20 <= held


def test_av_ceiling_bounds_the_window(library: ctypes.CDLL) -> None:
    free, bound = (transfer(library, f"ns3::TcpAv[Target=2000|Ceiling={ceiling}]").largest_window for ceiling in (0, 1))
    assert bound < free
