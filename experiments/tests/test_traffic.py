# SPDX-License-Identifier: Apache-2.0
"""What iperf3 prints, and the probe on loopback."""

import socket
import subprocess
import sys

import pytest

from experiments.selfcheck import check
from experiments.traffic import parse_interval
from topologies.requirements import ROOT

RECEIVED = "[  5]   0.25-0.50   sec   410 KBytes  13435 Kbits/sec                  \n"
SENT = "[  5]   0.00-0.25   sec  1.25 MBytes  41943 Kbits/sec    0    118 KBytes       \n"
TOTAL = "[  5]   0.00-9.04   sec  14.1 MBytes  13108 Kbits/sec                  receiver\n"
SUM = "[SUM]   1.00-1.25   sec  98.5 KBytes  3227 Kbits/sec                  \n"
IDLE = "[  5]   4.25-4.50   sec  0.00 Bytes  0.00 Kbits/sec                  \n"
EMPTY = "[  5]   9.00-9.00   sec  0.00 Bytes  0.00 Kbits/sec                  \n"


@pytest.mark.parametrize(
    ("line", "streams", "expected"),
    [
        (RECEIVED, 1, (0.25, 0.5, 13.435)),
        (RECEIVED, 2, None),
        (SUM, 2, (1.0, 1.25, 3.227)),
        (SUM, 1, None),
        (IDLE, 1, (4.25, 4.5, 0.0)),
        (EMPTY, 1, None),
        (SENT, 1, None),
        (TOTAL, 1, None),
        ("Server listening on 5201 (test #1)\n", 1, None),
    ],
)
def test_interval_lines(line: str, streams: int, expected: tuple[float, float, float] | None) -> None:
    assert parse_interval(line, streams) == expected


def test_the_probe_measures_the_round_trip_and_both_ways() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    module = [sys.executable, "-m", "experiments.probe"]
    reflector = subprocess.Popen([*module, "reflect", "127.0.0.1", port], cwd=ROOT)
    try:
        command = [*module, "send", "127.0.0.1", port, "2"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    finally:
        reflector.kill()
        reflector.wait()
    answers = [line.split() for line in done.stdout.splitlines()]
    sequences = [int(answer[0]) for answer in answers]
    assert len(sequences) >= 20 and sequences == sorted(set(sequences))
    for _, _, rtt, up, down, _ in answers:
        assert 0 < float(up) < 1 and 0 < float(down) < 1
        assert float(rtt) == pytest.approx(float(up) + float(down), abs=2e-6)


CUBIC = (
    "ESTAB 0 0 10.0.0.1:5201 10.0.0.11:4 timer:(on,1sec,0)\n"
    "\t ts sack ecn ecnseen cubic wscale:10,10 rto:204 cwnd:99 bytes_sent:5105648 unacked:99"
)
QUIET = {"cpu_busy": 0.3, "cpu_steal": 0.0}


def test_a_fit_lab_has_no_problem() -> None:
    report = check(QUIET, [0.0001] * 100, 0, {"downlink": [CUBIC]}, "cubic", ecn=True)
    assert report["problems"] == []
    assert report["congestion_control"] == {"downlink": "cubic"} and report["ecn"] == {"downlink": True}


def test_a_transfer_that_never_came_up_is_told_once() -> None:
    report = check(QUIET, [0.0001] * 100, 0, {"uplink of sta3": ["", "", ""]}, "cubic", ecn=True)
    assert report["problems"] == ["uplink of sta3 was sending at no look"]


def test_a_radio_that_drops_frames_is_told() -> None:
    tcp = {"downlink": [CUBIC]}
    report = check(QUIET, [0.0001] * 100, 0, tcp, "cubic", ecn=True, radio_drops={"ap1": 7, "sta1": 0})
    assert report["problems"] == ["the radio of ap1 dropped 7 frames: it carries less than the link's rate"]


@pytest.mark.parametrize(
    ("cpu", "late", "tcp", "cc", "problem"),
    [
        ({"cpu_busy": 0.97}, 0.0001, CUBIC, "cubic", "the CPU was 97% busy"),
        ({"cpu_steal": 0.2}, 0.0001, CUBIC, "cubic", "20% of the CPU went to other virtual machines"),
        ({}, 0.02, CUBIC, "cubic", "timers were late by 20.0 ms"),
        ({}, 0.0001, CUBIC, "reno", "downlink used congestion control cubic, not reno"),
        ({}, 0.0001, CUBIC.replace(" ecn ecnseen", ""), "cubic", "downlink did not negotiate ECN"),
        ({}, 0.0001, CUBIC.replace("unacked:99", "unacked:20"), "cubic", "downlink filled its congestion window in 0%"),
    ],
)
def test_an_unfit_lab_is_told(cpu: dict[str, float], late: float, tcp: str, cc: str, problem: str) -> None:
    problems = check(QUIET | cpu, [late] * 100, 0, {"downlink": [tcp]}, cc, ecn=True)["problems"]
    assert len(problems) == 1 and problems[0].startswith(problem)
