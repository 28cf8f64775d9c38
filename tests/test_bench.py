# SPDX-License-Identifier: Apache-2.0
"""Tests of `make bench`: injected frames, entries, rows and their goals."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from scapy.utils import RawPcapReader

from accesspoint.checks.bench import summary
from accesspoint.checks.bench.report import Row, words
from accesspoint.checks.bench.switch import beside_writes, memory
from accesspoint.checks.bench.switch.__main__ import PARTS, chosen, measured
from accesspoint.checks.bench.switch.beside_writes import Trials
from accesspoint.checks.bench.switch.lab import VethBench
from accesspoint.checks.bench.switch.program import write_frames
from accesspoint.checks.bench.switch.switching import INJECTOR, targets
from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.requirements import ROOT, LabError

FLOWS = 5
RATE = 5000.0  # packets/s, few enough for the socket's buffer to hold them all
BATCH = 64
ETH_P_ALL = 3
PACKET_IGNORE_OUTGOING = 23

privileged = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and BPF need root")


@privileged
def test_injected_frames_are_received_as_counted(tmp_path: Path) -> None:
    file = tmp_path / "frames.pcap"
    write_frames(file, FLOWS, 60)
    frames = [frame for frame, _ in RawPcapReader(str(file))]
    with VethBench() as lab:
        with lab.entered():
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        with port:
            port.setsockopt(263, PACKET_IGNORE_OUTGOING, 1)  # SOL_PACKET
            port.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
            port.bind(("left", ETH_P_ALL))
            port.setblocking(False)
            report = json.loads(lab.run(*INJECTOR, file, "--rate", str(RATE), "--seconds", "0.3"))
            received: list[bytes] = []

            def all_came() -> bool:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        received.append(port.recv(2048))
                return len(received) >= report["packets"]

            eventually(all_came)
    assert report["packets"] == len(received) > 0
    assert report["packets"] <= RATE * report["seconds"] + BATCH
    assert received == [frames[number % FLOWS] for number in range(len(received))]


@privileged
def test_injecting_into_no_interface_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "frames.pcap"
    write_frames(file, 1, 60)
    with VethBench() as lab, pytest.raises(LabError, match=r"failed: error: nobody: no interface with this name$"):
        lab.run(sys.executable, "-m", "accesspoint.checks.bench.switch.inject", "nobody", file)


@privileged
def test_entries_of_the_benchmark_are_those_of_the_program() -> None:
    switch = next(target for target in targets(None) if target.name == "apswitch")
    code = """
from accesspoint.checks.bench.switch.p4runtime import Writer
from accesspoint.checks.harness.p4runtime import Program
from accesspoint.topologies.requirements import ROOT
writer = Writer(Program(ROOT / "p4src/compiled/ap.json", ROOT / "p4src/compiled/ap.p4info.txtpb"), push=True)
writer.write(writer.request(range(2)))
(found,) = writer.read(writer.counters(range(2)))
print(found.count(b"\\x0a\\x00\\x00"))
"""
    with VethBench() as lab:
        process = lab.start(*switch.command, core=None)
        try:
            assert lab.run(sys.executable, "-c", code).strip() == "2"
        finally:
            stop_process(process)


def test_row_without_a_value_is_inconclusive_and_not_met() -> None:
    row = Row("a", "not measured: why", None)
    assert row.met is False
    assert words(row) == ("-", "", "[yellow]inconclusive[/]")
    assert words(Row("b", "", 0.5, 0.4)) == ("0.5", ">= 0.4", "[green]pass[/]")
    assert words(Row("c", "", 0.3, 0.4)) == ("0.3", ">= 0.4", "[red]fail[/]")


def test_rows_and_groups_are_chosen_by_name() -> None:
    assert chosen([]) == {name: set(part.NAMES) for name, part in PARTS.items()}
    assert chosen(["load_ms"]) == {"pipeline": {"load_ms"}}
    assert chosen(["memory, *_of_beside"])["memory"] == {"memory_mb", "memory_mb_of_beside"}
    assert "read_1000_ms_of_beside" in chosen(["*_of_beside"])["p4runtime"]
    with pytest.raises(LabError, match=r"no row or group memry; there are switching: switch_of_forwarder, "):
        chosen(["memry"])


def test_what_the_machine_cannot_do_is_said_in_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LabError("only 1 of 2 packets/s could be offered")

    monkeypatch.setattr(memory, "measure", fail)
    (row,) = summary.rows(memory, measured(memory, lambda _: None, None))
    assert (row.name, row.met, "only 1 of 2" in row.text) == ("memory_mb", False, True)


def test_a_rate_that_is_not_offered_is_left_out() -> None:
    lossless = vars(Trials([0.0] * 5, [0.0] * 5, [2e5] * 5))
    lossy = vars(Trials([0.0] * 5, [0.01] * 5, [2e5] * 5))
    missing = {"1.1": "only 367,219 of 371,045 packets/s could be offered"}
    loss, throughput = beside_writes.rows({"trials": {"1": lossless}, "not_offered": missing})
    assert (loss.value, loss.met, throughput.value) == (0.0, True, 1.0)
    assert "1.1 could not be offered" in loss.text
    loss, throughput = beside_writes.rows({"trials": {"1": lossy, "0.8": lossless}, "not_offered": {}})
    assert (loss.value, loss.met, throughput.value) == (0.01, False, 0.8)
    missing = {"1.1": "only 1 of 2 packets/s could be offered"}
    none, nothing = beside_writes.rows({"trials": {}, "not_offered": missing})
    assert (none.value, none.met, nothing.met) == (None, False, False)
    assert "only 1 of 2 packets/s could be offered" in none.text


def test_another_build_takes_turns() -> None:
    names = [target.name for target in targets(Path("/other/apswitch"))]
    assert names[:3] == ["forwarder", "apswitch", "beside"]


STOPPED = """
import time
from types import SimpleNamespace
from accesspoint.checks.bench.switch import __main__ as bench
from accesspoint.checks.bench.report import Row, run
def slow(step, beside):
    while True:
        time.sleep(0.05)  # a signal that comes just before one long sleep would wait for its end
def rows(raw):
    return [Row("a", "is there", raw["a"])]
bench.PARTS = {
    "quick": SimpleNamespace(NAMES=("a",), measure=lambda step, beside: {"a": 1.0}, rows=rows),
    "slow": SimpleNamespace(NAMES=("b",), measure=slow, rows=rows),
}
run(bench.main)
"""


@privileged
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_is_stopped_has_told_and_written_its_rows(tmp_path: Path, number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-c", STOPPED, "--out", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        row = process.stdout.readline()
        while not (tmp_path / "switch.json").exists():
            assert process.poll() is None
        process.send_signal(number)
        rest, _ = process.communicate(timeout=240)
    assert row.split()[:2] == ["a", "1"] and "is there" in row
    assert (process.returncode, "written: " in rest) == (code, True)
    kept = summary.read(tmp_path / "switch.json")
    assert {name: [(row["name"], row["value"]) for row in of["rows"]] for name, of in kept.items()} == {
        "quick": [("a", 1.0)]
    }
