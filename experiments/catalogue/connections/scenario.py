# SPDX-License-Identifier: Apache-2.0
"""Draws scenarios and the links that they are played on: functions of a seed and a number, and of nothing else."""

import math
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Literal

from accesspoint.topologies.links.profiles import LinkProfile

SEED = 1
LINKS = 12
MIN_DOWN, MAX_DOWN = 8e6, 200e6  # bit/s
MIN_RTT, MAX_RTT = 0.002, 0.3  # s
MIN_UP = 1_000_000  # bit/s
RATIOS = (2.0, 5.0, 10.0, 14.0)  # downlink over uplink; 14 is the testbed's
UP_BUFFER, DOWN_BUFFER = 0.2, 0.1  # s of packets that a full queue holds; a longer one makes the FIFO worse
MIN_LIMIT, MAX_LIMIT = 50, 1000  # packets
FRAME = 1514  # bytes

FAMILIES = (4, 6)
CONTROLS = ("cubic", "bbr", "reno", "dctcp")
ECN = ("off", "on", "accecn")
BUFFERS = (64 << 10, 256 << 10, None)  # bytes of SO_RCVBUF; None: the kernel's own
CLOSES = ("fin", "half", "rst")
DIRECTIONS = ("down", "up", "both")
AGES = (0.05, 0.5, 2.0, 35.0)  # s since the source port's last connection; a flow's entry ages after 30
OLD = 30.0  # s: such a pause is filled with other scenarios
PRIORS = (0.3, 1.5)  # s that the earlier connection of a reused port lasts
# bit/s at which Linux's first sequence numbers advance (one in 64 ns): a connection that was faster has numbers ahead
# of those of the next one between the same ports.
CLOCK_RATE = 8e9 / 64
TURNS = (0, 1, 3)  # questions and answers before the transfer, as of SMTP or MySQL
MIN_SHORT, MAX_SHORT = 500, 60_000  # bytes
MIN_LONG, MAX_LONG = 0.2, 0.5  # s of the link's rate

MODES = ("alone", "loaded")
Mode = Literal["alone", "loaded"]
"""`loaded`: while another station uploads."""


@dataclass(frozen=True)
class Scenario:
    """A connection between a station and the server, which the station opens.

    number, link: which one, and the link that it is played on (1 to LINKS). family: of IP. ecn: what both ends ask for.
    quick_acks: no ACK is delayed. keepalive: the connection idles for longer than the keepalive's time before the
    transfer. close: `fin` by the client, `half` when it has sent all, `rst` at the end. age: s since an earlier
    connection between the same ports was reset, which had carried data for `prior` s; None: new ports. down, up: bytes.
    buffer: SO_RCVBUF of both ends. first: who speaks first. turns: questions and answers before the transfer.
    """

    number: int
    link: int
    family: int
    cc: str
    mptcp: bool
    timestamps: bool
    sack: bool
    ecn: str
    quick_acks: bool
    keepalive: bool
    close: str
    age: float | None
    prior: float
    direction: str
    down: int
    up: int
    buffer: int | None
    first: str
    turns: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def waits(self) -> bool:
        """Return whether the source port has to rest for longer than other scenarios take."""
        return self.age is not None and self.age >= OLD

    def describe(self) -> str:
        """`IPv4 cubic down 1.2 MB, server first, 64 KiB, port reused after 0.05 s`"""
        sizes = {"down": (self.down,), "up": (self.up,), "both": (self.down, self.up)}[self.direction]
        way = {"both": "both ways"}.get(self.direction, self.direction)
        words = [
            f"IPv{self.family} {'MPTCP ' if self.mptcp else ''}{self.cc}",
            f"{way} {' and '.join(map(_size, sizes))}",
            f"{self.first} first" + (f", {self.turns} turns" if self.turns else ""),
            f"ECN {self.ecn}",
        ]
        words += [f"{self.buffer >> 10} KiB"] if self.buffer else []
        words += ["no timestamps"] if not self.timestamps else []
        words += ["no SACK"] if not self.sack else []
        words += ["quick ACKs"] if self.quick_acks else []
        words += ["keepalive"] if self.keepalive else []
        words += {"fin": [], "half": ["half-close"], "rst": ["RST"]}[self.close]
        words += [f"port reused after {self.age:g} s"] if self.age is not None else []
        return ", ".join(words)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def link(seed: int, number: int) -> LinkProfile:
    """Return the link of that number, 1 to LINKS: rates and round trips are spread evenly, and shuffled apart."""
    random = Random(f"links {seed}")
    downs, rtts = _spread(MIN_DOWN, MAX_DOWN), _spread(MIN_RTT, MAX_RTT)
    random.shuffle(downs)
    random.shuffle(rtts)
    ratios = [random.choice(RATIOS) for _ in range(LINKS)]
    down = round(downs[number - 1], -5)
    up = max(MIN_UP, round(down / ratios[number - 1], -5))
    return LinkProfile(
        f"link-{number}", round(down), round(up), rtt=round(rtts[number - 1], 3),
        down_limit=_limit(down, DOWN_BUFFER), up_limit=_limit(up, UP_BUFFER),
    )  # fmt: skip


