# SPDX-License-Identifier: Apache-2.0
"""Link effects: seeds and traces are kept, each model does what its source says, and a link replays a trace."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from accesspoint.topologies.lab import main as lab
from accesspoint.topologies.links import effects, traces
from accesspoint.topologies.links.effects import EFFECTS, evenly, generate, parameters
from accesspoint.topologies.links.paths import Paths
from accesspoint.topologies.links.profiles import ProfileError, link_profile
from accesspoint.topologies.links.traces import FRAME_BITS, Trace, TraceError
from accesspoint.topologies.requirements import ROOT

RATE = 14e6


@pytest.mark.parametrize("name", EFFECTS)
def test_a_seed_is_a_trace(name: str, tmp_path: Path) -> None:
    trace = generate(name, RATE, 30, seed=7)
    assert generate(name, RATE, 30, seed=7) == trace != generate(name, RATE, 30, seed=8)
    assert trace.seconds == 30 and list(trace.times) == sorted(trace.times)
    trace.write(tmp_path / "trace")
    assert traces.read(tmp_path / "trace") == trace
    # Mahimahi reads a time in ms per line, and nothing else.
    assert re.fullmatch(r"(\d+\n)+", (tmp_path / "trace").read_text())


def test_an_even_pace_has_its_rate() -> None:
    times = list(evenly(iter([(0.5, 1e6), (0.25, 0.0), (1e9, 2e6)]), 1.0))
    assert len(times) == int((0.5 * 1e6 + 0.25 * 2e6) / FRAME_BITS)
    # The unused part of the last opportunity before the gap counts behind it.
    first = 41 * FRAME_BITS / 1e6
    assert times[40] == pytest.approx(first)
    assert times[41] == pytest.approx(0.75 + (FRAME_BITS - (0.5 - first) * 1e6) / 2e6)


def bursts(trace: Trace) -> list[int]:
    """Packets that arrive within the same millisecond, or the next one."""
    sizes, last = [0], trace.times[0]
    for time_ in trace.times:
        if time_ > last + 1:
            sizes.append(0)
        sizes[-1] += 1
        last = time_
    return sizes


def test_aggregation_delivers_an_ampdu_at_a_time() -> None:
    trace = generate("aggregation", RATE, 60, seed=1)
    assert trace.rate == pytest.approx(RATE, rel=0.1)
    # 5.448 ms at 65 Mb/s hold 28 subframes of 1544 bytes; two accesses in a row are 6 ms apart.
    sizes = [trace.times.count(time_) for time_ in set(trace.times[:5000])]
    assert sorted(sizes)[len(sizes) // 2] == 28 and all(size % 28 == 0 for size in sizes[:-1])
    assert max(b - a for a, b in pairwise(trace.times)) > 20, "no other station ever wins the air"
    fast = generate("aggregation", 100e6, 5, seed=1, phy=300e6)
    assert max(fast.times.count(time_) for time_ in set(fast.times)) == 42  # 65,535 bytes


def test_rate_steps_go_to_a_neighbour() -> None:
    trace = generate("rate-steps", 65e6, 60, seed=3)
    per_tenth = [0] * 600
    for time_ in trace.times:
        per_tenth[min(time_ // 100, 599)] += 1
    # Packets that MCS 0 to 7 carry in a tenth of a second; other tenths hold a step.
    whole = [round(65e6 * mcs / 10 / FRAME_BITS / 10) for mcs in effects.MCS]
    steady = [count for before, count in pairwise(per_tenth) if abs(before - count) <= 1]
    levels = [min(range(8), key=lambda mcs: abs(whole[mcs] - count)) for count in steady]
    assert all(abs(whole[level] - count) <= 1 for level, count in zip(levels, steady, strict=True))
    assert len(set(levels)) >= 4 and len(steady) > 300


def test_interference_leaves_a_part_of_the_rate() -> None:
    trace = generate("interference", RATE, 300, seed=1, clear=0.9, burst=0.1, left=0.1)
    # A tenth of the time in bursts, a tenth of the rate there.
    assert trace.rate == pytest.approx(RATE * (0.9 + 0.1 * 0.1), rel=0.03)
    assert trace.longest_gap < 20


def test_a_handover_is_a_gap_once_in_each_interval() -> None:
    trace = generate("handover", RATE, 120, seed=1)
    gaps = [(before, after - before) for before, after in pairwise(trace.times) if after - before > 10]
    assert [before // 10_000 for before, _ in gaps] == list(range(12))
    assert all(60 <= length <= 402 for _, length in gaps) and len({length for _, length in gaps}) > 6
    paper = generate("handover", 23e6, 60, seed=1, every=60, shortest=10, longest=10)
    assert 10_000 <= paper.longest_gap <= 10_002


def test_hspa_is_unsteady_about_its_mean() -> None:
    rate = 355e3
    trace = generate("hspa", rate, 3000, seed=1)
    assert trace.rate == pytest.approx(rate, rel=0.01)
    # BATCP's Fig. 4: transfers of 5 MB had 39.0 to 44.4 kB/s, 41.7 on average.
    packets = round(5e6 / 1448)
    starts = trace.times[::packets]
    took = [after - before for before, after in pairwise(starts)]
    mean = sum(took) / len(took)
    assert len(took) > 20 and max(took) < 1.12 * mean and min(took) > 0.88 * mean
    # Within a transfer it is not steady: a held block comes with all that waited for it.
    steady = generate("hspa", rate, 3000, seed=1, wander=0, again=0)
    assert steady.longest_gap < 550 < trace.longest_gap
    assert max(bursts(trace)) > max(bursts(steady)) + 3


@pytest.mark.parametrize(
    ("name", "rate", "own", "message"),
    [
        ("fog", RATE, {}, "effect 'fog' is unknown: choose one of aggregation, rate-steps"),
        ("hspa", RATE, {"mood": 1}, "effect 'hspa' has no parameter 'mood': choose of wander, outage, again, hold"),
        ("rate-steps", RATE, {"dwell": 0}, "effect 'rate-steps': dwell=0 is not possible: give a number above 0"),
        ("rate-steps", RATE, {"dwell": float("nan")}, "effect 'rate-steps': dwell=nan is not possible"),
        ("handover", RATE, {"shortest": 11, "longest": 12}, "a handover needs 0 < shortest <= longest < every"),
        ("aggregation", 80e6, {}, "rate 80 Mb/s is more than the 6"),
        ("interference", 10.0, {}, "1 s at 10 bit/s are too short for one packet"),
    ],
)
def test_bad_effects_are_named(name: str, rate: float, own: dict[str, float], message: str) -> None:
    with pytest.raises(TraceError, match=re.escape(message)):
        generate(name, rate, 1, seed=1, **own)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the trace is empty: give a time in ms on each line"),
        ("0\n0\n", "line 2: the last time is 0"),
        ("1\n3\n2\n", "line 3: 2 is earlier than 3 in the line before"),
        ("1\n\n2\n", "line 2: `` is not a time in whole ms"),
        ("1\n2.5\n", "line 2: `2.5` is not a time"),
        ("1\n99999999999\n", "line 2: `99999999999` is not a time"),
    ],
)
def test_a_bad_trace_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(TraceError, match=re.escape(f"{path}: {message}")):
        traces.read(path)
    with pytest.raises(ProfileError, match=re.escape(f"{path}: {message}")):
        link_profile(down_trace=path)


def test_a_missing_trace_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert lab(["--up-trace", "/nowhere/trace"]) == 2
    assert capsys.readouterr().err.startswith("error: /nowhere/trace: No such file or directory: give a trace")


def test_the_command_writes_what_python_generates(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    words = ["handover", "--rate", "1mbit", "--seconds", "20", "--seed", "5", "--set", "longest=2", "--out", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "accesspoint.topologies.links.effects", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    expected = generate("handover", 1e6, 20, 5, longest=2)
    assert traces.read(path) == expected
    assert f"{len(expected.times)} packets in 20 s" in done.stdout
    words[words.index("longest=2")] = "longest"
    done = subprocess.run(
        [sys.executable, "-m", "accesspoint.topologies.links.effects", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "error: 'longest' is not NAME=NUMBER\n")


def test_the_page_lists_every_effect_with_its_parameters() -> None:
    page = (ROOT / "docs/effects.md").read_text()
    for name in EFFECTS:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` "))
        for parameter, default in parameters(name).items():
            assert f"`{parameter}={default:g}`" in row, (name, parameter)


SEND = """
import socket, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(time.monotonic())
for _ in range(int(sys.argv[2])):
    udp.sendto(bytes(1472), (sys.argv[1], 9000))
    time.sleep(0.001)
