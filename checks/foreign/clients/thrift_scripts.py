# SPDX-License-Identifier: Apache-2.0
"""Scripts that write tables over Thrift: p4-utils' examples, and BMv2's and Mininet-WiFi's own for Mininet."""

import re
import subprocess
import sysconfig
from pathlib import Path

from accesspoint.checks.foreign.case import Failed, NotRun, case
from accesspoint.checks.foreign.stand import MININET, Session, Stand
from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.requirements import ROOT

FRROUTING = Path("/usr/lib/frr")
PROMPT = "mininet> "
CONVERGED = 90.0  # s, for routes to be found
ASSOCIATED = 20.0  # s, for stations
NONE_LOST = r" 0% dropped| 0% packet loss"
PARTS = ("tools", "targets/simple_switch", "build/targets/simple_switch/gen-py", "build/thrift_src/gen-py")


def thrift_client(stand: Stand) -> str:
    """Put BMv2's own command line on PATH, `simple_switch_CLI`; return the folders that Python imports it from."""
    bmv2 = stand.folder("bmv2")
    places = [bmv2 / part for part in PARTS]
    if missing := [place for place in places if not place.is_dir()]:
        raise NotRun(f"{missing[0].relative_to(bmv2)} is missing: the checkout of BMv2 has to be built, with Thrift")
    path = ":".join(map(str, places))
    cli = stand.scratch / "bin/simple_switch_CLI"
    cli.unlink(missing_ok=True)
    cli.write_text(
        f'#!/bin/sh\nPYTHONPATH={path} exec {stand.python} {bmv2}/targets/simple_switch/sswitch_CLI.py "$@"\n'
    )
    cli.chmod(0o755)
    if not MININET.is_dir():
        raise NotRun("Mininet is missing: apt install mininet")
    return path


def require(output: str, pattern: str, what: str) -> re.Match[str]:
    """Return the match of the pattern in the output. Raises Failed when there is none."""
    found = re.search(pattern, output, re.S)
    if not found:
        problem = re.findall(r"^.*(?:Exception|Error|Could not).*$", output, re.M)
        raise Failed(f"{what}: {(problem[-1] if problem else output).strip()[-200:]}")
    return found


def ping(session: Session, one: str, other: str, seconds: float = 0.0) -> None:
    """Ping between two hosts, for `seconds` again while packets are lost. Raises Failed when some are lost then."""
    line = f"{one} ping -c 3 {other}"
    if seconds:
        eventually(lambda: re.search(NONE_LOST, session.ask(line)), seconds)
    require(session.ask(line), NONE_LOST, f"{one} ping {other}")


def network(stand: Stand, example: str, *words: str, pings: tuple[tuple[str, str], ...], seconds: float = 0.0) -> None:
    """Run a network of p4-utils' examples, and ping in it; `seconds` until the routes to each host are found."""
    places = thrift_client(stand)
    folder = stand.copy("p4-utils", "p4utils", f"examples/{example}")
    stand.environment["PYTHONPATH"] += f":{folder}:{places}"
    command = (stand.python, "network.py", *words)
    with Session(stand, *command, cwd=folder / "examples" / example, prompt=PROMPT, seconds=60 + seconds) as session:
        for one, other in pings:
            ping(session, one, other, seconds)


def routed(stand: Stand, example: str, *words: str, pings: tuple[tuple[str, str], ...]) -> None:
    """Run an example of switches between routers of FRRouting. Raises NotRun without these."""
    if not (FRROUTING / "zebra").exists():
        raise NotRun("FRRouting is missing: apt install frr")
    if subprocess.run([stand.python, "-c", "import nnpy"], capture_output=True).returncode:
        raise NotRun(f"nnpy, which the learning controllers use, is missing: {stand.python} -m pip install nnpy")
    for daemon in FRROUTING.iterdir():  # which p4-utils takes from where a build from source puts it
        (Path("/usr/local/sbin") / daemon.name).symlink_to(daemon)
    Path("/run/frr").mkdir(exist_ok=True)
    subprocess.run(["usermod", "--append", "--groups", "frrvty", "root"], check=True)  # as whom p4-utils starts them
    network(stand, example, *words, pings=pings, seconds=CONVERGED)


@case(
    "p4-utils-switches", "nsg-ethz/p4-utils", "examples/switches: three switches, tables by command files, ping",
    folder="p4-utils", seconds=150.0,
)  # fmt: skip
def switches(stand: Stand) -> None:
    network(stand, "switches", pings=(("h2", "h3"), ("h3", "h4")))


@case(
    "p4-utils-frrouters", "nsg-ethz/p4-utils",
    "examples/frrouters: three learning switches between five routers of FRRouting, ping in and across the subnets",
    folder="p4-utils", seconds=400.0,
)  # fmt: skip
def frrouters(stand: Stand) -> str:
    pings = [("h1", "h4"), ("h1", "h2")]
    if mpls := Path("/proc/sys/net/mpls").is_dir():
        pings.append(("h1", "h3"))
    routed(stand, "frrouters", pings=tuple(pings))
    return "" if mpls else "not to h3, whose packets cross a router by MPLS, which this kernel lacks"


@case(
    "p4-utils-adv-net", "nsg-ethz/p4-utils",
    "examples/adv-net: six learning switches between four routers of FRRouting, ping",
    folder="p4-utils", seconds=400.0,
    known=dict.fromkeys(
        ("apswitch", "bmv2"), "the example gives `addTask` an argument that p4-utils of the same commit does not take"
    ),
)  # fmt: skip
def adv_net(stand: Stand) -> None:
    routed(stand, "adv-net", "default.traffic", pings=(("h1", "h2"), ("h1", "h6")))


