# SPDX-License-Identifier: Apache-2.0
"""Requests that would end ns-3 are refused in one line, and one simulation of a process leaves nothing to the next.
Each test is a process of its own: such a request used to end it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.topologies.ns3 import build
from accesspoint.topologies.requirements import ROOT

pytestmark = pytest.mark.usefixtures("ns3")

PRELUDE = """
import hashlib
from accesspoint.topologies.ns3 import lab as labs, virtual
from accesspoint.topologies.ns3.cell import Cell
from accesspoint.topologies.requirements import LabError
from accesspoint.topologies.tests.test_ns3 import LINKS, MISTAKES, PORTS

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


RATES = ", ".join(
    [f"{kind}Mbps" for kind in ("DsssRate1", "DsssRate2", "DsssRate5_5", "DsssRate11")]
    + [f"ErpOfdmRate{rate}Mbps" for rate in (6, 9, 12, 18, 24, 36, 48, 54)]
)
MANAGER = "manager={} is no rate control of ns-3: give a TypeId as ns3::ArfWifiManager"
SETTINGS = [
    ("manager='ns3::Typo'", MANAGER.format("ns3::Typo")),
    ("manager='ns3::Node'", MANAGER.format("ns3::Node")),
    ("manager='ns3::WifiRemoteStationManager'", MANAGER.format("ns3::WifiRemoteStationManager")),
    ("data='Fast'", f"data=Fast is no rate of 802.11g: give one of {RATES}"),
    ("control='OfdmRate6Mbps'", f"control=OfdmRate6Mbps is no rate of 802.11g: give one of {RATES}"),
    ("host_queue='long'", "host_queue=long is no number of packets: give one as 1000p"),
    ("host_queue='0p'", "host_queue=0p is no number of packets: give one as 1000p"),
    ("ap_queue=-1", "ap_queue=-1 cannot be: give 1 to 1000000"),
    ("station_radio=0", "station_radio=0 cannot be: give 1 to 1000000"),
    ("seed=-1", "seed=-1 cannot be: give 0 to 9007199254740992"),
    ("segment=0", "segment=0 cannot be: give 100 to 65000"),
    ("delay_ms=-4", "delay_ms=-4 cannot be: give 0 to 1000000"),
    ("window=1e300", "window=1e+300 cannot be: give 1000 to 1073741824"),
    ("lifetime=0", "lifetime=0 cannot be: give 0.001 to 1000000"),
    ("burst_every=1e-12, burst_ms=1e-12", "burst_every=1e-12 cannot be: give 0, or 0.001 to 1000000"),
    ("foreign_share=9", "foreign_share=9 cannot be: give 0, or 0.001 to 1"),
    ("stations=1e30", "a cell has 1 to 200 stations"),
]


def test_a_cell_is_not_told_what_ns3_cannot_be() -> None:
    calls = [
        f"refused(Cell, {told})" if "stations" in told else f"refused(Cell, stations=1, {told})" for told, _ in SETTINGS
    ]
    lines = [f"the cell cannot be: {line}" for _, line in SETTINGS]
    assert said("\n".join([*calls, "print(played_cell())"])) == [*lines, *said("print(played_cell())")]


