# SPDX-License-Identifier: Apache-2.0
"""Cells in ns-2: what crosses between Python and Tcl, what a cell carries, and what is said of mistakes."""

import subprocess
from statistics import fmean

import pytest

from accesspoint.topologies.ns2 import cell
from accesspoint.topologies.ns2.cell import Flow, Radio, Reading, Tcp, Udp
from accesspoint.topologies.requirements import LabError


def mean(readings: list[Reading], quantity: str, source: str, start: float, end: float) -> float:
    return fmean(
        value for time, name, value, _, of in readings if (name, of) == (quantity, source) and start < time < end
    )


def test_words_of_a_flow_leave_its_source_out() -> None:
    assert cell.words(Udp(12.0, 1460)) == ["mbps", 12.0, "size", 1460]
    assert "source" not in cell.words(Flow("sta1", 1)) and "station" in cell.words(Flow("sta1", 1))


def test_lines_of_a_run_are_readings() -> None:
    lines = ["0.125 rate_mbps 4.5 0.25 sta1", "3.5 session_s 0.75 0 sta2"]
    assert cell.parse(lines) == [(0.125, "rate_mbps", 4.5, 0.25, "sta1"), (3.5, "session_s", 0.75, 0.0, "sta2")]


@pytest.mark.parametrize("line", ["0.125 rate_mbps 4.5 0.25", "one rate_mbps 4.5 0.25 sta1", ""])
def test_line_that_is_no_sample_is_refused(line: str) -> None:
    with pytest.raises(LabError, match="which is no sample"):
        cell.parse([line])


def test_missing_ns2_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LabError, match=r"ns-2 is missing: install it with `apt install ns2`$"):
        cell.version()


@pytest.mark.usefixtures("ns2")
@pytest.mark.parametrize(
    ("stations", "flow", "message"),
    [
        (0, Flow("sta1", 1), "0 stations are not possible: give 1 to 100"),
        (1, Flow("sta2", 2), "give at most 1000, of stations 1 to 1"),
        (1, Flow("[exit]", 1), r"'\[exit\]' is not possible in ns-2"),
        (1, Flow("sta1", 1, source=Tcp("Tahoe")), 'ns-2 cannot simulate this: invalid command name "Agent/TCP/Tahoe"'),
    ],
)
def test_cell_that_cannot_be_is_refused_in_one_line(stations: int, flow: Flow, message: str) -> None:
    with pytest.raises(LabError, match=message):
        cell.simulate(Radio(), [flow], stations, 1.0, 1)


@pytest.mark.usefixtures("ns2")
def test_run_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_long(*command: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("ns", 80.0)

    monkeypatch.setattr(subprocess, "run", too_long)
    with pytest.raises(LabError, match="ns-2 took over 80 s for 1: try again on a quieter machine"):
        cell.simulate(Radio(), [Flow("sta1", 1)], 1, 1.0, 1)


@pytest.mark.usefixtures("ns2")
def test_udp_carries_what_its_frames_leave() -> None:
    """With RTS and CTS a frame of 1000 bytes takes DIFS 50, a mean backoff of 310, RTS 352, CTS and ACK 304 each, three
    SIFS of 10, its header of 192 and 1058 bytes at 11 Mb/s: 2.31 ms (IEEE Std 802.11, 15.2, with the sizes of ns-2)."""
    readings = cell.simulate(Radio(), [Flow("sta1", 1, source=Udp(12.0))], 1, 4.0, 1)
    assert mean(readings, "rate_mbps", "sta1", 1, 4) == pytest.approx(8000 / 2311, rel=0.02)


@pytest.mark.usefixtures("ns2")
def test_seed_makes_the_same_run_again() -> None:
    flows = [Flow("sta1", 1, up=True), Flow("sta2", 2, up=True)]
    runs = [cell.simulate(Radio(), flows, 2, 2.0, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.usefixtures("ns2")
def test_directions_on_channels_of_their_own_meet_in_the_stations_queue() -> None:
    """The upload takes nothing of the download's channel, but its packets precede the download's acknowledgements."""
    flows = [Flow("download", 1), Flow("upload", 1, up=True, start=4.0)]
    readings = cell.simulate(Radio(uplink=1), flows, 1, 10.0, 1)
    assert mean(readings, "rate_mbps", "download", 1, 4) > 3.3
    assert mean(readings, "rate_mbps", "download", 6, 10) < 1
    assert 0.5 < mean(readings, "rate_mbps", "upload", 6, 10) < 0.8


@pytest.mark.usefixtures("ns2")
@pytest.mark.parametrize(
    "source",
    [
        Tcp("Reno"), Tcp("Westwood"), Tcp("WestwoodNR"), Tcp("Vegas"), Tcp("Linux", "TCPSink/Sack1", "reno"),
        Tcp("Linux", "TCPSink/Sack1", "cubic"),
    ],
    ids=lambda tcp: f"{tcp.agent}-{tcp.law}",
)  # fmt: skip
def test_sessions_end_when_all_is_acknowledged(source: Tcp) -> None:
    """10 packets with a first window of 2 take at least 3 round trips of 20 ms, the last one of them to the sender."""
    flow = Flow("sta1", 1, source=source, start=0.5, length=10_000, period=2.0)
    readings = cell.simulate(Radio(delay=0.01), [flow], 1, 4.0, 1)
    sessions = [(time, value) for time, quantity, value, *_ in readings if quantity == "session_s"]
    assert [time for time, _ in sessions] == [0.5, 2.5] and all(0.06 < value < 0.5 for _, value in sessions)
    assert not [reading for reading in readings if reading[1] == "unfinished_s"]


@pytest.mark.usefixtures("ns2")
def test_session_that_cannot_end_is_unfinished() -> None:
    readings = cell.simulate(Radio(), [Flow("sta1", 1, length=10_000_000, start=0.5)], 1, 2.0, 1)
    assert [reading for reading in readings if reading[1].endswith("_s")] == [(0.5, "unfinished_s", 1.5, 0.0, "sta1")]


@pytest.mark.usefixtures("ns2")
@pytest.mark.parametrize(("plain", "westwood"), [("Reno", "Westwood"), ("Newreno", "WestwoodNR")])
def test_westwood_keeps_what_the_path_carries_where_reno_halves(plain: str, westwood: str) -> None:
    """Some 690 packets/s in a smallest round trip of 0.1 s are 69 packets, and the queue adds 20: the first loss."""
    radio = Radio(rts=3000, basic=11, plcp=11, queue=20, delay=0.05)
    least = {}
    for agent in (plain, westwood):
        readings = cell.simulate(radio, [Flow("sta1", 1, source=Tcp(agent, window=1000))], 1, 10.0, 1)
        least[agent] = min(value for time, quantity, value, *_ in readings if quantity == "cwnd" and time > 7)
    assert 35 < least[plain] < 55 < 60 < least[westwood] < 75
