# SPDX-License-Identifier: Apache-2.0
"""Mininet-WiFi's access points without radios: a wire stands for the radio, a stub for Mininet-WiFi's own classes."""

import json
import re
import shutil
from pathlib import Path

import pytest

from accesspoint.topologies.tests.conftest import Start
from accesspoint.topologies.tests.mininet_scripts import played, round_trips

pytestmark = pytest.mark.usefixtures("privileged")

NODES = """
from mininet.node import Host, Node

class AP(Node):
    pass

class Station(Host):
    pass
"""
# As Mininet-WiFi gives it: the radio is the first of the interfaces, and `wintfs` has it, too.
RADIO = """
from accesspoint.topologies.wifi.access_point import P4AP
def radio(ap, *stations):
    air = net.addSwitch("s9", cls=Bridge)
    net.addLink(air, ap)
    ap.wintfs = {0: ap.intfs[1]}
    for station in stations:
        net.addLink(net.addHost(station), air)
"""


@pytest.fixture
def stub(tmp_path: Path) -> str:
    """Return a folder with a stub of Mininet-WiFi."""
    folder = tmp_path / "stub"
    (folder / "mn_wifi").mkdir(parents=True)
    (folder / "mn_wifi/__init__.py").touch()
    (folder / "mn_wifi/node.py").write_text(NODES)
    return f"{folder}:{Path(__file__).parents[2]}"


def test_p4ap_runs_its_controller(start: Start, stub: str) -> None:
    output = played(
        start,
        RADIO
        + """
ap1 = net.addSwitch("ap1", cls=P4AP, ssid="x", channel="1", position="0,0,0")
radio(ap1, "h1")
net.addLink(net.addHost("server"), ap1)
net.start()
ping(2, net["server"].IP())
print(ap1.wiring().links, bool(ap1.rest_url))
""",
        PYTHONPATH=stub,
    )
    assert "2 received" in output and round_trips(output)[0] >= 4
    assert "1: 'rate=14000000bit,limit=100,delay=2000us'" in output and "} True" in output


def test_p4ap_takes_the_arguments_of_mininet_wifis_own(start: Start, stub: str, tmp_path: Path) -> None:
    commands = tmp_path / "commands.txt"
    commands.write_text("mirroring_add 5 2\n")
    output = played(
        start,
        RADIO
        + f"""
ap7 = net.addSwitch("ap7", cls=P4AP, json=str(WIRE), switch_config="{commands}", grpcport=50007, netcfg=True,
    loglevel="debug", thriftport=9999, ssid="x", directory="{tmp_path / "ap"}")
radio(ap7, "h1")
net.addLink(net.addHost("server"), ap7)
net.start()
ping(2, net["server"].IP())
print(ap7.grpc, ap7.process.args, ap7.rest_url == "")
""",
        PYTHONPATH=stub,
    )
    assert "2 received" in output and "127.0.0.1:50007" in output and "'--link'" not in output
    assert "'--device-id', '7'" in output and "'--cpu-port', '255'" in output and output.strip().endswith("True")
    assert "ap7: without effect on apswitch: thriftport" in output
    (device,) = json.loads((tmp_path / "ap/netcfg.json").read_text())["devices"].items()
    assert device[0] == "device:bmv2:ap7"
    assert device[1]["basic"]["managementAddress"] == "grpc://127.0.0.1:50007?device_id=7"
    assert device[1]["ports"].keys() == {"1", "2"}


@pytest.mark.parametrize("isolated", [True, False])
def test_p4ap_stations_of_its_radio_reach_each_other_only_when_not_isolated(
    start: Start, stub: str, isolated: bool
) -> None:
    # As behind hostapd's `ap_isolate`: a medium that learns nothing, whose stations reach only the access point.
    output = played(
        start,
        RADIO
        + f"""
ap1 = net.addSwitch("ap1", cls=P4AP, isolated={isolated})
radio(ap1, "h1", "h2")
net.addLink(net.addHost("server"), ap1)
net.start()
for port, kept_apart in ((1, "off"), (2, "on"), (3, "on")):
    flags = ["learning", "off", "isolated", kept_apart]
    subprocess.run(["bridge", "link", "set", "dev", f"s9-eth{{port}}", *flags], check=True)
# Who spoke before is learned already.
subprocess.run(["ip", "link", "set", "s9", "type", "bridge", "fdb_flush"], check=True)
ping(3, wait={20 if isolated else 60})
ping(3, net["server"].IP())
""",
        PYTHONPATH=stub,
    )
    assert re.findall(r"(\d) received", output) == ["0" if isolated else "3", "3"], output


@pytest.mark.realtime
@pytest.mark.skipif(not shutil.which("simple_switch_grpc"), reason="simple_switch_grpc is not on PATH: install BMv2")
def test_access_point_of_a_lab_on_bmv2_has_a_wire_behind_its_radio(start: Start, stub: str, tmp_path: Path) -> None:
    output = played(
        start,
        RADIO
        + f"""
from pathlib import Path
from accesspoint.topologies.links.profiles import PROFILES
from accesspoint.topologies.wifi.nodes import Bmv2LabAP
directory = Path("{tmp_path}")
ap1 = net.addSwitch("ap1", cls=Bmv2LabAP, radio=PROFILES["testbed"].down_model(), prefix="ap1", directory=directory)
radio(ap1, "h1")
net.addLink(net.addHost("server"), ap1, cls=AccessPointLink, model=PROFILES["testbed"].up_model())
net.start()
print(ap1.process.args)
from accesspoint.topologies.features import PLAIN
from accesspoint.topologies.mininet import controllers
from accesspoint.topologies.targets import Port
ports = {{1: Port(14_000_000, 1_000_000, 100), 2: Port(1_000_000, 14_000_000, 1000)}}
running = controllers.start(directory, [controllers.entry(ap1, ports, PLAIN)])
ping(3, net["server"].IP())
running.stop()
""",
        PYTHONPATH=stub,
        timeout=120,
    )
    assert "'1@ap1-port'" in output and "3 received" in output and round_trips(output)[0] >= 4
