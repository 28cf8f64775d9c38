# SPDX-License-Identifier: Apache-2.0
"""Request and answer bodies of the API. Made by `make client`; not edited by hand."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class AccessPointAnswer(TypedDict):
    """One access point."""

    name: str
    revision: int
    revision_in_effect: int | None
    address: str
    device_id: int
    enabled: bool
    state: Literal["connecting", "backup", "ready", "stopped"]
    problem: str | None
    differs_since: float | None
    p4runtime_version: str | None
    sessions: int
    features: Features
    stations: int
    flows: int
    flows_free: int
    loop: LoopAnswer


class AccessPointConfig(TypedDict):
    """One access point: a P4Runtime device and what to do with it."""

    name: str
    enabled: NotRequired[bool]
    address: NotRequired[str]
    tls: NotRequired[P4RuntimeTls | None]
    device_id: NotRequired[int]
    election_id: NotRequired[int]
    pipeline: NotRequired[Pipeline]
    ports: list[Port]
    features: NotRequired[Features]
    ncr: NotRequired[Ncr]
    class_weights: NotRequired[ClassWeights]
    sparse: NotRequired[Sparse]
    queue_shares: NotRequired[QueueShares]
    rules: NotRequired[list[Rule]]
    limits: NotRequired[Limits]
    stations: NotRequired[dict[str, Any]]
    groups: NotRequired[dict[str, Any]]
    flow_idle_timeout: NotRequired[float]
    station_idle_timeout: NotRequired[float]


class AccessPointConfigPatch(TypedDict):
    """Fields to change; null resets a field to its default. One access point: a P4Runtime device and what to
    do with it."""

    enabled: NotRequired[bool | None]
    address: NotRequired[str | None]
    tls: NotRequired[P4RuntimeTlsPatch | None]
    device_id: NotRequired[int | None]
    election_id: NotRequired[int | None]
    pipeline: NotRequired[PipelinePatch | None]
    ports: NotRequired[list[Port] | None]
    features: NotRequired[FeaturesPatch | None]
    ncr: NotRequired[NcrPatch | None]
    class_weights: NotRequired[ClassWeightsPatch | None]
    sparse: NotRequired[SparsePatch | None]
    queue_shares: NotRequired[QueueSharesPatch | None]
    rules: NotRequired[list[Rule] | None]
    limits: NotRequired[LimitsPatch | None]
    stations: NotRequired[dict[str, Any] | None]
    groups: NotRequired[dict[str, Any] | None]
    flow_idle_timeout: NotRequired[float | None]
    station_idle_timeout: NotRequired[float | None]


class Adoption(TypedDict):
    """Access point that an agent is adopted for."""

    access_point: str


class AgentAnswer(TypedDict):
    """An agent on a machine of its own: one that waits to be adopted, or that was."""

    id: str
    access_point: str | None
    name: str
    host: str | None
    offers: bool
    heard: float | None
    adopted: float | None


class AuditAnswer(TypedDict):
    """A line of the audit log."""

    id: int
    time: float
    actor: str
    client: str
    action: str
    path: str
    status: int
    change: Any


class ClassAnswer(TypedDict):
    """One class and what leaves of it, over all ports; `share` is its part of all that leaves, by bytes."""

    class_id: int
    name: str
    weight: float
    share: float
    sent_packets: int
    sent_bytes: int
    filtered_packets: int
    marked_packets: int
    dropped_packets: int


class ClassFeedbackAnswer(TypedDict):
    """The class term of one port."""

    class_id: int
    feedback: float
    arriving_bps: float
    desired_bps: float


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


class ClassWeights(TypedDict):
    """W_d and W_u of section 3.2.2; downlink above uplink protects downloads."""

    downlink: NotRequired[float]
    uplink: NotRequired[float]
    other: NotRequired[float]


class ClassWeightsPatch(TypedDict):
    """Fields to change; null resets a field to its default. W_d and W_u of section 3.2.2; downlink above
    uplink protects downloads."""

    downlink: NotRequired[float | None]
    uplink: NotRequired[float | None]
    other: NotRequired[float | None]


class CounterAnswer(TypedDict):
    """One cell of a counter; `index` is the class, or for `queued` the queue."""

    counter: str
    port: int
    index: int
    packets: int
    bytes: int


class Features(TypedDict):
    """Functions of the access point in addition to switching; with all off it is a plain learning switch."""

    ack_priority: NotRequired[bool]
    ack_filter: NotRequired[bool]
    sparse: NotRequired[bool]
    ncr: NotRequired[bool]
    gate: NotRequired[dict[str, Gate] | None]


class FeaturesPatch(TypedDict):
    """Fields to change; null resets a field to its default. Functions of the access point in addition to
    switching; with all off it is a plain learning switch."""

    ack_priority: NotRequired[bool | None]
    ack_filter: NotRequired[bool | None]
    sparse: NotRequired[bool | None]
    ncr: NotRequired[bool | None]
    gate: NotRequired[dict[str, GatePatch | None] | None]


class FeedbackAnswer(TypedDict):
    """Feedback of a port: probabilities from 0 to 1 that are added for each packet."""

    port: int
    device: float
    classes: list[ClassFeedbackAnswer]
    largest_flow: float


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
    feedback_total: float
    since: float


class FlowPatch(TypedDict):
    """Fields of a flow that can be changed."""

    weight: NotRequired[float | None]
    flow_class: NotRequired[int | None]


class Gate(TypedDict):
    """A FIFO that, once full, takes packets again only when a whole batch fits."""

    buffer: int
    batch: int


class GatePatch(TypedDict):
    """Fields to change; null resets a field to its default. A FIFO that, once full, takes packets again only
    when a whole batch fits."""

    buffer: NotRequired[int | None]
    batch: NotRequired[int | None]


class Group(TypedDict):
    """Weight and limits of each station that names the group; those of `default` are for stations that name
    none."""

    weight: NotRequired[float]
    limit_down_bps: NotRequired[int | None]
    limit_up_bps: NotRequired[int | None]


class GroupPatch(TypedDict):
    """Fields to change; null resets a field to its default. Weight and limits of each station that names the
    group; those of `default` are for stations that name none."""

    weight: NotRequired[float | None]
    limit_down_bps: NotRequired[int | None]
    limit_up_bps: NotRequired[int | None]


class HealthAnswer(TypedDict):
    """The process runs."""

    status: Literal["ok"]


class HistoryAnswer(TypedDict):
    """Means over `resolution` seconds; `_packets` of marks and the like are counts within it."""

    access_point: str
    resolution: int
    start: float
    end: float
    ports: list[PortHistory]


class Limits(TypedDict):
    """Bounds on what is learned from one port, so that nobody fills a table for all."""

    stations_per_port: NotRequired[int]
    flows_per_port: NotRequired[int]
    moves: NotRequired[int]


class LimitsPatch(TypedDict):
    """Fields to change; null resets a field to its default. Bounds on what is learned from one port, so that
    nobody fills a table for all."""

    stations_per_port: NotRequired[int | None]
    flows_per_port: NotRequired[int | None]
    moves: NotRequired[int | None]


class Login(TypedDict):
    """Token that a browser gives for a session."""

    token: str


class LoopAnswer(TypedDict):
    """Timing of the loop."""

    ticks: int
    late: int
    missed: int
    tick_ms_p50: float
    tick_ms_p99: float


class MeasureAnswer(TypedDict):
    """A measure."""

    name: str
    level: Literal["access_point", "port", "class", "station"]
    text: str
    unit: str
    counter: bool
    metric: str | None
    history: list[str]


class Ncr(TypedDict):
    """The law of feedback (NCR, section 3.2) and its parameters; `accesspoint.controller.law` has the effect
    of each and the reason for its default."""

    law: NotRequired[Literal["paper", "pi2"]]
    own: NotRequired[dict[str, float]]
    alpha: NotRequired[float]
    beta: NotRequired[float]
    gamma: NotRequired[float]
    kappa1: NotRequired[float]
    kappa2: NotRequired[float]
    flow_interval: NotRequired[float]
    device_interval: NotRequired[float]
    queue_target_ms: NotRequired[float]
    queue_target_packets: NotRequired[float]
    smoothing_ms: NotRequired[float]
    flow_limit: NotRequired[float]
    class_limit: NotRequired[float]
    device_limit: NotRequired[float]
    isolate_stations: NotRequired[bool]
    step_ms: NotRequired[float]
    mark_only: NotRequired[bool]


class NcrPatch(TypedDict):
    """Fields to change; null resets a field to its default. The law of feedback (NCR, section 3.2) and its
    parameters; `accesspoint.controller.law` has the effect of each and the reason for its default."""

    law: NotRequired[str | None]
    own: NotRequired[dict[str, float | None] | None]
    alpha: NotRequired[float | None]
    beta: NotRequired[float | None]
    gamma: NotRequired[float | None]
    kappa1: NotRequired[float | None]
    kappa2: NotRequired[float | None]
    flow_interval: NotRequired[float | None]
    device_interval: NotRequired[float | None]
    queue_target_ms: NotRequired[float | None]
    queue_target_packets: NotRequired[float | None]
    smoothing_ms: NotRequired[float | None]
    flow_limit: NotRequired[float | None]
    class_limit: NotRequired[float | None]
    device_limit: NotRequired[float | None]
    isolate_stations: NotRequired[bool | None]
    step_ms: NotRequired[float | None]
    mark_only: NotRequired[bool | None]


class NewToken(TypedDict):
    """A token to be made."""

    name: str
    role: Literal["viewer", "operator", "admin"]
    expires_in: NotRequired[float | None]


class NewTokenAnswer(TypedDict):
    """A new token with its secret, which is shown only once."""

    id: str
    name: str
    role: Literal["viewer", "operator", "admin"]
    created: float
    expires: float | None
    revoked: float | None
    token: str


class OneStationAnswer(TypedDict):
    """A MAC address: its settings, its usage, and where it was learned."""

    packets_up: int
    bytes_up: int
    packets_down: int
    bytes_down: int
    rate_up_bps: float
    rate_down_bps: float
    limit_up_missed: bool
    limit_down_missed: bool
    name: str | None
    locked_port: int | None
    blocked: bool
    group: str | None
    weight: float
    limit_down_bps: int | None
    limit_up_bps: int | None
    weight_used: float
    limit_down_used_bps: int | None
    limit_up_used_bps: int | None
    address: str
    seen: list[StationObservation]


class P4RuntimeTls(TypedDict):
    """Mutual TLS towards the switch: PEM files, read whenever a session begins."""

    ca: str
    cert: str
    key: str
    server_name: NotRequired[str | None]


class P4RuntimeTlsPatch(TypedDict):
    """Fields to change; null resets a field to its default. Mutual TLS towards the switch: PEM files, read
    whenever a session begins."""

    ca: NotRequired[str | None]
    cert: NotRequired[str | None]
    key: NotRequired[str | None]
    server_name: NotRequired[str | None]


class Period(TypedDict):
    """Another rate from one time of day to another, by the clock of the access point's machine."""

    start: str
    end: str
    days: NotRequired[list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]] | None]
    capacity_bps: int | Literal["auto"]


