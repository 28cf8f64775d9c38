# SPDX-License-Identifier: Apache-2.0
"""What ns-3 is not to be asked is refused in one line, and what one simulation of a process leaves to the next is
nothing. Each test is a process of its own: what went wrong here ended it."""

import subprocess
import sys

import pytest

from topologies.ns3 import build
from topologies.requirements import ROOT, LabError

PRELUDE = """
import hashlib
from topologies.ns3 import lab as labs, virtual
from topologies.ns3.cell import Cell
from topologies.requirements import LabError
from topologies.tests.test_ns3 import LINKS, MISTAKES, PORTS

def refused(call, *words, **settings):
    try:
        call(*words, **settings)
    except LabError as error:
        print(error, flush=True)
    else:
        print("not refused", flush=True)

def wired():
    return labs.wired(1, 1, **LINKS)

def entered(scene):
    with scene:
        pass

def digest(seen):
    return hashlib.sha256(repr(seen).encode()).hexdigest()

def played_lab(until=3.0):
    with wired() as lab:
        lab.control(labs.config(PORTS))
        download, upload = lab.transfer("down", start=0.5), lab.transfer("up", start=0.5)
        lab.run(until)
        return digest((download.arrived().tolist(), upload.arrived().tolist(), lab.events))

def played_cell(until=3.0, **settings):
    with Cell(stations=2, seed=4, **settings) as cell:
        cell.add("flow", station=1, start=0.1)
        cell.add("flow", station=2, start=0.2, up=False)
        return digest(cell.run(until))
"""


@pytest.fixture(scope="module", autouse=True)
def ns3() -> None:
    """Skips where it is not installed, and says how to have it."""
    try:
        build.library()
    except LabError as error:
        pytest.skip(str(error))


def said(code: str, environment: dict[str, str] | None = None) -> list[str]:
    """The lines that a process prints, which is to end as it should."""
    command = [sys.executable, "-c", PRELUDE + code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.returncode} after\n{done.stdout}{done.stderr[-2000:]}"
    return done.stdout.splitlines()


def test_a_cell_that_is_refused_leaves_nothing_to_the_next() -> None:
    walk = "stations=2, beyond=1, apart=20, leaves=0.5, outage=0.5, arrives=2"
    assert said(f"""
refused(Cell, stations=1, colour="red")
refused(Cell, {walk}, seed=4, ours_radio="limit=1000", ours_options="--no-such-option")
refused(Cell, {walk}, seed=4, ours_radio="limit=1000", held=4, colour="red")
print(played_cell())
""") == [
        "the cell cannot be: a cell knows no 'colour'",
        "the cell cannot be: unexpected argument '--no-such-option' found",
        "the cell cannot be: a cell knows no 'colour'",
        *said("print(played_cell())"),
    ]


def test_one_simulation_at_a_time_whichever_it_is() -> None:
    there = "is there already, and ns-3 has one simulator in a process: leave that one first"
    assert said("""
with Cell(stations=1) as cell:
    refused(Cell, stations=1)
    refused(entered, wired())
    cell.run(1)
with wired() as lab:
    refused(Cell, stations=1)
    refused(entered, wired())
    lab.run(1)
Cell(stations=1)  # nobody has it
with Cell(stations=1) as cell:
    cell.run(1)
refused(cell.run, 2)
refused(cell.add, "flow", station=1)
""") == [f"a {kind} {there}" for kind in ("cell", "cell", "lab", "lab")] + 2 * [
        "the cell has ended: use it inside of its `with`"
    ]


def test_a_scene_that_makes_no_lab_leaves_nothing_to_the_next() -> None:
    assert said("""
refused(entered, labs.scene(MISTAKES, 12))
print(played_lab())
""") == ["the scene made no lab: return the one that it fills", *said("print(played_lab())")]


def test_an_interval_that_is_none_is_refused() -> None:
    assert said("""
for interval in (0, -1, 1e-10, 0.0009, float("nan"), 1e300):
    with wired() as lab:
        refused(lab.transfer, "down", interval=interval)
    with wired() as lab:
        refused(lab.probe, interval=interval)
with wired() as lab:
    lab.control(labs.config(PORTS))
    download, probe = lab.transfer("down", interval=0.001), lab.probe(interval=0.001)
    lab.run(1)
    print(download.arrived().size > 900, probe.answers()[1])
""") == [
        line
        for interval in ("0", "-1", "1e-10", "0.0009", "nan", "1e+300")
        for line in (
            f"a transfer cannot be counted every {interval} s: give an interval of 0.001 to 1000000 s",
            f"a probe cannot be sent every {interval} s: give an interval of 0.001 to 1000000 s",
        )
    ] + ["True 1000"]


def test_a_time_that_is_none_is_refused() -> None:
    assert said("""
for time in (float("nan"), float("inf"), 1e300):
    with wired() as lab:
        refused(lab.run, time)
    with wired() as lab:
        refused(lab.transfer, "up", start=time)
    with wired() as lab:
        refused(lab.transfer, "up", start=1, stop=time)
    with wired() as lab:
        refused(lab.probe, start=time)
""") == [
        line
        for time in ("nan", "inf", "1e+300")
        for line in (
            f"time cannot go to {time} s: give one of up to 1000000 s",
            f"a transfer from {time} to 1e+06 s cannot be: it starts from now on, and stops after, up to 1000000 s",
            f"a transfer from 1 to {time} s cannot be: it starts from now on, and stops after, up to 1000000 s",
            f"a probe from {time} s cannot be: it starts from now on, up to 1000000 s",
        )
    ]


def test_a_connection_that_is_not_there_is_named() -> None:
    assert said("""
with wired() as lab:
    lab.control(labs.config(PORTS))
    download = lab.transfer("down", start=0.5, octets=100_000)
    lab.run(2)
    for read in (download.arrived, download.rates, download.finished):
        refused(read, 1)
        refused(read, -1)
    print(download.arrived().sum(), download.finished() > 0.5)
    virtual.load().lab_arrived(lab.pointer, 7, 0, virtual.ctypes.byref(virtual.ctypes.c_size_t()))
    refused(lab.check)
""") == 3 * [
        "the transfer has no connection 1: its only one is 0",
        "the transfer has no connection -1: its only one is 0",
    ] + ["100000 True", "there is no transfer 7: ask for what lab_transfer() gave a number"]


def test_what_was_measured_is_there_when_the_lab_has_ended() -> None:
    assert said("""
with wired() as lab:
    lab.control(labs.config(PORTS))
    download, probe = lab.transfer("down", start=0.5, octets=100_000), lab.probe()
    lab.run(2)
    seen = lambda: (download.rates().tolist(), download.finished(), probe.answers()[0].tolist(), probe.answers()[1])
    before = seen()
print(seen() == before)
refused(download.arrived, 1)
refused(lab.run, 3)
refused(lab.transfer, "up")
refused(lab.probe)
refused(lab.control, labs.config(PORTS))
lab.end()
""") == ["True", "the transfer has no connection 1: its only one is 0"] + 4 * [
        "the lab has ended: use it inside of its `with`"
    ]


def test_a_controller_needs_an_access_point_of_ours() -> None:
    assert said("""
with labs.scene(MISTAKES, 13) as lab:
    refused(lab.control, labs.config(PORTS))
with labs.scene(MISTAKES, 13) as lab:
    refused(lab.transfer, "up")
with labs.scene(MISTAKES, 13) as lab:
    refused(lab.probe)
""") == [
        "the lab has no access point to control: its scene makes one as `accessPoint`",
        *2 * ["the hosts have no addresses: let the scene call GiveAddresses()"],
    ]
