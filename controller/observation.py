# SPDX-License-Identifier: Apache-2.0
"""Observations of an access point for the service: plain data, copied on request, cheap enough for every tick.

Every measure stands in one list, `MEASURES`, once. REST, /metrics, history and the page follow it, so a measure is
added here and nowhere else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

TICK_BOUNDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25)
"""Upper bounds of the histogram of ticks, in seconds; one is due every 0.01."""
FULL = 65_535
"""A probability of 1 in the data plane, and in history."""
CLASS_COLUMNS = ("downlink", "uplink", "other")
"""Classes with columns of their own in history; `other` is all classes but the two built in."""

Unit = Literal["seconds", "milliseconds", "bits_per_second", "bytes", "packets", "flows", "ratio", "ticks", "stations"]
BASE: dict[Unit, float] = {"milliseconds": 1e3, "bits_per_second": 8}
"""Number of each unit in one of Prometheus' base units; 1 for the others."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure: of an access point, of each of its ports, each class of a port, or each station."""

    level: Literal["access_point", "port", "class", "station"]
    name: str
    """Name in REST and in the events that feed the page."""
    text: str
    """Description for people."""
    unit: Unit
    of: Callable[..., float | None]
    """Returns its value from a `ManagedAccessPoint`; for a port also from its `PortRegulator`, for a class also from
    its id. For a station it takes its `UsageObservation`."""
    metric: str = ""
    """Name in Prometheus; empty: it is not there."""
    counter: bool = False
    """Counts up since the pipeline was pushed; else it is a value of now."""
    optional: bool = False
    """True: it may be unknown."""
    column: str = ""
    """Column in history: means of current values, sums of counters. For classes `{}` stands for one of `CLASS_COLUMNS`;
    without it all classes are added."""
    grain: float = 1.0
    """Factor from the unit to history, which has whole numbers."""

    @property
    def answer_column(self) -> str:
        """Name of its column of history in an answer, where bytes of ports are rates."""
        if self.counter and self.level != "station":
            return self.column.removesuffix("bytes") + "bps" if self.unit == "bytes" else self.column
        return self.column.removesuffix("_us") + "_ms" if self.unit == "milliseconds" else self.column

    @property
    def columns(self) -> list[str]:
        """Names of its columns in history."""
        if not self.column:
            return []
        names = CLASS_COLUMNS if self.counter else CLASS_COLUMNS[:2]
        return [self.column.format(name) for name in names] if "{}" in self.column else [self.column]


def _volume(name: str) -> Callable[..., float]:
    def of(ap: Any, state: Any, class_id: int) -> int:
        counts: list[int] = getattr(state.volumes, name)
        return counts[class_id]

    return of


def _signal(place: int) -> Callable[..., float]:
    def of(ap: Any, state: Any, class_id: int) -> int:
        return ap.signals.get((state.port.port, class_id), (0, 0, 0))[place]

    return of


