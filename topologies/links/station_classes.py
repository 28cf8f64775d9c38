# SPDX-License-Identifier: Apache-2.0
"""Classes of stations by Linux's HTB: the peer of weights and limits, which CAKE has none of. Imports nothing of
Mininet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from accesspoint.topologies.links.addresses import of_station
from accesspoint.topologies.targets import Port

FULL_FRAME = 1514  # bytes
_BURST = f"burst {2 * FULL_FRAME} cburst {2 * FULL_FRAME} quantum {FULL_FRAME}"
_ALL, _OTHERS = "1:1", 0xFFF


@dataclass(frozen=True)
class StationClass:
    """Class of one station: `rate` is assured, up to `ceil` (bit/s) it borrows, as tc-htb(8) has it.

    down: at stations' links, of what it is sent; up: at the uplink, of what it sends.
    """

    station: int
    way: Literal["down", "up"]
    rate: int
    ceil: int


def commands(port: Port, uplink: bool, classes: Sequence[StationClass]) -> list[tuple[str, str]]:
    """Return what tc adds, and its words after `dev INTERFACE`: an HTB with a class for each station that has one, and
    one for all else, which share the rest; in each of them fq_codel."""
    own = [each for each in classes if (each.way == "up") == uplink]
    rest = max(port.rate - sum(each.rate for each in own), port.rate // 100)
    leaves = [(each.station, each.rate, min(each.ceil, port.rate)) for each in own] + [(_OTHERS, rest, port.rate)]
    found = [
        ("qdisc", f"root handle 1: htb default {_OTHERS:x}"),
        ("class", f"parent 1: classid {_ALL} htb rate {port.rate}bit ceil {port.rate}bit {_BURST}"),
    ]
    for number, rate, ceil in leaves:
        leaf = f"1:{number + 0x10:x}" if number != _OTHERS else f"1:{_OTHERS:x}"
        found.append(("class", f"parent {_ALL} classid {leaf} htb rate {rate}bit ceil {ceil}bit {_BURST}"))
        found.append(("qdisc", f"parent {leaf} fq_codel"))
    for each in own:
        address = of_station(each.station)["ip"].partition("/")[0]
        match = f"match ip {'src' if uplink else 'dst'} {address}/32"
        found.append(("filter", f"parent 1: protocol ip u32 {match} flowid 1:{each.station + 0x10:x}"))
    return found