class Pipeline(TypedDict):
    """The compiled program; paths are relative to the working directory."""

    p4info: NotRequired[str]
    device_config: NotRequired[str]


class PipelinePatch(TypedDict):
    """Fields to change; null resets a field to its default. The compiled program; paths are relative to the
    working directory."""

    p4info: NotRequired[str | None]
    device_config: NotRequired[str | None]


class Port(TypedDict):
    """One port of the access point."""

    port: int
    role: Literal["station", "uplink"]
    capacity_bps: int | Literal["auto"]
    queue_limit: NotRequired[int]
    isolated: NotRequired[bool]
    roaming: NotRequired[bool]
    regulated: NotRequired[bool]
    schedule: NotRequired[list[Period]]


class PortAnswer(TypedDict):
    """One port, its queue and what it counted; `classes` has marks, drops and filtered ACKs."""

    port: int
    role: str
    link: str
    last_active: float | None
    queue_packets: float
    queue_bytes: float
    delay_ms: float
    target_ms: float
    capacity_used_bps: float | None
    capacity_learned_bps: float | None
    flows_active: int
    device: float
    largest_flow: float
    capacity_problem: str | None
    target_reason: str | None
    classes: list[ClassObservation]
    capacity_bps: int | Literal["auto"]
    queue_limit: int
    regulated: bool


