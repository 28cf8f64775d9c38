# SPDX-License-Identifier: Apache-2.0
"""Coupled congestion control: where subflows meet in one bottleneck they take the share of one TCP there, else all.

The plain TCP beside them and the subflows that are not coupled are Reno, which a single coupled subflow is too.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from accesspoint.checks.harness.hosts.batcp import HOSTS, NEEDS_ROOT, Daemon
from accesspoint.topologies.links.paths import PathHost, Paths
from accesspoint.topologies.requirements import ROOT

pytestmark = [pytest.mark.realtime, NEEDS_ROOT, pytest.mark.timeout(180)]

TRANSFER = ROOT / "checks/harness/hosts/transfer.py"
PORT, OTHER_PORT = 7000, 7001
MBIT = 10
PAYLOAD = MBIT * 1448 / 1514
SECONDS = 30


def reno(paths: Paths) -> tuple[PathHost, PathHost]:
    a, b = paths.host("a"), paths.host("b")
    a.set("net.ipv4.tcp_congestion_control", "reno")
    return a, b


def beside(*words: str) -> float:
    """Return a plain TCP's share of a link that it shares with a BATCP connection of two subflows; 1: half the link."""
    with Paths() as paths:
        a, b = reno(paths)
        link = paths.link(a, b, rate=f"{MBIT}mbit", delay="20ms", limit=60)
        second = link.a_ip + "9"
        a.ip("address", "add", f"{second}/24", "dev", link.a_if)
        receiver = Daemon(
            b, "receive", "--discard", "--count", "1", "--listen", f"0.0.0.0:{PORT}", ready="listening on"
        )
        to = ["--to", f"{link.b_ip}:{PORT}", "--interface", link.a_ip, "--interface", second, "--bytes", "1000000000"]
        sender = Daemon(a, "send", *to, *words, ready=None)
        other = b.popen(sys.executable, TRANSFER, "receive", str(OTHER_PORT), stdout=subprocess.PIPE, text=True)
        assert other.stdout and other.stdout.readline() == "ready\n"
        a.run(sys.executable, str(TRANSFER), "send", link.b_ip, str(OTHER_PORT), "reno", f"{SECONDS}s")
        got = float(json.loads(other.communicate(timeout=240)[0])["mbit"])
        sender.kill()
        receiver.kill()
    return got / (PAYLOAD / 2)


def test_in_one_bottleneck_two_subflows_take_the_share_of_one() -> None:
    with ThreadPoolExecutor(2) as pool:
        alone, coupled = pool.map(lambda words: beside(*words), [(), ("--coupled",)])
    print(f"a TCP beside two subflows gets {alone:.2f} of its half, beside two coupled ones {coupled:.2f}")
    assert coupled > 0.75, f"{coupled:.2f}, and {alone:.2f} where they are not coupled"
    assert coupled > alone + 0.1, f"{coupled:.2f}, and {alone:.2f} where they are not coupled"


def test_two_links_carry_their_sum() -> None:
    with Paths() as paths:
        a, b = reno(paths)
        links = [paths.link(a, b, rate=f"{MBIT}mbit", delay="20ms", limit=60) for _ in range(2)]
        receiver = Daemon(
            b, "receive", "--discard", "--count", "1", "--listen", f"0.0.0.0:{PORT}", "--coupled", ready=None
        )
        receiver.await_line("listening on", 100)  # the kernel looks at the program for a second of its own time
        to = [word for link in links for word in ("--to", f"{link.b_ip}:{PORT}", "--interface", link.a_if)]
        told = json.loads(a.run(str(HOSTS), "batcp", "send", *to, "--coupled", "--bytes", "20000000", "--json"))
        assert receiver.process.wait(120) == 0
    share = told["kbit_per_second"] / 1e3 / (2 * PAYLOAD)
    print(f"two coupled subflows on links of their own carry {share:.2f} of the sum")
    assert share > 0.75
