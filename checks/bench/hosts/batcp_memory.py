# SPDX-License-Identifier: Apache-2.0
"""BATCP without a limit, like with like: octets from memory to memory over two bare veths, no file and no hash.

Compared in each round: one kernel MPTCP socket over both, one TCP, and two TCPs at the same time. Results are medians
of the ratios within a round, as others may use the machine.
"""

import json
import secrets
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

from accesspoint.checks.bench.hosts.batcp import IPPROTO_MPTCP, PORT, Arm, stream, unshaped
from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.hosts.files import HOSTS
from accesspoint.topologies.links.paths import PathLink

OCTETS = 2_000_000_000
ROUNDS = 7


def memory(links: list[PathLink], octets: int) -> float:
    """Throughput from memory to memory over BATCP without a key, kbit/s. Raises LabError."""
    return _memory(links, octets)


def sealed(links: list[PathLink], octets: int) -> float:
    """Throughput as of `memory`, with a key: encrypted and authenticated. Raises LabError."""
    with tempfile.NamedTemporaryFile("w", suffix=".key") as key:  # for its owner's eyes only
        key.write(secrets.token_hex(16))
        key.flush()
        return _memory(links, octets, "--key-file", key.name)


def _memory(links: list[PathLink], octets: int, *words: str) -> float:
    here = ["--listen", f"0.0.0.0:{PORT}"]
    receiver = links[0].b.popen(
        HOSTS, "batcp", "receive", "--discard", "--count", "1", *here, *words, stderr=subprocess.PIPE, text=True
    )
    assert receiver.stderr
    receiver.stderr.readline()
    to = [word for link in links for word in ("--to", f"{link.b_ip}:{PORT}", "--interface", link.a_if)]
    told = json.loads(links[0].a.run(HOSTS, "batcp", "send", *to, *words, "--bytes", str(octets), "--json"))
    receiver.communicate()
    return float(told["kbit_per_second"])


def parallel(links: list[PathLink], octets: int) -> float:
    """kbit/s over a plain TCP on each link, all at the same time: the sum. Raises LabError."""
    with ThreadPoolExecutor(len(links)) as pool:
        share = octets // len(links)
        running = [pool.submit(stream, [link], share, 0, PORT + number) for number, link in enumerate(links)]
        return sum(one.result() for one in running)


ARMS: dict[str, Arm] = {
    "tcp": stream,
    "two_tcp": parallel,
    "mptcp": lambda links, octets: stream(links, octets, IPPROTO_MPTCP),
    "batcp": memory,
    "sealed": sealed,
}
# Name, what is measured, what it is compared with, and that in words, the goal.
GOALS = (
    ("batcp_of_mptcp", "batcp", "mptcp", "BATCP of kernel MPTCP", 2.0),
    ("batcp_of_two_tcp", "batcp", "two_tcp", "BATCP of two TCPs in parallel", 0.9),
    ("batcp_encrypted_of_mptcp", "sealed", "mptcp", "encrypted BATCP of kernel MPTCP", 1.0),
)


def measure(step: Step, octets: int = OCTETS, rounds: int = ROUNDS) -> Raw:
    """Return Gbit/s of each arm. Raises LabError."""
    return {"gbit": unshaped(ARMS, octets, rounds, step)}


def rows(raw: Raw) -> list[Row]:
    """Make rows: medians of the ratios within a round."""
    gbit = raw["gbit"]
    found = []
    for name, ours, theirs, text, goal in GOALS:
        ratios = tuple(one / other for one, other in zip(gbit[ours], gbit[theirs], strict=True))
        both = f"{statistics.median(gbit[ours]):.2f} of {statistics.median(gbit[theirs]):.2f} Gbit/s"
        what = f"{text}, {both}, medians; {min(ratios):.2f} to {max(ratios):.2f}"
        found.append(Row(name, what, statistics.median(ratios), goal, rounds=ratios))
    return found
