# SPDX-License-Identifier: Apache-2.0
"""`make hostile` sees what it says it sees."""

import dataclasses
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from scapy.utils import RawPcapReader

from accesspoint.checks.bench.switch.lab import VethBench
from accesspoint.checks.bench.switch.program import write_frames
from accesspoint.checks.harness.waiting import eventually
from accesspoint.checks.hostile import report
from accesspoint.checks.hostile.__main__ import select
from accesspoint.checks.hostile.attack import load
from accesspoint.checks.hostile.measure import UNANSWERED, Bystander, Result, percentile
from accesspoint.checks.hostile.servers import MARK, SERVERS, Counter, mark
from accesspoint.checks.hostile.tools import mutate
from accesspoint.topologies.processes import family
from accesspoint.topologies.requirements import ROOT


def test_every_attack_has_a_server_a_text_and_a_place_in_the_list() -> None:
    attacks = load()
    assert {one.server for one in attacks.values()} <= set(SERVERS)
    assert all(one.text and 0 < one.seconds <= 30 for one in attacks.values())
    done = subprocess.run(
        [sys.executable, "-m", "accesspoint.checks.hostile", "--list"], cwd=ROOT, capture_output=True, text=True
    )
    assert [line.split()[1] for line in done.stdout.splitlines()] == list(attacks)


def test_attacks_are_chosen_by_name_pattern_and_server() -> None:
    attacks = load()
    chosen = select(attacks, ["gnmi-*,read-of-5000-register-wildcards"], short=False)
    assert {one.name for one in chosen} == {name for name in attacks if name.startswith("gnmi-")} | {
        "read-of-5000-register-wildcards"
    }
    assert {one.server for one in select(attacks, ["switch"], short=False)} == {"switch"}
    assert all(one.short for one in select(attacks, [], short=True))
    done = subprocess.run(
        [sys.executable, "-m", "accesspoint.checks.hostile", "--only", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "no attack is called nothing" in done.stderr) == (2, True)


def result(**seen: object) -> Result:
    return Result("a", "switch", "does it", **seen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({"peak_mb": 512.0}, "512 MB of memory"),
        ({"other_p99": 100.0}, "another client waited 100 ms"),
        ({"other_p99": UNANSWERED}, "not answered"),
        ({"carried": 0.89}, "0.89 of the packets"),
        ({"died": "the server ended: SIGSEGV"}, "SIGSEGV"),
        ({"refused": [("attacker", "ended with 1", 1)]}, "the attack itself failed"),
    ],
)
def test_a_fault_is_told(seen: dict[str, object], text: str) -> None:
    (told,) = report.faults(result(**seen))
    assert text in told
    if "other" in text or "packets" in text:
        assert not report.faults(result(**seen), speeds=False)


def test_what_holds_is_no_fault() -> None:
    held = result(peak_mb=511.0, other_p99=99.0, carried=0.91, refused=[("RESOURCE_EXHAUSTED", "too much", 7)])
    assert report.faults(held) == []
    assert "RESOURCE_EXHAUSTED x7: too much" in report.refusals(held)


