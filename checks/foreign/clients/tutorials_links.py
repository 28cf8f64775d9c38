# SPDX-License-Identifier: Apache-2.0
"""The ecn exercise of p4lang/tutorials with `P4Switch`: the words of Mininet's links become models of the ports."""

import json
import os
from typing import Any

from accesspoint.checks.foreign.case import Failed, NotRun, case
from accesspoint.checks.foreign.clients.tutorials import CLIENT, congested, marks, prepare
from accesspoint.checks.foreign.stand import Stand

RATE = 0.5  # Mbit/s, of the exercise's narrow link
PROGRAM_SWITCH = """
import sys
from p4runtime_lib.simple_controller import program_switch
address, device, conf, log = sys.argv[1:]
with open(conf) as file:
    program_switch(address, int(device), file, ".", log, conf)
"""


class Prompt:
    """Mininet's prompt for a network of this process: a host, and a command for it."""

    def __init__(self, stand: Stand, net: Any) -> None:
        self.stand = stand
        self.net = net

    def ask(self, line: str, seconds: float = 60.0) -> str:
        host, _, command = line.partition(" ")
        output = str(self.net[host].cmd(command))
        self.stand.note(f"mininet> {line}\n{output}")
        return output


@case(
    "tutorials-ecn-own-switch", CLIENT, "exercise ecn, its topology, tables and scripts, with `P4Switch` in Mininet",
    folder="tutorials", seconds=240.0,
)  # fmt: skip
def ecn(stand: Stand) -> str:
    if stand.target != "apswitch":
        raise NotRun("`P4Switch` is this project's Mininet class, and starts apswitch")
    from accesspoint.topologies.mininet.network import Mininet
    from accesspoint.topologies.mininet.p4_switch import P4Switch

    folder = prepare(stand, "ecn")
    stand.run("make", "build", cwd=folder, seconds=150.0)
    topology = json.loads((folder / "topology.json").read_text())
    os.environ.update({name: stand.environment[name] for name in ("PATH", "PYTHONUNBUFFERED")})
    os.chdir(folder)  # the hosts' as well
    net = Mininet(controller=None)
    for name, host in topology["hosts"].items():
        net.addHost(name, ip=host["ip"], mac=host["mac"])
    for number, name in enumerate(topology["switches"], 1):
        net.addSwitch(name, cls=P4Switch, json=folder / "build/ecn.json", device_id=number)
    for first, second, *words in topology["links"]:
        ends = [end.partition("-p") for end in (first, second)]
        ports = {f"port{number}": int(port) for number, (_, _, port) in enumerate(ends, 1) if port}
        net.addLink(*(name for name, _, _ in ends), **ports, **({"bw": words[1]} if len(words) > 1 else {}))
    net.start()
    try:
        for name, host in topology["hosts"].items():
            net[name].defaultIntf().rename("eth0")
            for command in host.get("commands", ()):
                net[name].cmd(command)
        for name, switch in topology["switches"].items():
            conf = switch["runtime_json"]
            arguments = (net[name].grpc, str(net[name].device_id), conf, folder / f"{name}.txt")
            stand.run(
                stand.python, "-c", PROGRAM_SWITCH, *arguments, cwd=folder,
                environment={"PYTHONPATH": str(folder.parents[1] / "utils")},
            )  # fmt: skip
        said, rate = congested(stand, Prompt(stand, net), folder)
        if not 0.4 <= rate <= RATE:
            raise Failed(f"{rate:.2f} Mbit/s pass the link of {RATE} Mbit/s")
        return marks(said, rate)
    finally:
        net.stop()
