# SPDX-License-Identifier: Apache-2.0
"""Hosts on links of their own: rates, delays and black holes are what was asked for, and nothing stays behind."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.links.paths import PathHost, Paths
from accesspoint.topologies.requirements import ROOT, LabError
from accesspoint.topologies.tests.conftest import network_namespaces

pytestmark = pytest.mark.usefixtures("privileged")


def sent(host: PathHost, interface: str) -> int:
    """The packets that an interface of a host has sent."""
    (found,) = json.loads(host.run("ip", "-s", "-j", "link", "show", interface))
    return int(found["stats64"]["tx"]["packets"])


def test_two_links_each_with_its_model() -> None:
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        slow = paths.link(a, b, rate="1mbit", limit=20, delay="10ms", back={"rate": "2mbit", "delay": "5ms"})
        fast = paths.wire(a, b)
        assert (slow.a_if, fast.a_if, fast.b_if) == ("eth0", "eth1", "eth1")
        for address in (fast.b_ip, fast.b_ip6):
            assert "1 received" in a.run("ping", "-c1", "-W60", address)
        took: list[float] = []

        def quick() -> bool:
            """Return whether any round trip was; a busy machine holds up some."""
            output = a.run("ping", "-c1", "-W60", slow.b_ip)
            took.append(float(re.search(r"= ([\d.]+)/", output)[1]))  # type: ignore[index]
            return len(took) >= 5 and min(took) < 25

        eventually(quick)
        assert 15 <= min(took) < 25
        # 40 packets of 1042 bytes at once on 1 Mb/s with room for 20: about half of them stay on the road.
        slow.blackhole()  # until all are sent
        before = sent(a, slow.a_if)
        many = a.popen("ping", "-c40", "-l40", "-i60", "-s1000", "-W60", slow.b_ip, stdout=subprocess.PIPE, text=True)
        assert eventually(lambda: sent(a, slow.a_if) >= before + 40)
        slow.restore()
        # The answer to a later one comes last.
        assert eventually(lambda: "1 received" in a.run("ping", "-c1", "-W5", slow.b_ip, check=False))
        many.send_signal(signal.SIGINT)
        output, _ = many.communicate(timeout=120)
        assert 18 <= int(re.search(r"(\d+) received", output)[1]) <= 26  # type: ignore[index]


def test_a_black_hole_and_its_end() -> None:
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        link = paths.link(a, b)
        link.blackhole()
        assert "0 received" in a.run("ping", "-c1", "-W1", link.b_ip, check=False)
        link.restore()
        # The first request after it may still wait for an answer of the neighbour's.
        assert eventually(lambda: "1 received" in a.run("ping", "-c1", "-W5", link.b_ip, check=False), 120)


def test_a_bad_model_is_named() -> None:
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        with pytest.raises(LabError, match="such as 600kbit"):
            paths.link(a, b, rate="5")


def test_nothing_outlives_a_killed_user() -> None:
    program = (
        "import time\nfrom accesspoint.topologies.links.paths import Paths\n"
        "paths = Paths().__enter__()\na, b = paths.host('a'), paths.host('b')\nlink = paths.link(a, b)\n"
        "print(a.pid, link._namespace.pid, link._switch.pid, flush=True)\ntime.sleep(1000)"
    )
    user = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert user.stdout
    pids = {int(word) for word in user.stdout.readline().split()}
    assert len(network_namespaces(pids)) == 2
    user.kill()
    user.wait()
    start = time.monotonic()
    assert eventually(lambda: not network_namespaces(pids), 120), f"still there after {time.monotonic() - start:.0f} s"
