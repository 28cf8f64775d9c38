# SPDX-License-Identifier: Apache-2.0
"""Mininet scripts as users write them, in a network of their own."""

import re
import textwrap

from accesspoint.topologies.tests.conftest import Start

ASK_ON = "for one in /proc/sys/net/ipv[46]/neigh/*/mcast_solicit; do echo 60 > $one; done"
"""Command that has a host ask for addresses for a minute: a busy machine may hold up the three seconds of Linux."""

# In namespaces of its own, so that neither names nor a killed script are of anybody's concern.
PRELUDE = """
import os, re, subprocess, sys, time
from accesspoint.checks.harness.waiting import eventually
from accesspoint import (AccessPoint, AccessPointLink, Bridge, EndHost, LabError, Mininet, P4Switch)
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.links.paths import WIRE
from accesspoint.topologies.tests.mininet_scripts import ASK_ON
from mininet.link import TCLink

net = Mininet(controller=None)

def switch(name="s1", **words):
    return net.addSwitch(name, **{"cls": P4Switch, "json": WIRE} | words)

def hosts(*links, to):
    for number, link in enumerate(links, start=1):
        net.addLink(net.addHost(f"h{number}"), to, **link)

def ping(count=2, to="10.0.0.2", wait=60):
    net["h1"].cmd(ASK_ON)
    # All at once: ping waits for later answers no longer than the interval once it has had one.
    print(net["h1"].cmd(f"ping -c {count} -l {count} -i 60 -W {wait} {to}"), flush=True)

def ping_until(below):  # ms: a busy machine holds up some packets
    def quick():
        said = net["h1"].cmd("ping -c 1 -W 60 10.0.0.2")
        print(said, flush=True)
        return any(float(took) < below for took in re.findall(r"rtt \\S+ = ([\\d.]+)/", said))
    eventually(quick)

def serve():
    net["h2"].popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    eventually(lambda: net["h2"].cmd("ss -Hltn sport = :5201").strip())

def play():
    contain.own_network()
    try:
        main()
    except LabError as error:
        print("LabError:", error, flush=True)
    finally:
        net.stop()
    return 0

def main():
"""


def script(body: str) -> str:
    """Return a script with this body of `main`."""
    lines = textwrap.dedent(body).strip().splitlines()
    return PRELUDE + "".join(f"    {line}\n" for line in lines) + "\nsys.exit(contain.run(play))\n"


def played(start: Start, body: str, timeout: float = 280, **environment: str) -> str:
    """Run the body of `main` of a script in a network of its own, and return the output."""
    process = start("-c", script(body), **environment)
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, output
    return output


def round_trips(output: str) -> list[float]:
    """Return the shortest round trip of each ping, in ms."""
    return [float(value) for value in re.findall(r"rtt min/avg/max/mdev = ([\d.]+)/", output)]
