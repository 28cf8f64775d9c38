# SPDX-License-Identifier: Apache-2.0
"""What the REST API answers with, and the partial bodies that PATCH takes. Units are in the names."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model

from .config import ClassId, ClassWeights, Features, Model, Ncr, Weight

M = TypeVar("M", bound=Model)


class Answer(BaseModel):
    """A response."""

    model_config = ConfigDict(extra="forbid")


class LoopAnswer(Answer):
    """How the loop keeps time."""

    ticks: int
    late: int
    """Ticks that started late because the one before took too long."""
    tick_ms_p50: float
    tick_ms_p99: float


class AccessPointAnswer(Answer):
    """One access point."""

    name: str
    address: str
    device_id: int
    state: str
    """connecting, backup (another controller is primary), ready, or stopped."""
    problem: str | None
    """What keeps it from being ready, and the mend."""
    p4runtime_version: str | None
    sessions: int
    features: Features
    stations: int
    flows: int
    flows_free: int
    loop: LoopAnswer


class StationAnswer(Answer):
    """A MAC address behind a port."""

    address: str
    port: int
    role: str
    """station, or uplink for what is behind the uplink."""
    since: float
    """Seconds since the epoch."""
    moves: int


class FlowAnswer(Answer):
    """One direction of a 5-tuple."""

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
    flow_class: int
    class_id: int
    weight: float
    packets: int
    bytes: int
    rate_bps: float
    feedback: float
    since: float


class ClassAnswer(Answer):
    """One class and what leaves of it, over all ports."""

    class_id: int
    name: str
    weight: float
    sent_packets: int
    sent_bytes: int
    filtered_packets: int


class ClassFeedbackAnswer(Answer):
    """The class term of one port."""

    class_id: int
    feedback: float
    arriving_bps: float
    desired_bps: float


class PortAnswer(Answer):
    """One port and its queue."""

    port: int
    role: str
    capacity_bps: int
    queue_limit: int
    regulated: bool
    queue_packets: float
    queue_bytes: float
    delay_ms: float
    target_ms: float
    flows_active: int


class FeedbackAnswer(Answer):
    """What a port feeds back: probabilities from 0 to 1 that are added for each packet."""

    port: int
    device: float
    classes: list[ClassFeedbackAnswer]
    largest_flow: float
    """The largest flow term; each flow's is among the flows."""


class CounterAnswer(Answer):
    """One cell of a counter; `index` is the class, or for `queued` the queue."""

    counter: str
    port: int
    index: int
    packets: int
    bytes: int


class FlowPatch(Model):
    """What can be changed of a flow."""

    weight: Weight | None = None
    flow_class: ClassId | None = None


class Page(BaseModel):
    """A part of a long list: answers never keep the loop waiting."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    offset: Annotated[int, Field(ge=0)] = 0


def partial(model: type[Model]) -> type[Model]:
    """The same fields, each of which may be left out."""
    fields = {name: (field.rebuild_annotation() | None, None) for name, field in model.model_fields.items()}
    return create_model(f"{model.__name__}Patch", __base__=Model, **fields)  # type: ignore[call-overload]


NcrPatch = partial(Ncr)
FeaturesPatch = partial(Features)
ClassWeightsPatch = partial(ClassWeights)


def merged(current: M, patch: Model) -> M:
    """`current` with what the patch sets; raises `pydantic.ValidationError`."""
    return type(current).model_validate({**current.model_dump(), **patch.model_dump(exclude_unset=True)})