class PortHistory(TypedDict):
    """The samples of one port: columns of one length, in the order of `time` (seconds since the epoch)."""

    port: int
    columns: dict[str, list[float]]


class PortPatch(TypedDict):
    """Fields to change; null resets a field to its default. One port of the access point."""

    capacity_bps: NotRequired[int | Literal["auto"] | None]
    queue_limit: NotRequired[int | None]
    regulated: NotRequired[bool | None]
    schedule: NotRequired[list[Period] | None]


class Problem(TypedDict):
    """An error (RFC 9457); `type` is `about:blank`, as the status says all that a program needs."""

    type: NotRequired[str]
    title: str
    status: int
    detail: str
    instance: NotRequired[str | None]


class QueueShares(TypedDict):
    """Share of a port's capacity that each priority queue may use; packets above it join the bulk. New flows
    have a tenth."""

    acks: NotRequired[float]
    sparse: NotRequired[float]
    scalable: NotRequired[float]
    control: NotRequired[float]


class QueueSharesPatch(TypedDict):
    """Fields to change; null resets a field to its default. Share of a port's capacity that each priority
    queue may use; packets above it join the bulk. New flows have a tenth."""

    acks: NotRequired[float | None]
    sparse: NotRequired[float | None]
    scalable: NotRequired[float | None]
    control: NotRequired[float | None]


