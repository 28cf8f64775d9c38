# SPDX-License-Identifier: Apache-2.0
"""Program of test_peers.py in a kernel that has the queue disciplines: labs of two peers, and their measurements."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies import targets
from accesspoint.topologies.links.profiles import link_profile
from accesspoint.topologies.mininet.peer_network import PeerLab
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.namespaces.namespace import Namespace

PEERS = ("tc-fifo", "cake-ack-filter")  # one behind tbf, one that shapes
OPTIONS = "--no-p4 -i 1@s1 --grpc-server-addr 127.0.0.1:9559"
PROFILE = link_profile("testbed", down="2mbit", up="1mbit", rtt="20ms")


def measure(peer: str, directory: Path) -> dict[str, Any]:
    """Return the results of ping, tc and iperf3."""
    with PeerLab(PROFILE, directory, peer=peer) as lab:
        station, server = lab.stations[0], lab.server
        # All at once: ping waits for later answers no longer than the interval once it has had one.
        pings = station.run("ping", "-c", "4", "-l", "4", "-i", "60", "-W", "60", server.IP())
        fastest = []

        def quick() -> bool:
            """Return whether any round trip was; a busy machine holds up some."""
            said = station.run("ping", "-c", "1", "-W", "60", server.IP())
            fastest.append(float(re.search(r"rtt min/avg/max/mdev = ([\d.]+)/", said)[1]))  # type: ignore[index]
            return len(fastest) >= 4 and min(fastest) < 40

        eventually(quick)
        server.popen(["iperf3", "-s"])
        assert eventually(lambda: bool(server.run("ss", "-Hltn", "sport = :5201")), 120)
        said = json.loads(station.run("iperf3", "-c", server.IP(), "-J", "-t", "2", "-R"))
        hops = [intf.name for intf in lab.access_point.intfList() if intf.name != "lo"]
        at = [lab.access_point.cmd("tc", "qdisc", "show", "dev", name) for name in hops]
    return {"pings": pings, "fastest": min(fastest), "rate": said["end"]["sum_received"]["bits_per_second"], "at": at}


def taken() -> str:
    """Return the log of a switch whose port has netem below htb, as a TCLink of Mininet gives it."""
    with Namespace() as place:
        place.ip("link", "add", "s1", "type", "veth", "peer", "name", "h1")
        place.ip("link", "set", "s1", "up")
        for words in (
            "qdisc add dev s1 root handle 5:0 htb default 1",
            "class add dev s1 parent 5:0 classid 5:1 htb rate 0.5Mbit burst 15k",
            "qdisc add dev s1 parent 5:1 handle 10: netem delay 30ms 5ms loss 1% limit 50",
        ):
            place.run("tc", *words.split())
        with place.popen(
            targets.find("apswitch").binary(),
            *OPTIONS.split(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as switch:
            lines = []
            assert switch.stdout
            for line in switch.stdout:
                lines.append(line)
                if "queue discipline" in line:
                    break
            switch.terminate()
    return "".join(lines)


def main() -> int:
    found: dict[str, Any] = {peer: measure(peer, Path(sys.argv[1]) / peer) for peer in PEERS}
    found["taken"] = taken()
    Path(sys.argv[1], "found.json").write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(contain.run(main))