CONGESTION = "there is no congestion control {} in ns-3: give a TypeId as ns3::TcpCubic"
ATTRIBUTE = "has no attribute that takes {}: give those that it has, as [Beta=0.5]"
TIMES = "it starts at 0 to 1000000 s, sends from then on or later, and stops after it started"
SESSIONS = "length=1000, stop=5"
ADDED = [
    *(
        ("flow", f"transport='{name}'", CONGESTION.format(name))
        for name in ("ns3::TcpCubik", "ns3::Node", "ns3::TcpCongestionOps", "ns3::TcpCubic ", "")
    ),
    ("flow", "transport='ns3::TcpCubic[Betta=1]'", f"ns3::TcpCubic {ATTRIBUTE.format('Betta=1')}"),
    ("flow", "transport='ns3::TcpCubic[Beta=much]'", f"ns3::TcpCubic {ATTRIBUTE.format('Beta=much')}"),
    ("flow", "transport='ns3::TcpAv[Target=1|Rest=soon]'", f"ns3::TcpAv {ATTRIBUTE.format('Rest=soon')}"),
    (
        "flow",
        "transport='ns3::TcpWestwoodPlus[FilterType=Odd]'",
        f"ns3::TcpWestwoodPlus {ATTRIBUTE.format('FilterType=Odd')}",
    ),
    (
        "flow",
        "transport='ns3::TcpCubic[Beta=0.5'",
        "the congestion control ns3::TcpCubic[Beta=0.5 has no ] at its end: write it as ns3::TcpCubic[Beta=0.5]",
    ),
    *(
        ("flow", times, TIMES)
        for times in (
            "start=5, stop=3", "start=5, stop=5", "start=-1", "start=2, send=1", f"start=3, send=1, {SESSIONS}",
            "start=1e7", "stop=1e300", "send=1e300",
        )
    ),
    ("flow", f"start=2, first=1, {SESSIONS}", "its first session would be before it starts: give a later first"),
    ("flow", f"period=0, {SESSIONS}", "period=0 cannot be: give 0.001 to 1000000"),
    ("flow", f"period=1e-9, {SESSIONS}", "period=1e-09 cannot be: give 0.001 to 1000000"),
    (
        "flow",
        "length=1000, period=0.001, stop=5000",
        "it would have over 1000000 sessions: give a longer period, or an earlier stop",
    ),
    ("flow", "length=1e12, stop=5", "length=1000000000000.0 cannot be: give 0 to 1000000000"),
    ("flow", "station=2", "station=2 cannot be: give 1 to 1"),
    ("flow", "colour='red'", "a cell knows no 'colour'"),
    ("stream", "station=1e30", "station=1e+30 cannot be: give 1 to 1"),
    ("stream", "bytes=0", "bytes=0 cannot be: give 1 to 65000"),
    ("stream", "mbps=0", "mbps=0 cannot be: give 0.001 to 1000000"),
    (
        "stream",
        "bytes=1, mbps=1000",
        "it would send more often than each 1000 ns: give more bytes, or fewer mbps",
    ),
    ("stream", "start=3, stop=2", "it stops after it started: give a later stop"),
    ("middleware", "bandwidth=0", "bandwidth=0 cannot be: give 0.001 to 1000000"),
    ("middleware", "start=-1", "start=-1 cannot be: give 0 to 1000000"),
    ("wish", "", "a cell has flows, streams and middlewares: add one of these"),
]  # fmt: skip


def test_a_cell_is_not_given_what_ns3_cannot_do() -> None:
    """A cell runs on without a refused request, as if there had been none."""
    calls = [
        f"    refused(cell.add, {what!r}, {told if 'station' in told else f'station=1, {told}'})"
        for what, told, _ in ADDED
    ]
    played = ['    cell.add("flow", station=1, start=0.1, name="other")', "    print(digest(cell.run(3)))"]
    lines = [f"the cell's {what} cannot be: {line}" for what, _, line in ADDED]
    cell = "with Cell(stations=1, seed=4) as cell:"
    assert said("\n".join([cell, *calls, *played])) == [*lines, *said("\n".join([cell, *played]))]


def test_time_does_not_go_back_in_a_cell() -> None:
    assert said("""
with Cell(stations=1) as cell:
    for time in (-1, float("nan"), 1e300):
        refused(cell.run, time)
    cell.run(2)
    refused(cell.run, 1)
    refused(cell.add, "flow", station=1)
""") == [
        *(f"time cannot go to {time} s: give 0 to 1000000 s" for time in ("-1", "nan", "1e+300")),
        "time cannot go to 1 s: give 2 to 1000000 s",
        "the cell's flow cannot be: the cell has run: add to it before",
    ]


def test_what_ran_before_changes_nothing() -> None:
    settings = 'lifetime=0.5, window=20000, ours_radio="limit=1000"'
    lab, cell = said("print(played_lab())"), said("print(played_cell())")
    assert said(f"""
played_cell({settings})
print(played_cell())
print(played_lab())
print(played_cell())
print(played_lab())
""") == [*cell, *lab, *cell, *lab]