MEASURES: tuple[Measure, ...] = (
    Measure("access_point", "stations", "MAC addresses that are known", "stations",
            lambda ap: len(ap.stations.by_number), "ap_stations"),
    Measure("access_point", "stations_limit_missed", "Stations whose limit has been exceeded for 5 s", "stations",
            lambda ap: len({mac for mac, _ in ap.usage.misses.missed}), "ap_stations_limit_missed"),
    Measure("access_point", "flows", "Flows that are known", "flows", lambda ap: len(ap.flows.by_key), "ap_flows"),
    Measure("access_point", "flows_free", "Free flow entries", "flows",
            lambda ap: ap.flows.free, "ap_flows_free"),
    Measure("access_point", "ticks", "Ticks of the loop", "ticks", lambda ap: ap.loop.ticks, "ap_ticks", counter=True),
    Measure("access_point", "late", "Ticks that began late", "ticks",
            lambda ap: ap.loop.late, "ap_late_ticks", counter=True),
    Measure("access_point", "missed", "Ticks that were left out", "ticks",
            lambda ap: ap.loop.missed, "ap_missed_ticks", counter=True),
    Measure("port", "queue_packets", "Packets in the port's queue", "packets",
            lambda ap, state: state.estimate.packets, "ap_queue_packets", column="queue_packets"),
    Measure("port", "queue_bytes", "Bytes in the port's queue", "bytes", lambda ap, state: state.estimate.bytes),
    Measure("port", "delay_ms", "Delay of the port's queue", "milliseconds",
            lambda ap, state: state.delay * 1000, "ap_queue_delay_seconds", column="delay_us", grain=1e3),
    Measure("port", "target_ms", "Delay that feedback aims at", "milliseconds",
            lambda ap, state: state.target_delay * 1000, "ap_queue_target_seconds"),
    Measure("port", "capacity_used_bps", "Rate that the port is regulated by: as configured, or as learned",
            "bits_per_second", lambda ap, state: 8 * state.capacity or None, "ap_capacity_bytes_per_second",
            optional=True),
    Measure("port", "capacity_learned_bps", "Rate of departures while the queue was never empty", "bits_per_second",
            lambda ap, state: 8 * state.link.learned or None, "ap_capacity_learned_bytes_per_second", optional=True),
    Measure("port", "flows_active", "Flows with traffic through the port", "flows",
            lambda ap, state: len(state.active), "ap_active_flows", column="flows_active"),
    Measure("port", "device", "Device term, a probability", "ratio",
            lambda ap, state: state.feedback, "ap_device_feedback_ratio", column="feedback_device", grain=FULL),
    Measure("port", "largest_flow", "Largest flow term, a probability", "ratio",
            lambda ap, state: state.largest_flow_feedback, "ap_flow_feedback_ratio",
            column="feedback_flow", grain=FULL),
    Measure("class", "feedback", "Class term, a probability", "ratio",
            lambda ap, state, class_id: state.class_feedback.get(class_id, 0.0), "ap_class_feedback_ratio",
            column="feedback_{}", grain=FULL),
    Measure("class", "arriving_bps", "Arrivals that are not filtered", "bits_per_second",
            lambda ap, state, class_id: state.class_rates[class_id] * 8),
    Measure("class", "desired_bps", "Its share, as the law has it", "bits_per_second",
            lambda ap, state, class_id: state.class_desired[class_id] * 8),
    Measure("class", "arrived_packets", "Packets that joined the port's queue", "packets",
            _volume("arrived_packets"), counter=True),
    Measure("class", "arrived_bytes", "Bytes that joined the port's queue", "bytes",
            _volume("arrived_bytes"), "ap_arrived_bytes", counter=True, column="arrived_{}_bytes"),
    Measure("class", "sent_packets", "Packets that left through the port", "packets",
            _volume("sent_packets"), "ap_sent_packets", counter=True),
    Measure("class", "sent_bytes", "Bytes that left through the port", "bytes",
            _volume("sent_bytes"), "ap_sent_bytes", counter=True, column="sent_{}_bytes"),
    Measure("class", "filtered_packets", "Superseded ACKs not sent", "packets",
            _volume("filtered_packets"), "ap_filtered_packets", counter=True, column="filtered_packets"),
    Measure("class", "marked_packets", "Packets that got CE", "packets",
            _signal(0), "ap_marked_packets", counter=True, column="marked_packets"),
    Measure("class", "dropped_packets", "Packets dropped by feedback", "packets",
            _signal(1), "ap_dropped_packets", counter=True, column="dropped_packets"),
    Measure("class", "refused_packets", "Packets dropped by the gate", "packets",
            _signal(2), "ap_refused_packets", counter=True, column="refused_packets"),
    Measure("station", "bytes_down", "Bytes for the station, before anything is dropped", "bytes",
            lambda used: used["bytes_down"], counter=True, column="bytes_down"),
    Measure("station", "bytes_up", "Bytes that the station sent, before anything is dropped", "bytes",
            lambda used: used["bytes_up"], counter=True, column="bytes_up"),
)  # fmt: skip


def measures(level: str) -> Iterator[Measure]:
    """Return the measures of one level: access points, ports, classes or stations."""
    return (measure for measure in MEASURES if measure.level == level)


def measured(level: str, *of: object) -> dict[str, Any]:
    """Return the value of each measure of one level."""
    return {measure.name: measure.of(*of) for measure in measures(level)}


def history_columns(counter: bool) -> list[tuple[Measure, str]]:
    """Return the measures and columns of a port in history, either counters or current values."""
    of = [measure for measure in MEASURES if measure.counter == counter and measure.level in ("port", "class")]
    return [(measure, column) for measure in of for column in measure.columns]


def _fields(level: str) -> dict[str, Any]:
    """Return the measures as fields of an answer."""
    fields: dict[str, Any] = {}
    for measure in measures(level):
        whole = measure.counter or measure.unit in ("flows", "stations")
        kind: Any = int if whole else float
        fields[measure.name] = Annotated[kind | None if measure.optional else kind, Field(description=measure.text)]
    return fields


