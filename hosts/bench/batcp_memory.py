# SPDX-License-Identifier: Apache-2.0
"""BATCP without a limit, like with like: octets from memory to memory over two bare veths, no file and no hash.

Beside it in each round: one kernel MPTCP socket over both, one TCP, and two TCPs at the same time. Told are medians of
the ratios within a round, as others may use the machine.
"""

import json
import secrets
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench.report import Measured, Row, Step
from hosts.bench.batcp import IPPROTO_MPTCP, PORT, stream
from hosts.tests.files import HOSTS
from topologies.paths import PathLink, Paths

OCTETS = 2_000_000_000
ROUNDS = 7


def memory(links: list[PathLink], octets: int) -> float:
    """kbit/s from memory to memory over BATCP. Raises LabError."""
    with tempfile.NamedTemporaryFile("w", suffix=".key") as key:  # for its owner's eyes only
        key.write(secrets.token_hex(16))
        key.flush()
        words = ["--key-file", key.name]
        here = ["--listen", f"0.0.0.0:{PORT}"]
        receiver = links[0].b.popen(HOSTS, "batcp", "speed", *here, *words, stderr=subprocess.PIPE, text=True)
        assert receiver.stderr
        receiver.stderr.readline()
        words += [word for link in links for word in ("--to", f"{link.b_ip}:{PORT}", "--interface", link.a_if)]
        told = json.loads(links[0].a.run(HOSTS, "batcp", "speed", *words, "--bytes", str(octets), "--json"))
        receiver.communicate()
        return float(told["kbit_per_second"])


def parallel(links: list[PathLink], octets: int) -> float:
    """kbit/s over a plain TCP on each link, all at the same time: the sum. Raises LabError."""
    with ThreadPoolExecutor(len(links)) as pool:
        share = octets // len(links)
        running = [pool.submit(stream, [link], share, 0, PORT + number) for number, link in enumerate(links)]
        return sum(one.result() for one in running)


Arm = Callable[[list[PathLink], int], float]
ARMS: dict[str, Arm] = {
    "tcp": stream,
    "two_tcp": parallel,
    "mptcp": lambda links, octets: stream(links, octets, IPPROTO_MPTCP),
    "batcp": memory,
}
GOALS = (("batcp_of_mptcp", "mptcp", "kernel MPTCP", 2.0), ("batcp_of_two_tcp", "two_tcp", "two TCPs in parallel", 0.9))


def measure(step: Step, octets: int = OCTETS, rounds: int = ROUNDS) -> Measured:
    """Ratios of what BATCP reaches to what the kernel does. Raises LabError."""
    gbit: dict[str, list[float]] = {name: [] for name in ARMS}
    for turn in range(rounds):
        for name, arm in ARMS.items():
            step(f"round {turn + 1} of {rounds}, {name}")
            with Paths() as paths:
                a, b = paths.host("a"), paths.host("b")
                gbit[name].append(arm([paths.wire(a, b), paths.wire(a, b)], octets) / 1e6)
    rows = []
    for name, other, text, goal in GOALS:
        ratios = [ours / theirs for ours, theirs in zip(gbit["batcp"], gbit[other], strict=True)]
        both = f"{statistics.median(gbit['batcp']):.2f} of {statistics.median(gbit[other]):.2f} Gbit/s"
        rows.append(
            Row(
                name,
                f"of {text}, {both}, medians; {min(ratios):.2f} to {max(ratios):.2f}",
                statistics.median(ratios),
                goal,
            )
        )
    return Measured(rows, {"gbit": gbit})
