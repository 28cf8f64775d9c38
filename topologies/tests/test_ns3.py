# SPDX-License-Identifier: Apache-2.0
"""The lab in ns-3: the switch between its devices, the controller on its clock, and what is said of mistakes."""

import asyncio
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from accesspoint.controller.agent.transport import RpcError
from accesspoint.topologies.ns3 import build, virtual
from accesspoint.topologies.ns3 import lab as labs
from accesspoint.topologies.requirements import ROOT, LabError

pytestmark = pytest.mark.usefixtures("ns3")

PLAIN = {"ack_priority": False, "ack_filter": False, "sparse": False, "ncr": False}
PORTS: dict[int, tuple[int | str, int]] = {1: (14_000_000, 100), 2: (1_000_000, 1000)}
LINKS: dict[str, Any] = {"down": "rate=14mbit,limit=100,delay=2ms", "up": "rate=1mbit,limit=1000,delay=2ms"}
MISTAKES = Path(__file__).with_name("mistakes.cc")


def played(seed: int, features: dict[str, Any] | None = None) -> tuple[float, float, str]:
    """Mb/s down and up while both go, and a hash of all that was measured."""
    with labs.wired(seed, 1, **LINKS) as lab:
        lab.control(labs.config(PORTS, features or {}))
        download, upload = lab.transfer("down", start=1), lab.transfer("up", start=3)
        probe = lab.probe()
        lab.run(12)
        assert lab.controlled
        # Every 10 ms while there is something to regulate, else ten times a second, from time 0 on.
        assert abs(lab.controlled.access_point.loop.ticks - (120 if features else 1200)) <= 1
        seen = repr((download.arrived().tolist(), upload.arrived().tolist(), probe.answers()[0].tolist(), lab.events))
        return download.rates()[12:].mean(), upload.rates()[12:].mean(), hashlib.sha256(seen.encode()).hexdigest()


def test_ours_keeps_the_download_that_a_fifo_loses() -> None:
    fifo, _, _ = played(1, PLAIN)
    download, upload, _ = played(1)
    assert fifo < 1 and download > 13 and upload > 0.5


def test_a_transfer_alone_has_what_a_cell_of_lte_carries() -> None:
    """A transport block is 29,296 bits of 48 resource blocks, and 15,264 of 25, at I_TBS 24 (3GPP TS 36.213, table
    7.1.7.2.1-1); a segment is 1448 bytes of 1504 in it."""
    carried: list[tuple[Literal["down", "up"], int]] = [("down", 29_296), ("up", 15_264)]
    for direction, block in carried:
        with labs.lte(1, queue=81_920, delay=0.002) as lab:
            lab.control(labs.config({1: (30_000_000, 100), 2: (15_000_000, 1000)}, PLAIN))
            transfer, probe = lab.transfer(direction, start=1), lab.probe()
            lab.run(6)
            assert np.median(transfer.rates()[4:]) == pytest.approx(block / 1e3 * 1448 / 1504, rel=0.01)
            assert 0.004 < probe.answers()[0][1, 1] < 0.03  # an empty cell's, once addresses are known


def test_a_transfer_alone_has_what_a_cell_of_wimax_carries() -> None:
    """A quarter of the 360 symbols in a frame of 10 ms, 24 bytes each (IEEE 802.16-2004, table 215), goes up; a part of
    both directions is gaps, maps, ranging, and headers."""
    carried: list[tuple[Literal["down", "up"], float]] = [("down", 0.75), ("up", 0.25)]
    for direction, share in carried:
        with labs.wimax(1, queue=1024, delay=0.002) as lab:
            lab.control(labs.config({1: (4_500_000, 100), 2: (1_500_000, 1000)}, PLAIN))
            transfer, probe = lab.transfer(direction, start=2), lab.probe()
            lab.run(22)
            most = share * 360 * 24 * 8 / 0.01 / 1e6
            assert 0.75 * most < transfer.rates()[20:].mean() < most
            assert 0.004 < probe.answers()[0][1, 1] < 0.06


def test_the_same_seed_gives_the_same_bytes_in_another_process() -> None:
    code = "from accesspoint.topologies.tests import test_ns3; print(*(test_ns3.played(seed)[2] for seed in (7, 8)))"
    said = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": number}, check=True,
            capture_output=True, text=True,
        ).stdout.split()
        for number in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1]
    # A lab before it in the process leaves nothing behind.
    assert played(8)[2] == said[0][1]


def test_the_page_s_scenes_print_what_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/ns3.md").read_text()
    (scene,) = re.findall(r"```cpp\n(.*?)```", page, re.DOTALL)
    scripts = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    printed = re.findall(r"It prints\n\n```text\n(.*?)```", page, re.DOTALL)
    assert len(f"{scene}{scripts[0]}".split("\n")) <= 50 and len(scene.strip().split("\n")) <= 40
    (tmp_path / "cell.cc").write_text(scene)
    for script, said in zip(scripts, printed, strict=True):
        command = [sys.executable, "-c", script]
        path = {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout == said


@pytest.fixture
def pair() -> Iterator[labs.Ns3Lab]:
    with labs.wired(1, 1, **LINKS) as lab:
        yield lab


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (0, "made no lab: return the one that it fills"),
        (1, "port 1 has no device of a node: give it one"),
        (2, "port 1 has no device of a node: give it one"),
        (3, "a ns3::PointToPointNetDevice sends in its own name only: give an 802.11 AP's"),
        (4, "port 2: its device is of another node than port 1's"),
        (5, "needs a queue for the others: give a link"),
        (6, "such as 600kbit"),
        (7, 'frames would have no checksums: GlobalValue::Bind\\("ChecksumEnabled"'),
        (8, "the access point has been started: add ports before"),
        (9, "the access point has no ports: add its devices first"),
        (10, "port 1: a frame of 9314 bytes: 9216 are the most; give its devices a smaller MTU"),
        (11, "unexpected argument"),
    ],
)
def test_a_mistake_in_a_scene_is_one_line(mistake: int, said: str) -> None:
    with pytest.raises(LabError, match=said) as error, labs.scene(MISTAKES, mistake) as lab:
        lab.run(2)
    assert "\n" not in str(error.value)


