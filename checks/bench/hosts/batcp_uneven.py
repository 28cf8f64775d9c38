# SPDX-License-Identifier: Apache-2.0
"""BATCP over two unlike links, 50 Mbit/s with 20 ms and 20 Mbit/s with 80 ms, compared with kernel MPTCP.

A file of 50 MB, counted as `batcp` counts: from the first SYN to the receiver's word that all is there.
"""

import statistics

from accesspoint.checks.bench.hosts.batcp import ARMS, GOAL, Scenario, shaped
from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw

OCTETS = 50_000_000
ROUNDS = 3
LINKS = Scenario(
    "uneven_50_20",
    "50 and 20 Mbit/s, 20 and 80 ms, queues of 200 packets",
    {"rate": "50000kbit", "delay": "10ms", "limit": 200},
    {"rate": "20000kbit", "delay": "40ms", "limit": 200},
)


def measure(step: Step, octets: int = OCTETS, rounds: int = ROUNDS) -> Raw:
    """Return shares of what the two links leave for payload, by arm. Raises LabError."""
    shares: dict[str, list[float]] = {name: [] for name in ARMS}
    for turn in range(rounds):
        for name, arm in ARMS.items():
            step(f"round {turn + 1} of {rounds}, {name}")
            shares[name].append(shaped(LINKS, arm, octets))
    return {"share_of_ceiling": shares}


def rows(raw: Raw) -> list[Row]:
    """Make a row of medians."""
    shares = raw["share_of_ceiling"]
    median = {name: statistics.median(of) for name, of in shares.items()}
    peers = f"paper's scheduler {median['paper']:.1%}, MPTCP {median['mptcp']:.1%}"
    text = f"of {LINKS.ceiling() / 1e3:.1f} Mbit/s, {LINKS.text}; {peers}"
    return [Row(LINKS.name, text, median["earliest"], GOAL, rounds=tuple(shares["earliest"]))]
