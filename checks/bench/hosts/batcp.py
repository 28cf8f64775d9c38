# SPDX-License-Identifier: Apache-2.0
"""BATCP compared with kernel MPTCP: the part of two links' sum that reaches a program, and the speed without a limit.

The ceiling of shaped links is what their rates leave for payload: 1448 of the 1514 octets of a full frame (Ethernet 14,
IPv4 20, TCP with timestamps 32), less what the link loses. A transfer counts from its first SYN to the receiver's word
that all is there, BATCP's with its SHA-256 at both ends. All shaped arms of a round run at the same time, each on links
of its own; those without a limit in turn. `batcp_memory` measures without files.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.hosts.files import Transfer, make_file
from accesspoint.topologies.links.paths import PathLink, Paths
from accesspoint.topologies.requirements import ROOT, LabError

STREAM = ROOT / "hosts/peers/stream.py"
IPPROTO_MPTCP = 262
PAYLOAD = 1448 / 1514
GOAL = 0.98
SIZES = (5_000_000, 10_000_000)
UNLIMITED = 1_000_000_000
ROUNDS = 3
PORT = 7001


@dataclass(frozen=True, eq=False)
class Scenario:
    """Two links, as the settings of `Paths.link`; both have a delay of 20 ms a way and a queue of 50 packets."""

    name: str
    text: str
    first: dict[str, Any]
    second: dict[str, Any]

    def links(self, paths: Paths) -> list[PathLink]:
        a, b = paths.host("a"), paths.host("b")
        common: dict[str, Any] = {"delay": "20ms", "limit": 50}
        return [paths.link(a, b, **(common | model)) for model in (self.first, self.second)]

    def ceiling(self) -> float:
        """kbit/s of payload."""
        return PAYLOAD * sum(
            float(str(model["rate"]).removesuffix("kbit")) * (1 - float(str(model.get("loss", 0))))
            for model in (self.first, self.second)
        )


ADSL: dict[str, Any] = {"rate": "633kbit"}
HSPA: dict[str, Any] = {"rate": "355kbit"}
UNSTEADY = HSPA | {"jitter": "10ms"}
SCENARIOS = [
    Scenario("adsl_adsl", "633 + 633", ADSL, ADSL),
    Scenario("adsl_hspa", "633 + 355", ADSL, HSPA),
    Scenario("jitter", "the second with 10 ms of jitter", ADSL, UNSTEADY),
    Scenario("loss", "the second with 1 % loss", ADSL, HSPA | {"loss": 0.01}),
    Scenario("jitter_loss", "the second with both", ADSL, UNSTEADY | {"loss": 0.01}),
]


def stream(links: list[PathLink], octets: int, protocol: int = 0, port: int = PORT) -> float:
    """kbit/s over one kernel socket: plain TCP on the first link, or MPTCP over both. Raises LabError."""
    a, b = links[0].a, links[0].b
    if protocol == IPPROTO_MPTCP:
        for host in (a, b):
            host.ip("mptcp", "limits", "set", "subflow", "4", "add_addr_accepted", "4")
        for link in links[1:]:
            b.ip("mptcp", "endpoint", "add", link.b_ip, "dev", link.b_if, "signal")
    receiver = b.popen(sys.executable, STREAM, "receive", str(port), str(protocol), stdout=subprocess.PIPE)
    assert receiver.stdout
    receiver.stdout.readline()
    words = ["send", links[0].b_ip, str(port), str(protocol), str(octets)]
    seconds = float(a.run(sys.executable, STREAM, *words))
    receiver.communicate()
    return octets * 8e-3 / seconds


def batcp(scheduler: str, estimator: str = "delivered") -> Callable[[list[PathLink], int], float]:
    def transfer(links: list[PathLink], octets: int) -> float:
        """kbit/s of a file over BATCP. Raises LabError."""
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            file, into = Path(folder, "file"), Path(folder, "received")
            into.mkdir()
            digest = make_file(file, octets)
            with Transfer(links, file, into, both=("--scheduler", scheduler, "--estimator", estimator)) as running:
                sender, receiver = running.ends(900)
            if sender.summary.get("sha256") != digest or receiver.summary.get("sha256") != digest:
                raise LabError(f"a transfer failed: {sender.said} {receiver.said}")
            return float(sender.summary["kbit_per_second"])

    return transfer


Arm = Callable[[list[PathLink], int], float]
ARMS: dict[str, Arm] = {
    "earliest": batcp("earliest"),
    "paper": batcp("paper"),
    "paper_rtt": batcp("paper", "paper"),
    "mptcp": lambda links, octets: stream(links, octets, IPPROTO_MPTCP),
}


def shaped(scenario: Scenario, arm: Arm, octets: int) -> float:
    """Share of the ceiling, 0 to 1."""
    with Paths() as paths:
        return arm(scenario.links(paths), octets) / scenario.ceiling()


def unshaped(arms: Mapping[str, Arm], octets: int, rounds: int, step: Step) -> dict[str, list[float]]:
    """Gbit/s of each arm over two bare veths, arm after arm, in turn."""
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(rounds):
        for name, arm in arms.items():
            step(f"round {turn + 1} of {rounds} without a limit, {name}")
            with Paths() as paths:
                a, b = paths.host("a"), paths.host("b")
                rates[name].append(arm([paths.wire(a, b), paths.wire(a, b)], octets) / 1e6)
    return rates


def measure(step: Step, sizes: tuple[int, ...] = SIZES, unlimited: int = UNLIMITED, rounds: int = ROUNDS) -> Raw:
    """Return shares of the ceiling of each kind of links and size of file, and Gbit/s without a limit, by arm. Raises
    LabError."""
    shares: dict[str, dict[str, list[float]]] = {}
    for octets in sizes:
        for turn in range(rounds):
            step(f"round {turn + 1} of {rounds} with {octets / 1e6:g} MB")
            with ThreadPoolExecutor(len(SCENARIOS) * len(ARMS)) as pool:
                running = {
                    (scenario, name): pool.submit(shaped, scenario, arm, octets)
                    for scenario in SCENARIOS
                    for name, arm in ARMS.items()
                }
                for (scenario, name), share in running.items():
                    of = shares.setdefault(f"{scenario.name}_{octets // 10**6}mb", {})
                    of.setdefault(name, []).append(share.result())
    rates = unshaped({"tcp": stream, **ARMS}, unlimited, rounds, step)
    with Paths() as paths:
        congestion = paths.host("a").run("sysctl", "-n", "net.ipv4.tcp_congestion_control").strip()
    return {"congestion_control": congestion, "share_of_ceiling": shares, "unshaped_gbit": rates}


def rows(raw: Raw) -> list[Row]:
    """Make rows of medians."""
    scenarios = {scenario.name: scenario for scenario in SCENARIOS}
    found = []
    for key, shares in raw["share_of_ceiling"].items():
        scenario = scenarios[key.rpartition("_")[0]]
        median = {name: statistics.median(values) for name, values in shares.items()}
        papers = f"paper's scheduler {median['paper']:.1%}, with its estimator {median['paper_rtt']:.1%}"
        peers = f"{papers}, MPTCP {median['mptcp']:.1%}"
        text = f"of {scenario.ceiling():.0f} kbit/s, {scenario.text}; {peers}"
        found.append(Row(key, text, median["earliest"], GOAL, rounds=tuple(shares["earliest"])))
    gbit = {name: statistics.median(values) for name, values in raw["unshaped_gbit"].items()}
    peers = f"paper's scheduler {gbit['paper']:.2f}, MPTCP {gbit['mptcp']:.2f}, TCP on one {gbit['tcp']:.2f}"
    text = f"Gbit/s of a file over two bare veths; {peers}"
    rounds = tuple(raw["unshaped_gbit"]["earliest"])
    return [*found, Row("unshaped", text, gbit["earliest"], 1.0, rounds=rounds)]