def test_a_mistake_in_what_a_lab_is_asked_is_one_line() -> None:
    for station, cc, start, said in (
        (2, "cubic", 1.0, "there is no station 2: there are 1 to 1"),
        (1, "ns3::Nobody", 1.0, "there is no congestion control ns3::Nobody"),
        (1, "ns3::Node", 1.0, "there is no congestion control ns3::Node"),
        (1, "cdg", 1.0, "ns-3 has no congestion control 'cdg': choose one of cubic"),
    ):
        with pytest.raises(LabError, match=said), labs.wired(1, 1, **LINKS) as lab:
            lab.transfer("up", start, station=station, cc=cc)
    with labs.wired(1, 1, **LINKS) as lab:
        lab.run(2)
        with pytest.raises(LabError, match=r"a transfer from 1\S* to \S* s cannot be: it starts from now on"):
            lab.transfer("up", start=1)


@pytest.mark.parametrize("name", labs.CONGESTION)
def test_a_congestion_control_of_linuxs_name_is_one_of_ns3(name: str, pair: labs.Ns3Lab) -> None:
    pair.control(labs.config(PORTS))
    download = pair.transfer("down", cc=name, octets=20_000)
    pair.run(3)
    assert download.finished()


def test_one_lab_at_a_time(pair: labs.Ns3Lab) -> None:
    with pytest.raises(LabError, match="a lab is there already"), labs.wired(1, 1, **LINKS):
        pass
    pair.run(1)


def test_time_does_not_go_back(pair: labs.Ns3Lab) -> None:
    pair.run(2)
    with pytest.raises(LabError, match=r"time cannot go back to 1\S* s: give a later time"):
        pair.run(1)


def test_a_message_that_is_none_is_refused_and_harms_nothing(pair: labs.Ns3Lab) -> None:
    controlled = pair.control(labs.config(PORTS))
    transport = virtual.InProcess(pair.library, controlled.loop, pair.handle)
    with pytest.raises(RpcError, match="not a message"):
        transport.call("Write", b"\xff\xff\xff").send(None)
    stream = transport.stream()
    stream.send(b"\xff\xff\xff")
    with pytest.raises(RpcError, match="not a message"):
        stream.receive().send(None)
    pair.run(2)
    assert abs(controlled.access_point.loop.ticks - 200) <= 1


def test_a_controller_that_ends_ends_the_run(pair: labs.Ns3Lab) -> None:
    controlled = pair.control(labs.config(PORTS))

    def fail() -> None:
        raise ValueError("a reason")

    controlled.loop.call_at(1.0, fail)
    with pytest.raises(LabError, match="the controller has ended: ValueError: a reason"):
        pair.run(5)
    assert controlled.loop.time() == 1.0


def test_the_loop_keeps_the_order_and_the_time_of_what_it_is_asked(pair: labs.Ns3Lab) -> None:
    loop = virtual.VirtualLoop(pair.library)  # type: ignore[abstract]
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, loop.time()))

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, seconds in (("late", 0.3), ("soon", 0.1), ("too", 0.1), ("now", 0)):
                tasks.create_task(sleeper(name, seconds))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 0.5)
        seen.append(("over", loop.time()))

    task = loop.create_task(main())
    loop.run_ready()
    pair.run(5)
    assert task.done() and task.result() is None
    assert [(name, round(time, 6)) for name, time in seen] == [
        ("now", 0.0), ("soon", 0.1), ("too", 0.1), ("late", 0.3), ("over", 0.8),
    ]  # fmt: skip


def test_what_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as changed:
        changed.setattr("importlib.metadata.version", lambda name: "3.43.post9")
        with pytest.raises(LabError, match=r"ns-3 is of version 3\.43\.post9, and 3\.44 is needed: .*`make ns3`"):
            build.library()

    def nowhere(name: str) -> str:
        raise PackageNotFoundError(name)

    with monkeypatch.context() as changed:
        changed.setattr("importlib.metadata.version", nowhere)
        with pytest.raises(LabError, match=r"the ns3 that Python finds is no wheel's: install that with `make ns3`"):
            build.library()
    with monkeypatch.context() as changed:
        changed.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(LabError, match="ns-3 is missing: install it with `make ns3`"):
            build.library()
    with monkeypatch.context() as changed:
        changed.setenv("CXX", "no-compiler")
        with pytest.raises(LabError, match=r"the C\+\+ compiler no-compiler is missing: install it with `apt"):
            build.library()
    with monkeypatch.context() as changed:
        changed.setattr(build, "SWITCH", tmp_path / "none.so")
        with pytest.raises(LabError, match=r"none\.so is missing: build it with `make switch`"):
            build.library()
    (tmp_path / "wrong.cc").write_text("int scene( {")
    with pytest.raises(LabError, match=r"cannot compile wrong-\w+: .*error: .*; all of it is in .*\.log") as error:
        build.scene(tmp_path / "wrong.cc")
    assert "\n" not in str(error.value)
    with pytest.raises(LabError, match=r"nobody\.cc: No such file or directory: name a C\+\+ file"):
        build.scene(tmp_path / "nobody.cc")