class ReadyAnswer(TypedDict):
    """The service can do its work; the state of each access point is in its own answer."""

    status: Literal["ready"]
    access_points: int
    history: str


class RevisionAnswer(TypedDict):
    """Desired configuration of an access point from a moment on; `config` is as it was given, without
    defaults."""

    revision: int
    time: float
    actor: str
    config: dict[str, Any]


class Rule(TypedDict):
    """An entry of `classify`: a packet that matches belongs to `class_id`. A missing field matches
    everything."""

    name: str
    priority: NotRequired[int]
    direction: NotRequired[Literal["local", "uplink", "downlink"] | None]
    flow_class: NotRequired[int | None]
    dscp: NotRequired[int | None]
    protocol: NotRequired[int | None]
    src_port: NotRequired[list[int] | None]
    dst_port: NotRequired[list[int] | None]
    pure_ack: NotRequired[bool | None]
    sparse: NotRequired[bool | None]
    known_flow: NotRequired[bool | None]
    class_id: int
    queue: NotRequired[int]
    regulated: NotRequired[bool]


class SessionAnswer(TypedDict):
    """The token that asks."""

    name: str
    role: Literal["viewer", "operator", "admin"]
    expires: float | None


class Sparse(TypedDict):
    """Definition of a sparse flow: one within the largest of three rates, of which the third is 32 kbit/s."""

    fair_share: NotRequired[float]
    share: NotRequired[float]
    max_thinned: NotRequired[float]


class SparsePatch(TypedDict):
    """Fields to change; null resets a field to its default. Definition of a sparse flow: one within the
    largest of three rates, of which the third is 32 kbit/s."""

    fair_share: NotRequired[float | None]
    share: NotRequired[float | None]
    max_thinned: NotRequired[float | None]


class Station(TypedDict):
    """Settings of a MAC address. Its own weight and limits come before those of its group."""

    weight: NotRequired[float]
    limit_down_bps: NotRequired[int | None]
    limit_up_bps: NotRequired[int | None]
    name: NotRequired[str | None]
    locked_port: NotRequired[int | None]
    blocked: NotRequired[bool]
    group: NotRequired[str | None]


class StationAnswer(TypedDict):
    """A MAC address that was learned, its usage, and its settings."""

    packets_up: int
    bytes_up: int
    packets_down: int
    bytes_down: int
    rate_up_bps: float
    rate_down_bps: float
    limit_up_missed: bool
    limit_down_missed: bool
    address: str
    outer_vid: int
    inner_vid: int
    port: int
    role: str
    since: float
    moves: int
    host_name: str | None
    randomised: bool
    name: str | None
    locked_port: int | None
    blocked: bool
    group: str | None
    weight: float
    limit_down_bps: int | None
    limit_up_bps: int | None
    weight_used: float
    limit_down_used_bps: int | None
    limit_up_used_bps: int | None


class StationHistoryAnswer(TypedDict):
    """Usage of a station within `resolution` seconds each, and its sum. Intervals without usage have no
    sample."""

    access_point: str
    station: str
    resolution: int
    start: float
    end: float
    columns: dict[str, list[float]]
    used: dict[str, float]


class StationObservation(TypedDict):
    """A MAC address behind a port."""

    packets_up: int
    bytes_up: int
    packets_down: int
    bytes_down: int
    rate_up_bps: float
    rate_down_bps: float
    limit_up_missed: bool
    limit_down_missed: bool
    address: str
    outer_vid: int
    inner_vid: int
    port: int
    role: str
    since: float
    moves: int
    host_name: str | None
    randomised: bool


class StationPatch(TypedDict):
    """Fields to change; null resets a field to its default. Settings of a MAC address. Its own weight and
    limits come before those of its group."""

    weight: NotRequired[float | None]
    limit_down_bps: NotRequired[int | None]
    limit_up_bps: NotRequired[int | None]
    name: NotRequired[str | None]
    locked_port: NotRequired[int | None]
    blocked: NotRequired[bool | None]
    group: NotRequired[str | None]


class TokenAnswer(TypedDict):
    """A token without its secret, of which only a hash is kept."""

    id: str
    name: str
    role: Literal["viewer", "operator", "admin"]
    created: float
    expires: float | None
    revoked: float | None
