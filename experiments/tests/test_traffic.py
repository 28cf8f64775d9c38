# SPDX-License-Identifier: Apache-2.0
"""The output of iperf3, and the probe on loopback."""

import contextlib
import inspect
import socket
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from accesspoint.checks.harness.waiting import eventually, free_port
from accesspoint.experiments.experiment import Arm
from accesspoint.experiments.lab.in_ns3 import SimulatedStage
from accesspoint.experiments.lab.stage import Flow, Stage
from accesspoint.experiments.lab.traffic import Transfer, parse_interval
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs.plan import MAX_SECONDS
from accesspoint.topologies.requirements import ROOT, LabError

RECEIVED = "[  5]   0.25-0.50   sec   410 KBytes  13435 Kbits/sec                  \n"
SENT = "[  5]   0.00-0.25   sec  1.25 MBytes  41943 Kbits/sec    0    118 KBytes       \n"
TOTAL = "[  5]   0.00-9.04   sec  14.1 MBytes  13108 Kbits/sec                  receiver\n"
IDLE = "[  5]   4.25-4.50   sec  0.00 Bytes  0.00 Kbits/sec                  \n"
EMPTY = "[  5]   9.00-9.00   sec  0.00 Bytes  0.00 Kbits/sec                  \n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (RECEIVED, (0.25, 0.5, 13.435)),
        (IDLE, (4.25, 4.5, 0.0)),
        (EMPTY, None),
        (SENT, None),
        (TOTAL, None),
        ("Server listening on 5201 (test #1)\n", None),
    ],
)
def test_interval_lines(line: str, expected: tuple[float, float, float] | None) -> None:
    assert parse_interval(line) == expected


def test_the_probe_measures_the_round_trip_and_both_ways() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    module = [sys.executable, "-m", "accesspoint.experiments.lab.probe"]
    reflector = subprocess.Popen([*module, "reflect", "127.0.0.1", port], cwd=ROOT)
    try:
        assert eventually(lambda: subprocess.check_output(["ss", "-Hlun", f"sport = :{port}"]))
        command = [*module, "send", "127.0.0.1", port, "8"]
        began = time.time()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
        took = time.time() - began
    finally:
        reflector.kill()
        reflector.wait()
    answers = [line.split() for line in done.stdout.splitlines()]
    sequences = [int(answer[0]) for answer in answers]
    assert len(sequences) >= 80 and sequences == sorted(set(sequences))
    # A busy machine holds up some answers, and never all.
    assert all(min(float(answer[way]) for answer in answers) < 1 for way in (3, 4))
    for _, _, rtt, up, down, _ in answers:
        assert 0 < float(up) < took and 0 < float(down) < took
        assert float(rtt) == pytest.approx(float(up) + float(down), abs=2e-6)


CUBIC = (
    "ESTAB 0 0 10.0.0.1:5201 10.0.0.11:4 timer:(on,1sec,0)\n"
    "\t ts sack ecn ecnseen cubic wscale:10,10 rto:204 cwnd:99 bytes_sent:5105648 unacked:99"
)
QUIET = {"cpu_busy": 0.3, "cpu_steal": 0.0}


def check(
    cpu: dict[str, float],
    tcp: dict[str, list[str]],
    late: float = 0.0001,
    cc: str = "cubic",
    ecn: bool = True,
    **of: dict[str, int],
) -> dict[str, Any]:
    """The self-check of a stage whose flows looked so. of: what `radios` and hosts (`drops`) threw away."""
    stage = Stage.__new__(Stage)
    stage._probes, stage.problems = [SimpleNamespace(late=[late] * 100, unanswered=0)], []  # type: ignore[list-item]
    stage._flows = [(Flow(name, "down"), None, looks) for name, looks in tcp.items()]  # type: ignore[misc]
    stage.arm = Arm("ours", "ours", cc=cc, ecn=ecn)
    stage.lab = SimpleNamespace(radio_drops=lambda: of.get("radios", {}))
    stage._check(cpu, [], of.get("drops", {}))
    return stage.report


def test_a_fit_lab_has_no_problem() -> None:
    report = check(QUIET, {"downlink": [CUBIC]})
    assert report["problems"] == []
    flow = report["flows"]["downlink"]
    assert flow["congestion_control"] == "cubic" and flow["ecn"]


def test_a_transfer_that_never_came_up_is_a_result() -> None:
    """Its first packets waited behind an upload; iperf3 that ends says so itself."""
    asked = "SYN-SENT 0 1 10.0.0.11:4 10.0.0.1:5201 timer:(on,1sec,4)\n\t cubic cwnd:1 backoff:4 unacked:1 lost:1"
    for looks in (["", "", ""], [asked] * 5):
        report = check(QUIET, {"uplink of sta3": looks})
        assert report["problems"] == []


def test_a_connection_that_lost_its_first_packet_may_have_no_ecn() -> None:
    """It asks again without (RFC 3168, section 6.1.1.1), as its packets are lost: others show that hosts have ECN."""
    tcp = {"downlink": [CUBIC], "uplink": [CUBIC.replace(" ecn ecnseen", "")]}
    report = check(QUIET, tcp)
    assert report["problems"] == []
    assert {name: flow["ecn"] for name, flow in report["flows"].items()} == {"downlink": True, "uplink": False}
    report = check(QUIET, tcp, ecn=False)
    assert report["problems"] == ["downlink negotiated ECN"]


