# SPDX-License-Identifier: Apache-2.0
"""Program of test_peers.py in a kernel that has the queue disciplines: labs of two peers, and their measurements."""

import json
import sys
from pathlib import Path
from typing import Any

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.links.profiles import link_profile
from accesspoint.topologies.mininet.peer_network import PeerLab
from accesspoint.topologies.namespaces import contain

PEERS = ("tc-fifo", "cake-ack-filter")  # one behind tbf, one that shapes
PROFILE = link_profile("testbed", down="2mbit", up="1mbit", rtt="20ms")


def measure(peer: str, directory: Path) -> dict[str, Any]:
    """Return the results of ping, tc and iperf3."""
    with PeerLab(PROFILE, directory, peer=peer) as lab:
        station, server = lab.stations[0], lab.server
        pings = station.run("ping", "-c", "4", "-i", "0.2", server.IP())
        server.popen(["iperf3", "-s"])
        assert eventually(lambda: bool(server.run("ss", "-Hltn", "sport = :5201")), 15.0)
        said = json.loads(station.run("iperf3", "-c", server.IP(), "-J", "-t", "2", "-R"))
        hops = [intf.name for intf in lab.access_point.intfList() if intf.name != "lo"]
        at = [lab.access_point.cmd("tc", "qdisc", "show", "dev", name) for name in hops]
    return {"pings": pings, "rate": said["end"]["sum_received"]["bits_per_second"], "at": at}


def main() -> int:
    found = {peer: measure(peer, Path(sys.argv[1]) / peer) for peer in PEERS}
    Path(sys.argv[1], "found.json").write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(contain.run(main))
