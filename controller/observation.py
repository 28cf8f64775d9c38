# SPDX-License-Identifier: Apache-2.0
"""What the service sees of an access point: plain data, copied when asked for, cheap enough for every tick."""

from typing_extensions import TypedDict

TICK_BOUNDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25)
"""Upper bounds of the histogram of ticks, in seconds; one is due every 0.01."""


class ClassObservation(TypedDict):
    """One class of one port; counts are since the pipeline was pushed."""

    class_id: int
    feedback: float
    arriving_bps: float
    desired_bps: float
    arrived_packets: int
    arrived_bytes: int
    sent_packets: int
    sent_bytes: int
    filtered_packets: int
    marked_packets: int
    dropped_packets: int
    refused_packets: int


class PortObservation(TypedDict):
    """One port: its queue, what it feeds back, what it counted."""

    port: int
    role: str
    link: str
    """P4Runtime knows no carrier: `active` when something left within 10 s, `idle`, or `unknown` without a session."""
    last_active: float | None
    queue_packets: float
    queue_bytes: float
    delay_ms: float
    target_ms: float
    capacity_used_bps: float | None
    """What the port is regulated by: as configured, or as learned; None: nothing is known yet."""
    capacity_learned_bps: float | None
    """What left while the queue was never empty; None: it has not been so for long enough."""
    capacity_problem: str | None
    """That the link carries clearly less or more than is configured, and the mend."""
    flows_active: int
    device: float
    largest_flow: float
    classes: list[ClassObservation]


class Observation(TypedDict):
    """One access point."""

    name: str
    time: float
    """Seconds since the epoch."""
    state: str
    problem: str | None
    p4runtime_version: str | None
    sessions: int
    stations: int
    stations_refused: dict[str, int]
    """By reason, as `controller.agent.refusals` has them; and so flows."""
    flows: int
    flows_free: int
    flows_refused: dict[str, int]
    ticks: int
    late: int
    missed: int
    tick_ms_p50: float
    tick_ms_p99: float
    tick_counts: list[int]
    """How many took so long, by `TICK_BOUNDS`; the last ones took longer."""
    tick_seconds: float
    """What all of them took together."""
    ports: list[PortObservation]


class FlowObservation(TypedDict):
    """One flow; its three terms are probabilities that are added, and `feedback_total` is what a packet meets."""

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
    """Of its VLAN tags; 0: there is none."""
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
    feedback_total: float
    since: float


class StationObservation(TypedDict):
    """A MAC address behind a port."""

    address: str
    outer_vid: int
    inner_vid: int
    """Of the VLAN tags that it uses; 0: there is none. An address is learned in each VLAN apart."""
    port: int
    role: str
    since: float
    moves: int