def free_ports(number: int) -> int:
    """Return the first of so many ports in a row that are free."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as held:
            try:
                for port in range(first + 1, first + number):
                    held.enter_context(socket.socket()).bind(("", port))
            except (OSError, OverflowError):
                continue
            return first


class Loopback:
    """A host, as far as a transfer knows one."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def popen(self, *command: str, **options: Any) -> "subprocess.Popen[str]":
        self.commands.append(list(command))
        return subprocess.Popen(command, **options)


@pytest.mark.parametrize("stops", ["sender", "receiver"])
def test_a_transfer_is_sampled_and_waits_as_long_as_a_run_may_take(stops: Literal["sender", "receiver"]) -> None:
    """iperf3 gives up after two minutes without data, which a starved flow may be without."""
    host, samples = Loopback(), list[Sample]()
    made = Transfer(host, host, "127.0.0.1", samples, time.time(), quantity="rate_mbps", port=free_port(), stops=stops)
    made.await_listening()
    made.begin(2)
    assert eventually(lambda: len(samples) > 2, 120)
    made.require_alive()
    made.end()
    sender, receiver = host.commands
    assert "-s" in sender and "-R" in receiver  # a client that sends spins until it may begin
    assert int(receiver[receiver.index("--rcv-timeout") + 1]) >= MAX_SECONDS * 1000


def test_streams_are_sampled_together_and_each() -> None:
    host, samples = Loopback(), list[Sample]()
    made = Transfer(
        host, host, "127.0.0.1", samples, time.time(), quantity="rate_mbps", source="up", port=free_ports(3), streams=3,
        each=True,
    )  # fmt: skip
    made.await_listening()
    made.begin(3)

    def together() -> list[Sample]:
        return [s for s in samples if s.quantity == "rate_mbps"]

    assert eventually(lambda: len(together()) > 2, 120)
    made.end()
    made.require_alive()
    assert sum("-s" in command for command in host.commands) == 3  # one that waits for more streams spins
    assert not any("-P" in command for command in host.commands)
    streams = [s for s in samples if s.quantity == "stream_mbps"]
    assert {s.source for s in streams} == {"up/0", "up/1", "up/2"}
    assert {s.source for s in together()} == {"up"} and len({s.time for s in together()}) == len(together())
    carried = sum(s.value * s.span for s in streams)
    assert 0 < sum(s.value * s.span for s in together()) <= 1.001 * carried


def test_a_transfer_with_an_option_that_cannot_be_is_no_result() -> None:
    made = Transfer.__new__(Transfer)
    made._ended, made.error, made.name = False, "", "uplink"
    made._note("iperf3: parameter error - client receive timeout is valid only in receiving mode")
    with pytest.raises(LabError, match=r"uplink.*only in receiving mode"):
        made.require_alive()


def test_a_probe_that_nobody_answers_is_a_result() -> None:
    """The queue that it waits in is studied; how late timers are is known without it."""
    stage = Stage.__new__(Stage)
    stage._probes = [SimpleNamespace(late=[], unanswered=number) for number in (300, 80)]  # type: ignore[misc]
    stage._flows, stage.problems = [], []
    stage.arm, stage.lab = Arm("ours", "ours"), SimpleNamespace(radio_drops=dict)
    stage._check(QUIET, [0.0001] * 100, {})
    assert stage.report["problems"] == [] and stage.report["timer_late_p99_ms"] == 0.1
    assert stage.report["probes_unanswered"] == 380


def test_a_radio_that_drops_frames_is_told() -> None:
    """By its radio: its interface counts more than that. On wires the hosts' interfaces are what there is."""
    tcp = {"downlink": [CUBIC]}
    report = check(QUIET, tcp, radios={"ap1": 7, "sta1": 0}, drops={"sta1": 9})
    assert report["problems"] == ["the radio of ap1 dropped 7 frames: it carries less than the link's rate"]
    assert report["radio_drops"] == {"ap1": 7, "sta1": 0}
    assert check(QUIET, tcp, drops={"sta1": 9})["problems"] == ["sta1 dropped 9 packets on their way to the link"]


@pytest.mark.parametrize(
    ("cpu", "late", "tcp", "cc", "problem"),
    [
        ({"cpu_busy": 0.97}, 0.0001, CUBIC, "cubic", "the CPU was 97% busy"),
        ({"cpu_steal": 0.2}, 0.0001, CUBIC, "cubic", "20% of the CPU went to other virtual machines"),
        ({}, 0.02, CUBIC, "cubic", "timers were late by 20.0 ms"),
        ({}, 0.0001, CUBIC, "reno", "downlink used congestion control cubic, not reno"),
        ({}, 0.0001, CUBIC.replace(" ecn ecnseen", ""), "cubic", "no flow negotiated ECN"),
        ({}, 0.0001, CUBIC.replace("unacked:99", "unacked:20"), "cubic", "downlink was cwnd-limited in only 0%"),
    ],
)
def test_an_unfit_lab_is_told(cpu: dict[str, float], late: float, tcp: str, cc: str, problem: str) -> None:
    problems = check(QUIET | cpu, {"downlink": [tcp]}, late, cc)["problems"]
    assert len(problems) == 1 and problems[0].startswith(problem)


@pytest.mark.parametrize("name", ["probe", "transfer"])
def test_simulated_stage_takes_what_a_stage_takes(name: str) -> None:
    """Flow and Probe are prepared by both."""
    real, simulated = (inspect.signature(getattr(stage, name)) for stage in (Stage, SimulatedStage))
    assert simulated == real