def _spread(least: float, most: float) -> list[float]:
    return [least * (most / least) ** (place / (LINKS - 1)) for place in range(LINKS)]


def _limit(rate: float, seconds: float) -> int:
    return min(MAX_LIMIT, max(MIN_LIMIT, round(rate * seconds / 8 / FRAME)))


def scenario(seed: int, number: int) -> Scenario:
    """Return the scenario of that number, from 0."""
    random = Random(f"scenario {seed} {number}")
    place = number % LINKS + 1
    profile = link(seed, place)
    age = random.choices((None, *AGES), (62, 16, 11, 7, 4))[0]
    cc = random.choices(CONTROLS, (4, 3, 2, 1))[0]
    ecn = random.choice(ECN)
    direction = random.choices(DIRECTIONS, (45, 30, 25))[0]
    long = random.random() < 0.5
    buffer = random.choice(BUFFERS)
    most = 8 * buffer / profile.rtt if buffer else math.inf  # bit/s that the receive window lets pass
    return Scenario(
        number=number,
        link=place,
        family=random.choice(FAMILIES),
        cc=cc,
        # A port that MPTCP used rests in TIME_WAIT on some kernels, whatever ended the connection.
        mptcp=random.random() < 0.15 and age is None,
        timestamps=random.random() < 0.75,
        sack=random.random() < 0.8,
        # DCTCP without ECN is Reno.
        ecn="on" if cc == "dctcp" else ecn,
        quick_acks=random.random() < 0.3,
        keepalive=random.random() < 0.07,
        close=random.choice(CLOSES),
        age=age,
        prior=random.choices(PRIORS, (1, 3) if profile.down > CLOCK_RATE else (3, 1))[0],
        direction=direction,
        down=_bytes(random, min(profile.down, most), long) if direction != "up" else 0,
        up=_bytes(random, min(profile.up, most), long) if direction != "down" else 0,
        buffer=buffer,
        first=random.choice(("client", "server")),
        turns=random.choice(TURNS),
    )


def _bytes(random: Random, rate: float, long: bool) -> int:
    """A short transfer is of any size, a long one lasts."""
    if long:
        return round(rate / 8 * random.uniform(MIN_LONG, MAX_LONG))
    return round(math.exp(random.uniform(math.log(MIN_SHORT), math.log(MAX_SHORT))))


def of_link(seed: int, place: int, count: int, skipped: int = 0) -> list[Scenario]:
    """Return so many scenarios of a link, after its first ones."""
    return [scenario(seed, place - 1 + LINKS * index) for index in range(skipped, skipped + count)]
