# SPDX-License-Identifier: Apache-2.0
"""Answers of the API, in addition to `accesspoint.controller.observation`, and request bodies. Units are in names."""

from types import GenericAlias, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field, create_model
from typing_extensions import TypedDict

from ..config import (
    AccessPointConfig,
    ClassWeights,
    Features,
    FlowClass,
    Model,
    Name,
    Ncr,
    Port,
    Station,
    Weight,
)
from ..observation import PortObservation, StationObservation, UsageObservation
from ..state.store import Role


class LoopAnswer(TypedDict):
    """Timing of the loop."""

    ticks: int
    late: int
    """Ticks that began more than half an interval after they were due."""
    missed: int
    """Ticks that were skipped, because the next one was due already."""
    tick_ms_p50: float
    tick_ms_p99: float


class AccessPointAnswer(TypedDict):
    """One access point."""

    name: str
    revision: int
    """Desired revision: the number of the last change of it, or of the defaults."""
    revision_in_effect: int | None
    """The last revision that was in its switch completely; null: none since the start."""
    address: str
    device_id: int
    enabled: bool
    state: Literal["connecting", "backup", "ready", "stopped"]
    """backup: another controller is primary."""
    problem: str | None
    """Reason why it is not ready, or why the desired revision is not in effect, and the fix."""
    differs_since: float | None
    """Since when the two revisions differ, in seconds since the epoch; null: they do not, or another controller is
    primary."""
    p4runtime_version: str | None
    sessions: int
    features: Features
    stations: int
    flows: int
    flows_free: int
    loop: LoopAnswer


class PortAnswer(PortObservation):
    """One port, its queue and what it counted; `classes` has marks, drops and filtered ACKs."""

    capacity_bps: int | Literal["auto"]
    queue_limit: int
    regulated: bool


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


class FeedbackAnswer(TypedDict):
    """Feedback of a port: probabilities from 0 to 1 that are added for each packet."""

    port: int
    device: float
    classes: list[ClassFeedbackAnswer]
    largest_flow: float
    """The largest flow term; each flow's is among the flows."""


class CounterAnswer(TypedDict):
    """One cell of a counter; `index` is the class, or for `queued` the queue."""

    counter: str
    port: int
    index: int
    packets: int
    bytes: int


class MeasureAnswer(TypedDict):
    """A measure."""

    name: str
    """Name of its field in answers on access points, ports, classes and stations."""
    level: Literal["access_point", "port", "class", "station"]
    text: str
    unit: str
    counter: bool
    """Counts up; else it is a value of now."""
    metric: str | None
    """In /metrics, in base units."""
    history: list[str]
    """Its columns there."""


class PortHistory(TypedDict):
    """The samples of one port: columns of one length, in the order of `time` (seconds since the epoch)."""

    port: int
    columns: dict[str, list[float]]


class HistoryAnswer(TypedDict):
    """Means over `resolution` seconds; `_packets` of marks and the like are counts within it."""

    access_point: str
    resolution: int
    start: float
    end: float
    ports: list[PortHistory]


class StationHistoryAnswer(TypedDict):
    """Usage of a station within `resolution` seconds each, and its sum. Intervals without usage have no sample."""

    access_point: str
    station: str
    resolution: int
    start: float
    end: float
    columns: dict[str, list[float]]
    used: dict[str, float]
    """The sum of each column."""


class TokenAnswer(TypedDict):
    """A token without its secret, of which only a hash is kept."""

    id: str
    name: str
    role: Role
    created: float
    expires: float | None
    revoked: float | None


class NewTokenAnswer(TokenAnswer):
    """A new token with its secret, which is shown only once."""

    token: str


class SessionAnswer(TypedDict):
    """The token that asks."""

    name: str
    role: Role
    expires: float | None


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


