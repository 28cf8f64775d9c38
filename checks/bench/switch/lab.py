# SPDX-License-Identifier: Apache-2.0
"""Two veth pairs in a namespace of their own, and the processes that run in it.

gen --veth-- left [the switch] right --veth-- sink
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from accesspoint.topologies.links.veth import OFFLOADS, are_up
from accesspoint.topologies.namespaces.namespace import Namespace
from accesspoint.topologies.processes import wait_for
from accesspoint.topologies.requirements import ROOT, LabError

SWITCH = ROOT / "target/release/apswitch"
TRAFFIC = ROOT / "target/release/apswitch-bench"


def on(core: int) -> tuple[str, ...]:
    """Return the words to put before a command that shall run on this core only."""
    return "taskset", "-c", str(core)


class VethBench(Namespace):
    """The namespace; `start` runs a program inside."""

    def __init__(self) -> None:
        super().__init__()
        for left, right in (("gen", "left"), ("right", "sink")):
            self.ip("link", "add", left, "type", "veth", "peer", "name", right)
            for name in (left, right):
                # No IPv6 chatter beside the measured packets.
                self.run("sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
                self.ip("link", "set", name, "up")
                self.run("ethtool", "-K", name, *OFFLOADS)
        wait_for(lambda: are_up(self.ip("-json", "link", "show", "type", "veth")), "the links of the bench come up")

    def start(self, *command: str | Path, core: int | None) -> subprocess.Popen[bytes]:
        """A program inside the namespace on one core, so that sender and switch never share one by chance; None: where
        the kernel puts it."""
        pinned = () if core is None else on(core)
        return self.popen(*pinned, *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def received(self) -> int:
        """Packets that have reached `sink`."""
        return int(json.loads(self.ip("-s", "-j", "link", "show", "sink"))[0]["stats64"]["rx"]["packets"])


def resident_bytes(pid: int) -> int:
    """RSS of a process (proc_pid_status(5))."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise LabError(f"process {pid} has no VmRSS; is it still running?")
