# SPDX-License-Identifier: Apache-2.0
"""Link profiles: the rates, the delay and the queue limits of a lab's links, by name."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from accesspoint.topologies.links import traces

_RATE_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)

MIN_RATE, MAX_RATE = 8_000, 10 * 10**9  # bit/s; a slower link takes over a second for one packet
MAX_RTT = 10.0  # s


class ProfileError(ValueError):
    """An invalid link profile, or an invalid value of one: one line that names it and the fix."""


@dataclass(frozen=True)
class LinkProfile:
    """The links of a lab. Rates in bit/s, `rtt` (the base round trip) in s, queue limits in packets.

    shared: all stations are behind one port, as behind one radio, and share its rate `down` and its queue. Otherwise
    every station has a port, and so the rate `down`, of its own.

    A trace (a file, see accesspoint.topologies.links.traces) takes a rate's place on the link; the controller still
    goes by the rate.
    """

    name: str
    down: int
    up: int
    rtt: float = 0.004
    down_limit: int = 100
    up_limit: int = 1000
    shared: bool = False
    down_trace: str | None = None
    up_trace: str | None = None

    def describe(self) -> str:
        """Return the profile in words, as `14/1 Mb/s, 4 ms`."""
        played = "".join(
            f", {way} from {Path(trace).name}"
            for way, trace in (("down", self.down_trace), ("up", self.up_trace))
            if trace
        )
        return f"{self.down / 1e6:g}/{self.up / 1e6:g} Mb/s, {self.rtt * 1e3:g} ms{played}"

    def down_model(self) -> dict[str, object]:
        """Return the model of the link to a station, as `apswitch --link` takes it, with half of the base round
        trip."""
        return self._model(self.down, self.down_trace, self.down_limit)

    def up_model(self) -> dict[str, object]:
        """Return the model of the uplink, with the other half of the base round trip."""
        return self._model(self.up, self.up_trace, self.up_limit)

    def _model(self, rate: int, trace: str | None, limit: int) -> dict[str, object]:
        wire = {"trace": trace} if trace else {"rate": f"{rate}bit"}
        return {**wire, "limit": limit, "delay": f"{self.rtt * 1e6 / 2:.0f}us"}

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


# Rates: Kim et al., "Protecting Download Traffic from Upload Traffic over Asymmetric Wireless Links", sections 2 and 4.
# Its testbed's uplink buffer is 1000 packets.
PROFILES = {
    profile.name: profile
    for profile in (
        LinkProfile("testbed", 14_000_000, 1_000_000),
        LinkProfile("wlan", 3_500_000, 1_000_000),
        LinkProfile("wimax", 4_500_000, 1_500_000),
        LinkProfile("lte", 30_000_000, 15_000_000),
    )
}


def link_options(model: Mapping[str, object]) -> str:
    """Return a link's model as `apswitch --link` takes it."""
    return ",".join(f"{key}={value}" for key, value in model.items())


def parse_rate(text: str) -> int:
    """Return a rate in bit/s: `8mbit` -> 8000000. Raises ProfileError."""
    value = _quantity(text, _RATE_UNITS, "rate", "8mbit or 600kbit")
    if not MIN_RATE <= value <= MAX_RATE:
        raise ProfileError(f"rate '{text}' is out of range: give 8kbit to 10gbit")
    return round(value)


def parse_time(text: str) -> float:
    """Return a time in s: `20ms` -> 0.02. Raises ProfileError."""
    value = _quantity(text, _TIME_UNITS, "time", "20ms")
    if value > MAX_RTT:
        raise ProfileError(f"time '{text}' is out of range: give 0ms to {MAX_RTT:g}s")
    return value


def _quantity(text: str, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    match = _QUANTITY.fullmatch(text.strip())
    if not match or match[2].lower() not in units:
        raise ProfileError(f"{what} '{text}' is not a number with a unit ({', '.join(units)}): write it as {example}")
    return float(match[1]) * units[match[2].lower()]


def link_profile(
    name: str = "testbed",
    down: str | None = None,
    up: str | None = None,
    rtt: str | None = None,
    down_trace: Path | None = None,
    up_trace: Path | None = None,
) -> LinkProfile:
    """Return the named profile; a value that is given replaces the profile's own. Raises ProfileError."""
    if name not in PROFILES:
        raise ProfileError(f"link profile '{name}' is unknown: choose one of {', '.join(PROFILES)}")
    profile = PROFILES[name]
    changed = replace(
        profile,
        down=parse_rate(down) if down else profile.down,
        up=parse_rate(up) if up else profile.up,
        rtt=parse_time(rtt) if rtt else profile.rtt,
        down_trace=_trace(down_trace),
        up_trace=_trace(up_trace),
    )
    return changed if changed == profile else replace(changed, name=f"{name}-custom")


def _trace(path: Path | None) -> str | None:
    """A trace's path, from anywhere. Raises ProfileError when it cannot be played."""
    if path is None:
        return None
    try:
        traces.read(path)
    except traces.TraceError as error:
        raise ProfileError(str(error)) from None
    if "," in str(path.resolve()):
        raise ProfileError(f"{path}: a trace's path has no comma, which parts a link's settings: rename it")
    return str(path.resolve())
