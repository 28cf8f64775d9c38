# SPDX-License-Identifier: Apache-2.0
"""Program of test_encapsulation.py, for a kernel that has all of it: a lab for each kind of encapsulation, with the
frames on the wire, and a peer's lab whose links change."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.links import effects
from accesspoint.topologies.links.encapsulation import TUNNELS, WRAPS, tunnel, wrap
from accesspoint.topologies.links.profiles import PROFILES, LinkProfile
from accesspoint.topologies.mininet.peer_network import PeerLab
from accesspoint.topologies.namespaces import contain

RATE = 2_000_000


def wrapped(kind: str, directory: Path) -> dict[str, Any]:
    """Return ping's output, and the kinds of frames that passed the access point meanwhile."""
    with PeerLab(PROFILES["testbed"], directory, peer="cake") as lab:
        station, server = lab.stations[0], lab.server
        if kind in TUNNELS:
            address = tunnel(kind, station, server)
        else:
            address = server.IP()
            wrap(kind, station, server)
        uplink = lab.access_point.intfs[2].name
        watch = [sys.executable, "-c", WATCH, uplink]
        with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stdout.readline() == "ready\n"
            pings = station.run("ping", "-c", "3", "-i", "0.2", "-s", "1300", address)
            process.terminate()
            seen = sorted(set(process.stdout.read().split()))
    return {"pings": pings, "seen": seen}


# The outermost protocol first. The kernel takes a tag off before anybody sees the frame, and tells it (packet(7)).
WATCH = """
import socket, struct, sys
end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
end.setsockopt(263, 8, 1)
end.bind((sys.argv[1], 0))
print("ready", flush=True)
while True:
    frame, ancillary, _, _ = end.recvmsg(2048, 64)
    if len(frame) < 1300:
        continue
    _, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", ancillary[0][2][:20])
    kinds = ([f"{tpid:04x}"] if tpid else []) + [frame[12:14].hex()]
    if kinds == ["8100", "0800"] or kinds == ["0800"]:
        kinds.append(f"{frame[23]}:{int.from_bytes(frame[36:38], 'big')}" if frame[23] == 17 else str(frame[23]))
    print("/".join(kinds), flush=True)
"""


def changing(directory: Path) -> float:
    """The rate (bit/s) of a download where a peer's links replay a trace of `RATE`, and its discipline has more."""
    trace = directory / "steps.trace"
    effects.generate("handover", RATE, 10, 1).write(trace)
    profile = LinkProfile("changing", 2 * RATE, 2 * RATE, down_trace=str(trace), up_trace=str(trace))
    with PeerLab(profile, directory, peer="cake") as lab:
        lab.server.popen(["iperf3", "-s"])
        assert eventually(lambda: bool(lab.server.run("ss", "-Hltn", "sport = :5201")), 120)
        said = json.loads(lab.stations[0].run("iperf3", "-c", lab.server.IP(), "-J", "-t", "4", "-R"))
        lab.require_running()
    return float(said["end"]["sum_received"]["bits_per_second"])


def main() -> int:
    directory = Path(sys.argv[1])
    found: dict[str, Any] = {kind: wrapped(kind, directory / kind) for kind in (*WRAPS, *TUNNELS)}
    found["changing"] = changing(directory)
    (directory / "found.json").write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(contain.run(main))