"""
RECEIVE = """
import socket, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE
udp.bind(("", 9000))
print("ready", flush=True)
for _ in range(int(sys.argv[1])):
    udp.recv(2000)
    print(time.monotonic(), flush=True)
"""
PERIOD, GAP, PERIODS = 500, 200, 6  # ms, ms, 1
OPPORTUNITIES = tuple(ms for ms in range(5, PERIOD + 1, 5) if not 100 < ms <= 100 + GAP)


def replayed(path: Path) -> tuple[float, list[float]]:
    """Send as many packets as some periods carry, faster than the link; return when the first was sent, and when each
    arrived (s)."""
    Trace(OPPORTUNITIES).write(path)
    number = PERIODS * len(OPPORTUNITIES)
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        link = paths.link(a, b, trace=path, limit=number)
        receiver = b.popen(sys.executable, "-c", RECEIVE, str(number), stdout=subprocess.PIPE, text=True)
        assert receiver.stdout and receiver.stdout.readline() == "ready\n"
        sent = float(a.run(sys.executable, "-c", SEND, link.b_ip, str(number)))
        return sent, [float(line) for line in receiver.stdout]


@pytest.mark.usefixtures("privileged")
def test_a_link_replays_a_trace(tmp_path: Path) -> None:
    """Every packet has an opportunity of its own, so all of them take all periods, whenever in one they begin."""
    sent, arrivals = replayed(tmp_path / "trace")
    assert len(arrivals) == PERIODS * len(OPPORTUNITIES)
    assert arrivals[-1] - sent > (PERIODS * PERIOD - GAP - 10) / 1e3


@pytest.mark.realtime
@pytest.mark.usefixtures("privileged")
def test_packets_arrive_at_the_times_of_a_trace(tmp_path: Path) -> None:
    _, arrivals = replayed(tmp_path / "trace")
    # Where gaps end: a period apart.
    ends = [after for before, after in pairwise(arrivals) if after - before > 0.8 * GAP / 1e3]
    assert len(ends) in (PERIODS - 1, PERIODS, PERIODS + 1)
    assert all(after - before == pytest.approx(PERIOD / 1e3, abs=0.1) for before, after in pairwise(ends))
