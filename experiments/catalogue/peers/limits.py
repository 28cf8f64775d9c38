# SPDX-License-Identifier: Apache-2.0
"""Limits of stations: what two of them get of links that have more, whatever they send."""

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from accesspoint.experiments.catalogue.peers import (
    DIFFERENCES,
    FIFO,
    OUR_ARM,
    PEER_ARMS,
    PEERS,
    SET_ARMS,
    by_classes,
    ping_added,
)
from accesspoint.experiments.experiment import Arm, Experiment, Goal, Measure, Medians, Point, Quick, Timeline
from accesspoint.experiments.measure.run_data import Of, Raw, mean, rate, windows
from accesspoint.experiments.scenes import steady
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.addresses import of_station
from accesspoint.topologies.links.profiles import PROFILES
from accesspoint.topologies.links.station_classes import StationClass

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

SECONDS, SETTLED, WINDOW = 31, 5, 5
"""s: of the timeline, whose last one iperf3 does not report; from when on counts; in every so many."""
TESTBED = PROFILES["testbed"]
DOWN, UP = 1, 2
"""Stations: one has a limit of what it is sent, one of what it sends."""
LIMITS = {"down": 2.0, "up": 0.3}  # Mb/s of Ethernet frames
FLOWS = {"tcp-1": 1, "tcp-4": 4, "tcp-32": 32}
UDP = "udp"
TRAFFIC = (*FLOWS, UDP)
ECN = ("on", "off")
RTTS = (2, 20, 100)  # ms
IN_FRAMES = {**dict.fromkeys(FLOWS, 1514 / 1448), UDP: steady.FRAME / steady.PAYLOAD}
"""Octets of Ethernet, IP and TCP or UDP for each of payload: limits are of frames."""
PORT = "5004"
Way = Literal["down", "up"]


@dataclass(frozen=True)
class Steady:
    """Datagrams at the rate of the link, over the whole timeline, ECN-capable or not, of a sender that answers to
    nothing. Samples are `rate_mbps` of source `name`."""

    name: Way
    station: int
    ecn: bool

    def prepare(self, stage: "Stage") -> None:
        words = (sys.executable, "-m", "accesspoint.experiments.scenes.steady")
        sender, receiver = stage.ends(self.name, self.station)
        receive = (*words, "receive", receiver.IP(), receiver.IP(), PORT)
        stage.program(receiver, *receive, take=lambda line: stage.take_rate(line, self.name)).await_line("ready")
        rate = getattr(TESTBED, self.name)
        send = (*words, "send", sender.IP(), receiver.IP(), PORT, str(rate), str(stage.seconds))
        ecn = str(steady.ECT0 if self.ecn else steady.NOT_ECT)

        def begin() -> None:
            stage.program(sender, *send, ecn, may_end=True)

        stage.at(0.0, begin)


@dataclass(frozen=True)
class OnTheWire:
    """All frames of a station's direction as they reach the other end, also those that TCP sent twice. Samples are
    `rate_mbps` of source `name`."""

    name: str
    way: Way
    station: int

    def prepare(self, stage: "Stage") -> None:
        sender, receiver = stage.ends(self.way, self.station)
        words = (sys.executable, "-m", "accesspoint.experiments.scenes.wire", str(receiver.defaultIntf()), sender.IP())
        stage.program(receiver, *words, take=lambda line: stage.take_rate(line, self.name)).await_line("ready")


def _scene(point: Point, arm: Arm) -> AccessPoint:
    traffic, rtt = str(point["traffic"]), float(point["rtt"])
    ways: tuple[tuple[Way, int], ...] = (("down", DOWN), ("up", UP))
    flows: tuple[Flow | Steady, ...]
    if traffic == UDP:
        flows = tuple(Steady(way, station, point["ecn"] == "on") for way, station in ways)
    else:
        flows = tuple(
            Flow(way, way, station=station, streams=FLOWS[traffic], cwnd_limited=False) for way, station in ways
        )
    profile = replace(TESTBED, name=f"testbed-{rtt:g}ms", rtt=rtt / 1000)
    wires = (OnTheWire(f"wire-{way}", way, station) for way, station in ways)
    return AccessPoint(profile, SECONDS, (*flows, *wires), stations=2, peers=(*PEERS, "htb"))


def _by_limit(name: str, way: Way, pick: Literal["least", "most"], raw: Raw) -> float:
    """Return the least or the most of a source in any window, by the limit."""
    return (min if pick == "least" else max)(windows(raw, name, SETTLED, SECONDS - 1, WINDOW)) / LIMITS[way]