FAULTY = """
#include "apswitch.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static int ended; // as after a panic that the library caught

static int ends(const char* call)
{
    static int left = 50;
    ended |= !strcmp(getenv("FAULTY"), call) && --left == 0;
    return ended;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

const char* aps_error(const aps_switch* aps)
{
    REAL(aps_error);
    return ended ? "a defect" : real(aps);
}

enum aps_result aps_advance(aps_switch* aps, uint64_t to)
{
    REAL(aps_advance);
    return to == aps_now(aps) && ends("advance") ? APS_ERROR : real(aps, to);
}

enum aps_result aps_call(aps_switch* aps, uint32_t method, const uint8_t* request, size_t length, aps_bytes* to)
{
    REAL(aps_call);
    return ends("call") ? APS_ERROR : real(aps, method, request, length, to);
}

enum aps_result aps_stream_take(aps_switch* aps, uint64_t stream, aps_bytes* to)
{
    REAL(aps_stream_take);
    return ends("take") ? APS_ERROR : real(aps, stream, to);
}

enum aps_result aps_sent(aps_switch* aps, aps_frame* frame)
{
    REAL(aps_sent);
    return ends("sent") ? APS_ERROR : real(aps, frame);
}
"""


@pytest.mark.parametrize("call", ["advance", "call", "take", "sent"])
def test_a_defect_of_the_switch_ends_the_simulation_in_one_line(call: str, tmp_path: Path) -> None:
    (tmp_path / "faulty.c").write_text(FAULTY)
    command = ["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT}/switch/c", "faulty.c", "-o", "faulty.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    environment = os.environ | {"LD_PRELOAD": f"{tmp_path}/faulty.so {build.SWITCH}", "FAULTY": call}
    assert said(
        """
with wired() as lab:
    lab.control(labs.config(PORTS))
    lab.transfer("down", start=0.5)
    refused(lab.run, 12)
""",
        environment,
    ) == ["a defect"]


def test_who_closed_a_stream_is_not_told_of_it_any_more() -> None:
    assert said("""
import ctypes
told = []
ring = virtual._Callback(lambda: told.append(1))
with wired() as lab:
    library, handle, stream, answer = lab.library, lab.handle, ctypes.c_uint64(), virtual.Bytes()
    def open_():
        library.ap_stream_open(handle, ctypes.byref(stream), ring)
        # An arbitration of device 1 with election id 1, which is answered at once.
        library.ap_stream_send(handle, stream, bytes.fromhex("0a0608011a021001"), 8, ctypes.byref(answer))
    open_()
    lab.run(0.1)
    print(len(told), library.ap_stream_take(handle, ctypes.byref(answer)) == virtual.OK)
    open_()
    library.ap_stream_close(handle, stream)
    lab.run(0.2)
    print(len(told), library.ap_stream_take(handle, ctypes.byref(answer)) == virtual.NOTHING)
    # One that the switch ended.
    loop = virtual.VirtualLoop(library)
    mine = virtual.InProcess(library, loop, handle).stream()
    mine._tell = lambda: told.append(2)
    mine.send(bytes.fromhex("ffffff"))
    mine._told = None
    mine.close()
    lab.run(0.3)
    print(told)
""") == ["1 True", "1 True", "[1]"]


def test_a_controller_that_is_not_ready_leaves_no_alarm() -> None:
    assert said("""
deaf = {"run": lambda self: virtual.asyncio.sleep(1, self)}
virtual.ManagedAccessPoint = type("Deaf", (virtual.ManagedAccessPoint,), deaf)
rung, kept = [], virtual.VirtualLoop.run_ready
virtual.VirtualLoop.run_ready = lambda self: (rung.append(self.time()), kept(self))
with wired() as lab:
    refused(lab.control, labs.config(PORTS))
    rung.clear()
    lab.run(3)
    print(rung)
""") == ["the controller is not ready: the switch does not answer", "[]"]


def test_an_access_point_that_has_ended_says_so() -> None:
    assert said("""
import gc
from accesspoint.controller.agent.transport import RpcError
with wired() as lab:
    loop = lab.control(labs.config(PORTS)).loop
    transport = virtual.InProcess(lab.library, loop, lab.handle)
    stream = transport.stream()
with wired():
    for call in (lambda: transport.call("Capabilities", b""), stream.receive, transport.stream().receive):
        stream.send(b"")
        try:
            call().send(None)
        except RpcError as error:
            print(error)
    del stream, call
    gc.collect()
""") == 3 * ["UNAVAILABLE: the access point has ended"]
