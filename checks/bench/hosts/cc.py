# SPDX-License-Identifier: Apache-2.0
"""Cost of a congestion control in BPF, and its agreement with the kernel's own (throughput of tcp_av: tcp_av.py).

Processor time per byte is compared with that of the kernel's cubic, at full speed over a veth: the time of both ends'
processes and of the kernel's threads for network interrupts, by bytes received. Windows are opened as far as the
options go, since a small window costs by itself, for any control: only the work of the control is compared. Vegas with
its own options is measured as well. Rounds are interleaved, ratios are of medians.
"""

import contextlib
import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from accesspoint.checks.bench.report import Row, Step, of_medians
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.hosts.cc_lab import UML_LINK, compare_kernels, hosts, kernel_name, loaded, uml_lacks
from accesspoint.topologies.kernels.controls import alone
from accesspoint.topologies.links.paths import PathLink, Paths
from accesspoint.topologies.requirements import ROOT

ROUNDS = 7
SECONDS = 2.0
GOAL = 1.1
FLOW = ROOT / "hosts/peers/flow.py"
PEER = "cubic"
NARROW = "vegas_with_defaults"
# Options that take the window's bound away from a path without delay.
CONTROLS = {
    "vegas": ["alpha=100000", "beta=200000", "gamma=100000"],
    "vegas_fair": ["alpha=100000", "beta=200000", "gamma=100000"],
    "westwood": [],
    "reno_maxwin": ["bound=100000"],
    "tcp_av": ["target=40000000"],
}


@dataclass
class Arm:
    """A control's rounds: seconds of processor time per GB, and Gbit/s."""

    costs: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


def interrupt_threads() -> float:
    """Seconds that the kernel's ksoftirqd threads have run (proc_pid_schedstat(5): ns on the processor)."""
    total = 0
    for name in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if name.read_text().startswith("ksoftirqd/"):
                total += int((name.parent / "schedstat").read_text().split()[0])
    return total * 1e-9


def flow(link: PathLink, control: str, port: int) -> tuple[float, float]:
    """Runs one connection; its cost in s/GB and its rate in Gbit/s."""
    receiver = link.b.popen(sys.executable, FLOW, "receive", str(port), stdout=subprocess.PIPE, text=True)
    assert receiver.stdout
    receiver.stdout.readline()
    before = interrupt_threads()
    sent = json.loads(link.a.run(sys.executable, FLOW, "send", link.b_ip, str(port), control, str(SECONDS)))
    received = json.loads(receiver.communicate()[0])
    cost = sent["cpu"] + received["cpu"] + interrupt_threads() - before
    return cost / (received["bytes"] * 1e-9), received["bytes"] * 8e-9 / SECONDS


def measure(step: Step) -> Raw:
    """Return rounds of each arm, and rate and RTT of those controls that another kernel has too. Raises LabError."""
    arms = {name: Arm() for name in [PEER, *CONTROLS, NARROW]}
    with alone(*CONTROLS), contextlib.ExitStack() as stack:
        paths = stack.enter_context(Paths())
        link = paths.wire(paths.host("a"), paths.host("b"))
        for name, options in CONTROLS.items():
            stack.enter_context(loaded(name, *options))
        port = 5000
        for number in range(ROUNDS):
            for name, arm in arms.items():
                step(f"{name}, round {number + 1} of {ROUNDS}")
                port += 1
                if name == NARROW:
                    hosts("cc", "set", "vegas", "alpha=2", "beta=4", "gamma=1")
                cost, rate = flow(link, PEER if name == PEER else kernel_name(name.split("_with_")[0]), port)
                if name == NARROW:
                    hosts("cc", "set", "vegas", *CONTROLS["vegas"])
                arm.costs.append(cost)
                arm.rates.append(rate)
    raw: dict[str, Any] = {"arms": {name: asdict(arm) for name, arm in arms.items()}, "kernels_own": {}}
    if lacks := uml_lacks():
        step(lacks)
    else:
        step("next to the kernel's own under user-mode-linux")
        raw["kernels_own"] = {name: {"bpf": bpf, "own": own} for name, (bpf, own) in compare_kernels().items()}
    return raw


def rows(raw: Raw) -> list[Row]:
    """Make rows: quotients of medians, and of what both kernels reach: 1 is equal."""
    arms = {name: Arm(**arm) for name, arm in raw["arms"].items()}
    peer = arms.pop(PEER)
    found = [
        of_medians(
            f"{name}_cost_of_{PEER}",
            f"processor time per byte, of {PEER}'s, at "
            f"{statistics.median(arm.rates):.1f} and {statistics.median(peer.rates):.1f} Gbit/s",
            arm.costs,
            peer.costs,
            None if name == NARROW else GOAL,
            at_least=False,
        )
        for name, arm in arms.items()
    ]
    model = ", ".join(f"{key} {value}" for key, value in UML_LINK.items())
    for name, of in raw["kernels_own"].items():
        bpf, own = of["bpf"], of["own"]
        for key, what in (("mbit", "rate, Mbit/s"), ("rtt_ms", "RTT, ms")):
            text = f"{what}: {bpf[key]:.2f} in BPF, {own[key]:.2f} in another kernel; {model}"
            found.append(Row(f"{name}_{key}_of_kernels_own", text, bpf[key] / own[key]))
    return found
