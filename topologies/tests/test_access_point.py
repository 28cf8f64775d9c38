# SPDX-License-Identifier: Apache-2.0
"""The access point in Mininet scripts: its links, ports that come later, namespaces."""

import re

import pytest

from accesspoint.topologies.tests.conftest import Start
from accesspoint.topologies.tests.mininet_scripts import played, round_trips

pytestmark = pytest.mark.usefixtures("privileged")


def test_access_point_link_with_mininets_words_is_the_controllers_capacity(start: Start) -> None:
    output = played(
        start,
        """
ap1 = net.addSwitch("ap1", cls=AccessPoint)
hosts(dict(bw=5, delay="30ms"), {}, to=ap1)
net.start()
print("rates", [port.rate for port in ap1.capacities.values()], ap1.wiring().links)
ping()
ping_until(90)
""",
    )
    assert "rates [5000000, 1000000]" in output and "1: 'rate=5000000bit,delay=30000us'" in output
    assert "2 received" in output and 30 <= min(round_trips(output)) < 90


def test_access_point_link_attached_and_detached_while_it_runs(start: Start) -> None:
    output = played(
        start,
        """
ap1 = net.addSwitch("ap1", cls=AccessPoint, uplink="h2")
hosts({}, {}, to=ap1)
h3 = net.addHost("h3")
net.start()
link = net.addLink(h3, ap1, bw=2, delay="30ms")
h3.setIP("10.0.0.3/8")
ap1.attach(link.intf2)
# The controller has the port before packets pass.
print("attached", eventually(lambda: "1 received" in net["h1"].cmd("ping -c 1 -W 1 10.0.0.3")))
ping(5, "10.0.0.3")
ping()
ap1.detach(link.intf2)
time.sleep(2)
ping(2, "10.0.0.3", wait=3)
ping()
try:
    ap1.detach(ap1.intfs[2])
except LabError as error:
    print(error)
""",
    )
    assert "attached True" in output
    assert re.findall(r"(\d) received", output) == ["5", "2", "0", "2"], output
    assert round_trips(output)[0] >= 30
    assert "ap1: the uplink ap1-eth2 cannot be detached while the access point runs" in output


def test_access_point_in_a_namespace_passes_packets(start: Start) -> None:
    output = played(
        start,
        """
ap1 = net.addSwitch("ap1", cls=AccessPoint, inNamespace=True)
hosts({}, {}, to=ap1)
net.start()
ping()
curl = "curl -s -o /dev/null -w '%{http_code}' --oauth2-bearer"
print("REST", ap1.cmd(f"{curl} {ap1.rest_token} {ap1.rest_url}/openapi.json"))
""",
    )
    assert "2 received" in output and "REST 200" in output


def test_access_point_with_a_program_of_its_own_runs_without_the_controller(start: Start) -> None:
    output = played(
        start,
        """
ap1 = net.addSwitch("ap1", cls=AccessPoint, json=WIRE)
hosts({}, {}, to=ap1)
net.start()
ping()
print("controller", ap1.controller, ap1.wiring().links, ap1.connected())
""",
    )
    assert "2 received" in output and "controller None {} True" in output