def of_limit(way: Way, pick: Literal["least", "most"]) -> Of:
    """Return the least or the most that a station gets in any window, in frames, by its limit."""
    return lambda raw: _by_limit(way, way, pick, raw) * IN_FRAMES[str((raw.point or {})["traffic"])]


def on_the_wire(way: Way, pick: Literal["least", "most"]) -> Of:
    """Return the least or the most of a station's frames that arrive in any window, by its limit."""
    return lambda raw: _by_limit(f"wire-{way}", way, pick, raw)


def _points(traffic: str) -> list[dict[str, str | int]]:
    return [{"traffic": traffic, "ecn": ecn, "rtt": rtt} for ecn in ECN for rtt in RTTS]


def _goals(traffic: str, way: Way) -> tuple[Goal, Goal]:
    def worst(medians: Medians, pick: Literal["least", "most"]) -> float:
        found = (medians(f"{way}_{pick}", "ours", **point) for point in _points(traffic))
        return float((min if pick == "least" else max)(found))

    return (
        Goal(
            f"{traffic}, {way}: in every {WINDOW} s a station has at least {{value}} of its limit (at least {{limit}})",
            lambda medians: worst(medians, "least"), at_least=0.9,
        ),
        Goal(
            f"{traffic}, {way}: in every {WINDOW} s a station has at most {{value}} of its limit (at most {{limit}})",
            lambda medians: worst(medians, "most"), at_most=1.02,
        ),
    )  # fmt: skip


LIMITED = {
    "stations": {
        of_station(DOWN)["mac"]: {"limit_down_bps": round(LIMITS["down"] * 1e6)},
        of_station(UP)["mac"]: {"limit_up_bps": round(LIMITS["up"] * 1e6)},
    }
}
CLASSES = (
    StationClass(DOWN, "down", round(LIMITS["down"] * 1e6), round(LIMITS["down"] * 1e6)),
    StationClass(UP, "up", round(LIMITS["up"] * 1e6), round(LIMITS["up"] * 1e6)),
)

EXPERIMENT = Experiment(
    name="limits",
    title="Stations with limits",
    paper="none: the settings of stations (docs/controller/stations.md)",
    question="Does a limit of a station hold for few and many flows, with and without ECN, over short and long paths, "
    "and against a sender that answers to nothing?",
    scene=_scene,
    arms=(FIFO, *PEER_ARMS, by_classes(*CLASSES), replace(OUR_ARM, controller=LIMITED)),
    measures=(
        *(
            Measure(f"{way}_{pick}", "", f"{way}: {pick} in any {WINDOW} s, by the limit", of_limit(way, pick))
            for way in ("down", "up")
            for pick in ("least", "most")
        ),
        *(
            Measure(
                f"wire_{way}_{pick}", "", f"{way}: {pick} on the wire in any {WINDOW} s, by the limit",
                on_the_wire(way, pick),
            )
            for way in ("down", "up")
            for pick in ("least", "most")
        ),
        Measure("down", "Mb/s", "download of payload", rate("down", SETTLED)),
        Measure("up", "Mb/s", "upload of payload", rate("up", SETTLED)),
        Measure("ping_mean", "ms", "ping of the station that downloads, mean", mean("ping_ms", SETTLED), "{:.1f}"),
        ping_added(SETTLED),
    ),
    sweep={"traffic": TRAFFIC, "ecn": ECN, "rtt": RTTS},
    goals=tuple(goal for traffic in TRAFFIC for way in ("down", "up") for goal in _goals(traffic, way)),
    figures=tuple(
        Timeline(
            f"over-time-{traffic}", f"Throughput over time: {traffic}, ECN on, 20 ms.", ("down", "up"),
            point={"traffic": traffic, "ecn": "on", "rtt": 20}, log=True,
        )
        for traffic in TRAFFIC
    ),
    repeats=5,
    quick=Quick(arms=SET_ARMS),
    apart=True,  # 24 points of four arms
    differences=(
        *DIFFERENCES,
        f"one station may be sent {LIMITS['down']:g} Mb/s, another may send {LIMITS['up']:g}, on links of 14 and 1",
        "udp: full frames at the links' rates, which nothing slows down; with ECN they say that they are ECN-capable",
        "CAKE has no limits of hosts: it shows what stations have without. HTB has a class with each limit as its ceil",
        "a rate of payload counts by 1514/1448 (TCP) and 1514/1472 (UDP): limits are of Ethernet frames",
        "payload of TCP counts when it is in order, so what follows a lost segment counts when that is there; on the "
        "wire are all frames of the station's direction as they arrive, ACKs and what is sent again with them",
    ),
    clock=VIRTUAL,
)  # fmt: skip