class AgentAnswer(TypedDict):
    """An agent on a machine of its own: one that waits to be adopted, or that was."""

    id: str
    """Its public key."""
    access_point: str | None
    """Access point that it was adopted for."""
    name: str
    """Name of its access point, or the one that it asks for."""
    host: str | None
    offers: bool
    """True when it sends a configuration for its access point."""
    heard: float | None
    """Time of its last announcement, in seconds since the epoch."""
    adopted: float | None
    """Time of its adoption, in seconds since the epoch."""


class Adoption(Model):
    """Access point that an agent is adopted for."""

    access_point: Name


class RevisionAnswer(TypedDict):
    """Desired configuration of an access point from a moment on; `config` is as it was given, without defaults."""

    revision: int
    time: float
    actor: str
    config: dict[str, Any]


class SaidOfStation(TypedDict):
    """Settings of a MAC address, as in the configuration, and which are in effect."""

    name: str | None
    locked_port: int | None
    """The port that it is behind for ever."""
    blocked: bool
    """True: packets to it are dropped."""
    group: str | None
    weight: float
    limit_down_bps: int | None
    limit_up_bps: int | None
    weight_used: float
    """Weight in effect: its own, or that of its group; 1 behind the uplink."""
    limit_down_used_bps: int | None
    """Limit in effect: its own, or that of its group; none behind the uplink."""
    limit_up_used_bps: int | None


class StationAnswer(StationObservation, SaidOfStation):
    """A MAC address that was learned, its usage, and its settings."""


class OneStationAnswer(UsageObservation, SaidOfStation):
    """A MAC address: its settings, its usage, and where it was learned."""

    address: str
    seen: list[StationObservation]
    """In each of its VLANs; empty while disconnected."""


class HealthAnswer(TypedDict):
    """The process runs."""

    status: Literal["ok"]


class ReadyAnswer(TypedDict):
    """The service can do its work; the state of each access point is in its own answer."""

    status: Literal["ready"]
    access_points: int
    history: str
    """`ok`, or why samples wait in memory."""


class FlowPatch(Model):
    """Fields of a flow that can be changed."""

    weight: Weight | None = None
    flow_class: FlowClass | None = None


class NewToken(Model):
    """A token to be made."""

    name: Name
    role: Role
    expires_in: Annotated[float, Field(gt=0, le=10 * 366 * 86_400)] | None = 90 * 86_400
    """Seconds; null: never."""


class Login(Model):
    """Token that a browser gives for a session."""

    token: Annotated[str, Field(min_length=1, max_length=200)]


class Page(BaseModel):
    """A part of a long list; `X-Total-Count` is its length, `Link` leads to the next part (RFC 8288)."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0


PATCHES: dict[type[Model], type[Model]] = {}
"""Models that `partial` has made."""


def partial(model: type[Model], *without: str) -> type[Model]:
    """Return the model of a merge patch (RFC 7396): the same fields, also those of nested models, each optional and
    nullable."""
    made = PATCHES.get(model)
    if made is None:
        fields: dict[str, Any] = {
            name: (_partial_type(field.rebuild_annotation()) | None, None)
            for name, field in model.model_fields.items()
            if name not in without
        }
        made = PATCHES[model] = create_model(f"{model.__name__}Patch", __base__=Model, **fields)
        made.__doc__ = f"Fields to change; null resets a field to its default. {model.__doc__}"
    return made


def _partial_type(annotation: Any) -> Any:
    """Lists are replaced as a whole; models and dictionaries are merged."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Annotated[(_partial_type(arguments[0]), *arguments[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(map(_partial_type, arguments))]  # noqa: UP007
    if origin is dict:
        return GenericAlias(dict, (arguments[0], _partial_type(arguments[1]) | None))
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return partial(annotation)
    return annotation


NcrPatch = partial(Ncr)
StationPatch = partial(Station)
PortPatch = partial(Port, "port", "role", "isolated", "roaming")
FeaturesPatch = partial(Features)
ClassWeightsPatch = partial(ClassWeights)
AccessPointPatch = partial(AccessPointConfig, "name")
