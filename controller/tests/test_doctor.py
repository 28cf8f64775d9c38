# SPDX-License-Identifier: Apache-2.0
"""apctl doctor: it finds what is wrong, of a real controller, switch and interfaces, and says how to mend it."""

import os
from collections.abc import Iterator

import pytest

from accesspoint.checks.harness.switches import SwitchLab, wait_for
from accesspoint.controller.apctl import doctor
from accesspoint.topologies.namespaces.namespace import Namespace

from .conftest import Apctl


def test_it_tells_a_switch_that_is_away_from_one_that_answers(link_lab: SwitchLab, apctl: Apctl) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    given = {"APCTL_URL": controller.url, "APCTL_TOKEN": controller.token}
    # A busy machine may lose the first session; what counts is that it comes back.
    code, output, errors = wait_for(
        lambda: found if "ok      ap1 is ready" in (found := apctl("doctor", **given))[1] else None
    )
    assert f"ok      the controller at {controller.url} is ready" in output, errors
    bad = [line for line in output.splitlines() if line.startswith("error")]
    assert code == bool(bad) and not any("connecting" in line for line in bad)
    assert apctl("set", "features", "ap1", "ncr=false", **given)[0] == 0
    assert "warning ap1: ncr off" in apctl("doctor", **given)[1]
    link_lab.stop_switch()
    # The controller sees that the switch is away when its next call fails, and not before.
    code, output, _ = wait_for(lambda: found if "error   ap1 is" in (found := apctl("doctor", **given))[1] else None)
    assert code == 1 and "error   ap1 is connecting" in output and "is the switch at " in output
    assert apctl("disconnect", "ap1", **given)[0] == 0
    wait_for(lambda: "warning ap1 is disconnected; `apctl connect ap1`" in apctl("doctor", **given)[1])
    assert "no such interface" in apctl("doctor", "--interface", "nothing0", **given)[1]


def test_port_without_a_carrier_is_reported(link_lab: SwitchLab, apctl: Apctl) -> None:
    """As of a cable that is out, to REST and people; until it is in again."""
    link_lab.start_switch()
    controller = link_lab.controller()
    given = {"APCTL_URL": controller.url, "APCTL_TOKEN": controller.token}
    uplink = link_lab.wires[2].far

    def links() -> set[str]:
        return {f"{port['port']} {port['link']}" for port in controller.get("ports")} & {"1 down", "2 down"}

    wait_for(lambda: controller.get()["state"] == "ready" and not links())
    link_lab.apart.ip("link", "set", uplink, "down")
    wait_for(lambda: links() == {"2 down"})
    # Nothing is known for a second of a switch that gets no processor for as long.
    told = "error   ap1: port 2 (uplink) has no carrier; is its cable in?"
    wait_for(lambda: told in apctl("doctor", **given)[1])
    wait_for(lambda: "down" in apctl("get", "ports", "ap1", **given)[1])
    link_lab.apart.ip("link", "set", uplink, "up")
    wait_for(lambda: not links())


@pytest.fixture
def place() -> Iterator[Namespace]:
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    with Namespace() as made:
        made.run("sh", "-c", "ip link add one type veth peer name two && ip link set one up && ip link set two up")
        yield made


def test_it_finds_what_makes_an_interface_unfit(place: Namespace) -> None:
    place.run("ip", "address", "add", "10.9.8.7/24", "dev", "one")
    place.run("ip", "link", "set", "two", "down")
    with place.entered():
        found = " ".join(map(str, doctor.interface("one")))
        assert "merges packets" in found and "10.9.8.7/24" in found
        assert any("two is down" in finding.text for finding in doctor.interface("two"))
        place.run("ip", "address", "flush", "dev", "one")
        place.run("ip", "link", "set", "two", "up")
        place.run("ethtool", "-K", "one", "tso", "off", "gso", "off", "gro", "off")
        # The kernel notices the carrier a little later.
        wait_for(lambda: not [finding for finding in doctor.interface("one") if finding.level == "error"])