def test_a_stall_counts_for_every_request_that_it_kept_from_being_made() -> None:
    bystander = object.__new__(Bystander)
    bystander._pace = 0.1
    bystander._asked = [(0.0, 1.0, ""), (0.1, 1.0, ""), (0.2, 1000.0, ""), (1.3, 1.0, "")]
    waits = bystander.waits(0.0, 1.4)
    assert sorted(waits)[:3] == [1.0, 1.0, 1.0]
    assert sorted(round(wait) for wait in waits)[3:] == [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
    # A request that nobody answered, and one that is still under way, are no rest.
    bystander._asked = [(0.0, 5.0, "UNAVAILABLE")]
    assert max(bystander.waits(0.0, 0.1)) == UNANSWERED
    bystander._asked = [(0.0, 1.0, "")]
    assert max(bystander.waits(0.0, 3.0)) == pytest.approx(2999)


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([], 0.99) == 0.0
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile(list(map(float, range(1, 101))), 0.99) == 99.0


def test_a_run_adds_to_the_summary_and_renews_the_page(tmp_path: Path) -> None:
    file, page = tmp_path / "summary.json", tmp_path / "page.md"
    file.write_text(json.dumps({"a": {"peak_mb": 1}, "b": {"peak_mb": 2}, "gone": {}}))
    seen = result(peak_mb=40.0, other_p99=2.5, carried=1.0, refused=[("UNAVAILABLE", "x | y", 3)])
    told = report.write(file, report.summary([seen]), ["a", "b"])
    assert list(told) == ["a", "b"] and json.loads(file.read_text()) == told
    assert {"peak_mb", "other_read_ms_p99", "carried", "refused"} <= set(told["a"])
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    attacks = {name: dataclasses.replace(load()["rapid-reset"], name=name, text="does it") for name in ("a", "c")}
    report.page(page, told, attacks)
    text = page.read_text()
    assert "| `c` | does it |  |  |  | not measured yet |" in text and "`b`" not in text
    assert text.count("old") == 0 and text.startswith("before\n") and text.endswith("after\n")
    assert "| `a` | does it | 40 | 2.5 ms | 1.000 | UNAVAILABLE: x \\| y |" in text


def test_mutations_are_the_same_for_the_same_seed() -> None:
    valid = bytes(range(64))
    first = [mutate(valid, random.Random(seed)) for seed in range(50)]
    assert first == [mutate(valid, random.Random(seed)) for seed in range(50)]
    assert sum(one != valid for one in first) > 40


def test_the_memory_of_a_process_counts_that_of_its_children() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 30 & echo; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        try:
            children = family(shell.pid)
            assert len(children) == 2 and children[0] == shell.pid
        finally:
            for pid in reversed(children):
                subprocess.run(["kill", str(pid)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_only_the_steady_packets_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "frames.pcap"
    write_frames(file, 3, 100)
    mark(file)
    frames = [frame for frame, _ in RawPcapReader(str(file))]
    assert len(frames) == 3 and all(len(frame) == 100 and frame.endswith(MARK) for frame in frames)
    with VethBench() as lab:
        with lab.entered():
            counter = Counter("left")
            gen, left = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) for _ in range(2))
            gen.bind(("gen", 0))
            left.bind(("left", 0))
        for frame in frames * 100:
            gen.send(b"something in front" + frame)
            gen.send(frame + b"not the end")
            left.send(frame)  # what goes the other way
        assert eventually(lambda: counter.count() == 300)
        assert counter.count() == 300
        gen.close()
        left.close()
        counter.close()


def test_the_page_names_the_attacks_that_there_are() -> None:
    table = (ROOT / "docs/results/hostile.md").read_text().partition(report.BEGIN)[2].partition(report.END)[0]
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| ([^|]*?) \|", table, re.M))
    assert rows == {one.name: one.text for one in load().values()}, (
        "renew it: make hostile PAGE=docs/results/hostile.md"
    )


@pytest.mark.realtime
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.timeout(600)
def test_what_is_attacked_for_a_short_time_holds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "accesspoint.checks.hostile", "--short", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    told = json.loads((tmp_path / "summary.json").read_text())
    assert set(told) == {one.name for one in load().values() if one.short}
    assert all(one["peak_mb"] > 0 and one["requests"] > 0 for one in told.values())
    # A taken address shows on a busy machine, too: it left 0.03.
    assert told["gateway-claimed-by-three-frames"]["carried"] > 0.5


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_run_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    own = tmp_path / "tmp"
    own.mkdir()
    command = [sys.executable, "-m", "accesspoint.checks.hostile", "--only", "idle-connections", "--out", str(tmp_path)]
    pipe, environment = subprocess.PIPE, os.environ | {"TMPDIR": str(own)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True) as run:
        # Switch, source, other client and their parents.
        assert eventually(lambda: run.poll() is not None or len(family(run.pid)) >= 5)
        assert list(own.glob("hostile-*"))
        started = family(run.pid)
        assert run.poll() is None
        run.terminate()
        run.communicate(timeout=240)
    assert run.returncode == 128 + signal.SIGTERM
    assert eventually(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()])
    assert not list(own.glob("hostile-*"))