@case(
    "bmv2-mininet", "p4lang/behavioral-model", "mininet/1sw_demo.py, for Mininet: tables by command file, ping",
    folder="bmv2", seconds=90.0,
    known={"apswitch": "its program is [JSON from before 2017](../switch/bmv2.md#different)"},
)  # fmt: skip
def one_switch(stand: Stand) -> None:
    thrift_client(stand)
    folder = stand.copy("bmv2", "mininet") / "mininet"
    words = ("1sw_demo.py", "--behavioral-exe", "simple_switch", "--json", "simple_router.json")
    with Session(stand, stand.python, *words, cwd=folder, prompt=PROMPT) as session:
        commands = (folder / "stress_test_commands.txt").read_text()
        said = stand.run("simple_switch_CLI", "--thrift-port", "9090", cwd=folder, stdin=commands, succeeds=False)
        require(said, "Entry has been added", "simple_switch_CLI")
        ping(session, "h1", "h2")


COMMANDS = """
table_add TheIngress.routes TheIngress.answer 10.0.0.0/8 => 5
table_add TheIngress.ranges NoAction 1->5 0&&&0 0&&&0 => 10
table_dump TheIngress.routes
table_dump TheIngress.ranges
table_modify TheIngress.routes NoAction 0 =>
table_delete TheIngress.routes 0
table_num_entries TheIngress.routes
counter_write TheIngress.hits 1 6 60
counter_read TheIngress.hits 1
meter_set_rates TheIngress.limits 1 0.5:100 1:200
meter_get_rates TheIngress.limits 1
register_write TheIngress.cells 3 9
register_read TheIngress.cells 3
mc_mgrp_create 1
mc_node_create 4 1 2
mc_node_associate 1 0
mc_dump
mirroring_add 5 1
mirroring_get 5
reset_state
register_read TheIngress.cells 3
"""
ANSWERS = (
    r"request.value +: LPM +0a000000/8\nAction entry: TheIngress.answer - 05",
    r"request.index +: RANGE +01 -> 05.*Priority: 10",
    r"RuntimeCmd: 0\n",
    r"TheIngress.hits\[1\]= \(60 bytes, 6 packets",
    r"info rate = 0.5, burst size = 100",
    r"TheIngress.cells\[3\]= 9",
    r"L1h=0, rid=4\) -> \(ports=\[1, 2\]",
    r"MirroringSessionConfig\(port=1",
    r"TheIngress.cells\[3\]= 0",
)


@case(
    "bmv2-cli", "p4lang/behavioral-model",
    "simple_switch_CLI: entries, counters, meters, registers, groups and sessions, written and read",
    folder="bmv2", seconds=60.0,
)  # fmt: skip
def command_line(stand: Stand) -> None:
    thrift_client(stand)
    with stand.switch("--thrift-port", "9090", program=ROOT / "switch/testdata/programs/features.json"):
        said = stand.run("simple_switch_CLI", "--thrift-port", "9090", stdin=COMMANDS)
    for answer in ANSWERS:  # in the order of their commands
        said = said[require(said, answer, "simple_switch_CLI").end() :]


@case(
    "mininet-wifi-p4", "Mininet-WiFi", "examples/p4/p4.py: two access points, each with a station and a host, ping",
    folder="mininet-wifi", seconds=500.0, radios=True,
)  # fmt: skip
def wifi(stand: Stand) -> None:
    thrift_client(stand)
    newer = stand.folder("mininet") / "mininet"  # that of Debian 12 has no `fmtBps`, which mn_wifi.net imports
    (stand.scratch / "python/mininet").unlink()
    (stand.scratch / "python/mininet").symlink_to(newer)
    folder = stand.copy("mininet-wifi", "mn_wifi", "examples/p4")
    stand.environment["PYTHONPATH"] += f":{folder}:{sysconfig.get_path('purelib')}"  # it draws with matplotlib
    words = (stand.python, "p4.py")
    # In a user-mode kernel it takes its time.
    with Session(stand, *words, cwd=folder / "examples/p4", prompt="mininet-wifi> ", seconds=300) as session:
        ping(session, "sta1", "h1", ASSOCIATED)  # the tables know no way between the access points
        ping(session, "sta2", "h2", ASSOCIATED)


WIRED = """
import os, sys
from mininet.cli import CLI
from mininet.net import Mininet
from mn_wifi.bmv2 import P4Host, P4Switch

place = sys.argv[1]
net = Mininet(controller=None)
h1 = net.addHost("h1", ip="10.0.0.1", mac="00:00:00:00:00:01", cls=P4Host)
h2 = net.addHost("h2", ip="10.0.0.2", mac="00:00:00:00:00:02", cls=P4Host)
s1 = net.addSwitch("s1", cls=P4Switch, json=place + "/ap-runtime.json", thriftport=9090)
net.addLink(h1, s1)
net.addLink(h2, s1)
net.start()
net.staticArp()
CLI(net)
net.stop()
"""


@case(
    "mininet-wifi-class", "Mininet-WiFi", "its class P4Switch in Mininet, with the example's program",
    folder="mininet-wifi", seconds=90.0,
)  # fmt: skip
def wired(stand: Stand) -> str:
    folder = stand.copy("mininet-wifi", "mn_wifi", "examples/p4")
    script = stand.scratch / "wired.py"
    script.write_text(WIRED)
    stand.environment["PYTHONPATH"] += f":{folder}:{sysconfig.get_path('purelib')}"  # it draws with matplotlib
    with Session(stand, stand.python, script, folder / "examples/p4", cwd=folder, prompt=PROMPT) as session:
        require(session.ask("net"), "s1-eth1", "net")
        if "crashed" in session.opening or "ERROR" in session.opening:
            raise Failed("the switch does not start: " + session.opening.strip()[-200:])
    return "starts and stops; the example's tables need a controller"
