# SPDX-License-Identifier: Apache-2.0
"""The peers: queue disciplines that Linux itself has for a bottleneck, and the kernel that has them. Imports nothing of
Mininet."""

import functools
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.links import station_classes
from accesspoint.topologies.links.station_classes import FULL_FRAME, StationClass
from accesspoint.topologies.requirements import LabError
from accesspoint.topologies.targets import Port

PACKAGE = "user-mode-linux"
DELAY = "netem"  # keeps the links' delay
METRO = 0.010  # s; tc-cake(8) advises against a shorter rtt for links to the Internet, and on Linux's own timers
_TRIAL = {
    "netem": "delay 1ms",
    "tbf": "rate 1mbit burst 3028 limit 15140",
    "cake": "bandwidth 1mbit",
    "fq_codel": "",
    "dualpi2": "",
    "htb": "",
}


@dataclass(frozen=True)
class Peer:
    """A queue discipline of Linux as an access point: `kind` with its options, behind tbf unless it has a rate of its
    own. {rate} (bit/s), {limit} (packets) and {frames_us} (two full frames, us) stand for the port's, {rtt_us} for the
    round trip of the empty links, at least METRO. uplink: more options at the uplink; station: at a station's link.
    follows: its rate follows the link's
    (accesspoint.topologies.links.autorate)."""

    name: str
    title: str
    kind: str
    options: str
    shapes: bool = False
    uplink: str = ""
    station: str = ""
    follows: bool = False

    def commands(
        self, port: Port, uplink: bool, classes: Sequence[StationClass] = (), rtt: float = 0.0
    ) -> list[tuple[str, str]]:
        """Return what tc adds at the interface of a port's egress, and the words that follow `dev INTERFACE`. classes:
        of stations, for a discipline that has some. rtt: of the empty links (s)."""
        if self.kind == "htb":
            return station_classes.commands(port, uplink, classes)
        words = " ".join(filter(None, (self.kind, self.options, self.uplink if uplink else self.station)))
        frames_us = round(2e6 * 8 * FULL_FRAME / port.rate)
        own = words.format(rate=port.rate, limit=port.limit, frames_us=frames_us, rtt_us=round(max(METRO, rtt) * 1e6))
        if self.shapes:
            return [("qdisc", f"root {own}")]
        # Two full frames of burst; tbf's own limit is its default FIFO's, which the discipline takes the place of.
        bucket = f"root handle 1: tbf rate {port.rate}bit burst {2 * FULL_FRAME} limit {port.limit * FULL_FRAME}"
        return [("qdisc", bucket), ("qdisc", f"parent 1: {own}")]

    def needs(self) -> set[str]:
        """Return the disciplines that the kernel must have, in addition to its built-in FIFOs."""
        leaf = {"fq_codel"} if self.kind == "htb" else set()
        return ({self.kind, DELAY, *leaf} if self.shapes else {self.kind, DELAY, "tbf"}) - {"pfifo"}


PEERS = {
    peer.name: peer
    for peer in (
        Peer("tc-fifo", "FIFO behind tbf", "pfifo", "limit {limit}"),
        Peer("fq_codel", "fq_codel behind tbf", "fq_codel", ""),
        Peer("cake", "CAKE", "cake", "bandwidth {rate}bit raw", shapes=True),
        Peer("cake-ack-filter", "CAKE with its ACK filter", "cake", "bandwidth {rate}bit raw ack-filter", shapes=True),
        Peer(
            "cake-rtt", "CAKE with its ACK filter, and rtt 1s on the downlink", "cake",
            "bandwidth {rate}bit raw ack-filter", shapes=True, station="rtt 1s",
        ),
        Peer(
            "cake-hosts", "CAKE for stations", "cake", "bandwidth {rate}bit raw", shapes=True,
            uplink="ack-filter dual-srchost", station="dual-dsthost",
        ),
        Peer(
            "cake-path", "CAKE for stations, with the rtt of the links", "cake",
            "bandwidth {rate}bit raw rtt {rtt_us}us", shapes=True,
            uplink="ack-filter dual-srchost", station="dual-dsthost",
        ),
        Peer(
            "cake-autorate", "CAKE with its ACK filter, at a rate that follows the link", "cake",
            "bandwidth {rate}bit raw ack-filter", shapes=True, follows=True,
        ),
        Peer("dualpi2", "DualPI2 behind tbf", "dualpi2", ""),
        Peer(
            "fq_codel-l4s", "fq_codel behind tbf, marks ECT(1) after two frames", "fq_codel",
            "ce_threshold {frames_us}us ce_threshold_selector 1/3",
        ),
        Peer("htb", "HTB with a class for each station, in it fq_codel", "htb", "", shapes=True),
    )
}  # fmt: skip


def find(name: str) -> Peer:
    """Return the peer of that name. Raises LabError when it is unknown."""
    if name not in PEERS:
        raise LabError(f"peer '{name}' is unknown: choose one of {', '.join(PEERS)}")
    return PEERS[name]


def kernel_for(names: list[str]) -> kernel.Kernel | None:
    """The kernel to boot for these peers; None: the running one has all that they need. Raises LabError."""
    missing = sorted(kind for kind in set().union(*(find(name).needs() for name in names)) if not has(kind))
    if not missing:
        return None
    lacks = f"Linux {platform.release()} has no {', '.join(missing)}"
    if kernel.inside():
        raise LabError(f"{lacks}, which {', '.join(names)} needs")
    for other in (kernel.DEBIAN, kernel.with_radios()):
        if other.is_there():
            return other
    raise LabError(
        f"{lacks}, which {', '.join(names)} needs: install a user-mode kernel that has them with "
        f"`apt install {PACKAGE}` (180 MB)"
    )


@functools.cache
def has(kind: str) -> bool:
    """Return whether this kernel has a queue discipline, or can load it: tried in a network namespace of its own."""
    if not shutil.which("tc"):
        raise LabError("tc is missing: install it with `apt install iproute2`")
    words = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", kind, *_TRIAL[kind].split()]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
