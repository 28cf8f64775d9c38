# SPDX-License-Identifier: Apache-2.0
"""One station: a MAC address in its VLAN, and the port that it is behind."""

from collections import deque
from dataclasses import dataclass, field


def format_mac(mac: int) -> str:
    """Return a MAC address as people write it."""
    return ":".join(f"{byte:02x}" for byte in mac.to_bytes(6))


@dataclass(slots=True)
class Station:
    """A MAC address behind a port; servers behind the uplink are learned the same way."""

    mac: int
    outer_vid: int
    inner_vid: int
    port: int
    since: float
    """Seconds since the epoch."""
    moves: int = 0
    moved: deque[float] = field(default_factory=deque)
    """Times of its recent moves between ports of one role, by the event loop's clock."""
    origin: int = 0
    """The port where it was before the moves in `moved` began."""
    confirmed: float = 0.0
    """Time at which the switch last had its entries, by the event loop's clock."""
    blocked: bool = False
    """True when its entry drops what is sent to it."""
    lane: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Its lane in its entries, with weight and rates up and down; 0: none."""

    @property
    def address(self) -> str:
        """The MAC address as people write it."""
        return format_mac(self.mac)


def station_number(mac: int, outer_vid: int, inner_vid: int) -> int:
    """Return a number for an address in its VLAN; these numbers are in the order of addresses."""
    return mac << 24 | outer_vid << 12 | inner_vid


def station_mac(number: int) -> int:
    """Return the address in a station's number."""
    return number >> 24