class UsageObservation(TypedDict):
    """Usage of a station, in flows that are known to be its own: sent by it (up) and to it (down) since it was first
    heard, and current rates; in all its VLANs, before anything is dropped."""

    packets_up: int
    bytes_up: int
    packets_down: int
    bytes_down: int
    rate_up_bps: float
    rate_down_bps: float
    limit_up_missed: bool
    limit_down_missed: bool
    """True: for 5 s more than its limit has passed, by 2 % or more."""


NOTHING_USED = UsageObservation(
    packets_up=0, bytes_up=0, packets_down=0, bytes_down=0, rate_up_bps=0.0, rate_down_bps=0.0,
    limit_up_missed=False, limit_down_missed=False,
)  # fmt: skip
"""The usage of a station that nothing is known of."""


def unseen_port(port: int, role: str) -> "PortObservation":
    """Return the observation of a port that nothing is known of."""
    nothing = {measure.name: None if measure.optional else 0 for measure in measures("port")}
    return PortObservation(
        port=port, role=role, link="unknown", last_active=None, **nothing, capacity_problem=None, target_reason=None,
        classes=[],
    )  # fmt: skip


class NamedObservation(UsageObservation):
    """A station with settings; its name may be empty."""

    address: str
    name: str


if TYPE_CHECKING:
    ClassObservation = dict[str, Any]
    PortObservation = dict[str, Any]
    Observation = dict[str, Any]
else:
    ClassObservation = TypedDict("ClassObservation", {"class_id": int, **_fields("class")})
    ClassObservation.__doc__ = "One class of one port; counts are since the pipeline was pushed."
    PortObservation = TypedDict(
        "PortObservation",
        {
            "port": int,
            "role": str,
            # `down` without a carrier, where the switch speaks gNMI; `active` when something left within 10 s, else
            # `idle`; `unknown` without a session.
            "link": str,
            "last_active": float | None,
            **_fields("port"),
            # Reason and fix, when the link carries clearly less or more than is configured.
            "capacity_problem": str | None,
            # Why `target_ms` is above the configured `queue_target_ms`.
            "target_reason": str | None,
            "classes": list[ClassObservation],
        },
    )
    PortObservation.__doc__ = "One port: its queue, what it feeds back, what it counted."
    Observation = TypedDict(
        "Observation",
        {
            "name": str,
            # Seconds since the epoch.
            "time": float,
            "state": str,
            "problem": str | None,
            "p4runtime_version": str | None,
            "sessions": int,
            # By reason, as `accesspoint.controller.agent.refusals` has them.
            "stations_refused": dict[str, int],
            "flows_refused": dict[str, int],
            "messages_lost": dict[str, int],
            "stations_named": list[NamedObservation],
            "tick_ms_p50": float,
            "tick_ms_p99": float,
            # Ticks by duration, in the intervals of `TICK_BOUNDS` and above; and the duration of all ticks.
            "tick_counts": Annotated[
                list[int], Field(min_length=len(TICK_BOUNDS) + 1, max_length=len(TICK_BOUNDS) + 1)
            ],
            "tick_seconds": float,
            **_fields("access_point"),
            "ports": list[PortObservation],
        },
    )
    Observation.__doc__ = "One access point."


class FlowObservation(TypedDict):
    """One flow; its terms are probabilities that are added, and `feedback_total` is what a packet meets."""

    flow_index: int
    generation: int
    src_addr: str
    dst_addr: str
    protocol: int
    src_port: int
    dst_port: int
    direction: str
    ingress_port: int
    egress_port: int
    outer_vid: int
    inner_vid: int
    """Ids of its VLAN tags; 0: none."""
    flow_class: int
    class_id: int
    weight: float
    packets: int
    bytes: int
    rate_bps: float
    active: bool
    feedback: float
    feedback_class: float
    feedback_device: float
    feedback_limit: float
    """Feedback that its station's limit adds."""
    feedback_total: float
    since: float


class StationObservation(UsageObservation):
    """A MAC address behind a port."""

    address: str
    outer_vid: int
    inner_vid: int
    """Ids of the VLAN tags that it uses; 0: none. An address is learned in each VLAN separately."""
    port: int
    role: str
    since: float
    moves: int
    host_name: str | None
    """Name that it gives itself in DHCP; anybody may give himself any."""
    randomised: bool
    """True: its address is locally administered, as phones make up for each network: name and limits do not follow."""
