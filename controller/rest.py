# SPDX-License-Identifier: Apache-2.0
"""The REST API, version 1; OpenAPI at /docs, Prometheus at /metrics.

    curl localhost:8080/api/v1/access-points
    curl localhost:8080/api/v1/access-points/ap1/feedback
    curl -X PATCH localhost:8080/api/v1/access-points/ap1/features -H 'content-type: application/json' \\
         -d '{"ncr": false}'

Handlers run beside the loop and only look at what it has left; long lists are given out in pages. Bad input is a 4xx
whose `detail` says what and where; a switch that is away is 503; one that refuses a change is 502, and the change is
taken back.
"""

import itertools
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any, TypeVar

import finsy as fy
import prometheus_client
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from .access_point import AccessPoint
from .classes import CLASS_NAMES, class_ids
from .config import ClassWeights, Features, Model, Ncr, Rule, one_line
from .connection import SessionError, State
from .flows import Flow
from .metrics import Collector
from .regulator import class_weight
from .rest_models import (
    AccessPointAnswer,
    ClassAnswer,
    ClassFeedbackAnswer,
    ClassWeightsPatch,
    CounterAnswer,
    FeaturesPatch,
    FeedbackAnswer,
    FlowAnswer,
    FlowPatch,
    LoopAnswer,
    NcrPatch,
    Page,
    PortAnswer,
    StationAnswer,
    merged,
)

PREFIX = "/api/v1/access-points"

M = TypeVar("M", bound=Model)


def create_app(access_points: Mapping[str, AccessPoint]) -> FastAPI:
    """The application over these access points."""
    app = FastAPI(title="Access point controller", version="1", description=__doc__)
    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector(access_points))

    @app.exception_handler(RequestValidationError)
    async def bad_request(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return JSONResponse({"detail": f"{place}: {first['msg']}"}, status_code=422)

    def find(name: str) -> AccessPoint:
        if name not in access_points:
            raise HTTPException(404, f"no access point {name}; there are: {', '.join(sorted(access_points))}")
        return access_points[name]

    Ap = Annotated[AccessPoint, Depends(find)]

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(prometheus_client.generate_latest(registry), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    @app.get(PREFIX)
    async def list_access_points() -> list[AccessPointAnswer]:
        """Every access point and how it is: `curl localhost:8080/api/v1/access-points`"""
        return [_access_point(ap) for ap in access_points.values()]

    @app.get(PREFIX + "/{name}")
    async def get_access_point(ap: Ap) -> AccessPointAnswer:
        """One access point."""
        return _access_point(ap)

    @app.get(PREFIX + "/{name}/stations")
    async def get_stations(ap: Ap, page: Annotated[Page, Query()]) -> list[StationAnswer]:
        """The MAC addresses that were learned, and behind which port."""
        stations = itertools.islice(ap.stations.by_mac.values(), page.offset, page.offset + page.limit)
        return [
            StationAnswer(
                address=station.address,
                port=station.port,
                role=port.role if (port := ap.config.port(station.port)) else "none",
                since=station.since,
                moves=station.moves,
            )
            for station in stations
        ]

    @app.get(PREFIX + "/{name}/flows")
    async def get_flows(ap: Ap, page: Annotated[Page, Query()], active: bool = False) -> list[FlowAnswer]:
        """The flows, or with `active=true` those with traffic: `curl '.../access-points/ap1/flows?limit=20'`"""
        busy = (state.active.values() for state in ap.loop.ports.values())
        flows = itertools.chain.from_iterable(busy) if active else ap.flows.by_index.values()
        return [_flow(flow) for flow in itertools.islice(flows, page.offset, page.offset + page.limit)]

    @app.patch(PREFIX + "/{name}/flows/{flow_index}")
    async def change_flow(ap: Ap, flow_index: int, patch: FlowPatch) -> FlowAnswer:
        """Change a flow's weight, or the class that it asks for: `-d '{"weight": 2}'`"""
        flow = ap.flows.by_index.get(flow_index)
        if flow is None:
            raise HTTPException(404, f"no flow has index {flow_index}")
        if patch.weight is not None:
            flow.weight = patch.weight
        if patch.flow_class is not None:
            await _to_switch(ap, ap.flows.set_class(ap.connection, flow, patch.flow_class))
        return _flow(flow)

    @app.get(PREFIX + "/{name}/classes")
    async def get_classes(ap: Ap) -> list[ClassAnswer]:
        """The classes in use, and what left of each."""
        return [_class(ap, class_id) for class_id in class_ids(ap.config)]

    @app.get(PREFIX + "/{name}/class-weights")
    async def get_class_weights(ap: Ap) -> ClassWeights:
        """What the classes are worth against each other."""
        return ap.config.class_weights

    @app.patch(PREFIX + "/{name}/class-weights")
    async def change_class_weights(ap: Ap, patch: ClassWeightsPatch) -> ClassWeights:  # type: ignore[valid-type]
        """Protect a class more or less: `-d '{"downlink": 8}'`"""
        ap.config.class_weights = _merged(ap.config.class_weights, patch)
        return ap.config.class_weights

    @app.get(PREFIX + "/{name}/rules")
    async def get_rules(ap: Ap) -> list[Rule]:
        """The operator's rules: which packets belong to which class and queue."""
        return ap.config.rules

    @app.put(PREFIX + "/{name}/rules/{rule}")
    async def put_rule(ap: Ap, rule: str, body: Rule) -> Rule:
        """Add or replace a rule: `-d '{"name": "voice", "dscp": 46, "class_id": 3, "queue": 6, "regulated": false}'`"""
        if body.name != rule:
            raise HTTPException(422, f"the path names rule {rule}, the body {body.name}")
        before = ap.config.rules
        await _change(ap, "rules", [*(old for old in before if old.name != rule), body])
        return body

    @app.delete(PREFIX + "/{name}/rules/{rule}", status_code=204)
    async def delete_rule(ap: Ap, rule: str) -> None:
        """Take a rule back."""
        left = [old for old in ap.config.rules if old.name != rule]
        if len(left) == len(ap.config.rules):
            raise HTTPException(404, f"no rule {rule}")
        await _change(ap, "rules", left)

    @app.get(PREFIX + "/{name}/features")
    async def get_features(ap: Ap) -> Features:
        """What is on."""
        return ap.config.features

    @app.patch(PREFIX + "/{name}/features")
    async def change_features(ap: Ap, patch: FeaturesPatch) -> Features:  # type: ignore[valid-type]
        """Turn features on or off: `-d '{"sparse": false, "gate": {"2": {"buffer": 100, "batch": 16}}}'`"""
        await _change(ap, "features", _merged(ap.config.features, patch))
        return ap.config.features

    @app.get(PREFIX + "/{name}/ncr")
    async def get_ncr(ap: Ap) -> Ncr:
        """The parameters of the feedback."""
        return ap.config.ncr

    @app.patch(PREFIX + "/{name}/ncr")
    async def change_ncr(ap: Ap, patch: NcrPatch) -> Ncr:  # type: ignore[valid-type]
        """Change parameters; the next tick uses them: `-d '{"queue_target_ms": 5}'`"""
        ap.config.ncr = _merged(ap.config.ncr, patch)
        return ap.config.ncr

    @app.get(PREFIX + "/{name}/ports")
    async def get_ports(ap: Ap) -> list[PortAnswer]:
        """The ports and what their queues hold."""
        return [
            PortAnswer(
                **state.port.model_dump(),
                queue_packets=state.estimate.packets,
                queue_bytes=state.estimate.bytes,
                delay_ms=state.estimate.delay * 1000,
                target_ms=state.target * 8000 / state.port.capacity_bps,
                flows_active=len(state.active),
            )
            for state in ap.loop.ports.values()
        ]

    @app.get(PREFIX + "/{name}/feedback")
    async def get_feedback(ap: Ap) -> list[FeedbackAnswer]:
        """What each port feeds back now."""
        return [
            FeedbackAnswer(
                port=number,
                device=state.feedback,
                classes=[
                    ClassFeedbackAnswer(
                        class_id=class_id,
                        feedback=feedback,
                        arriving_bps=state.class_rates[class_id] * 8,
                        desired_bps=state.class_terms.desired.get(class_id, 0.0) * 8,
                    )
                    for class_id, feedback in state.class_feedback.items()
                ],
                largest_flow=state.largest_flow_feedback,
            )
            for number, state in ap.loop.ports.items()
        ]

    @app.get(PREFIX + "/{name}/counters")
    async def get_counters(ap: Ap) -> list[CounterAnswer]:
        """All counters that are not 0, read from the switch now."""
        counters = await _to_switch(ap, ap.counters())
        return [
            CounterAnswer(counter=name, port=port, index=index, packets=packets, bytes=size)
            for (name, port, index), (packets, size) in counters.items()
            if packets
        ]

    # The first request must not pay for building the schema.
    app.openapi()
    return app


async def _to_switch(ap: AccessPoint, call: Any) -> Any:
    """Await something that needs the switch, and turn its failure into an answer."""
    if ap.connection.state != State.READY:
        call.close()
        raise HTTPException(503, ap.connection.problem or f"{ap.config.name}: not connected yet")
    try:
        return await call
    except SessionError as error:
        raise HTTPException(503, str(error)) from None
    except fy.P4ClientError as error:
        reasons = [error.message, *(detail.message for detail in error.details.values())]
        raise HTTPException(502, f"{ap.config.name}: the switch refuses: {'; '.join(filter(None, reasons))}") from None


async def _change(ap: AccessPoint, field: str, value: object) -> None:
    """Change the configuration and the switch, or neither."""
    before = getattr(ap.config, field)
    try:
        setattr(ap.config, field, value)
    except ValidationError as error:
        raise HTTPException(422, one_line(error)) from None
    if ap.connection.state == State.READY:
        try:
            await _to_switch(ap, ap.sync())
        except HTTPException:
            setattr(ap.config, field, before)
            raise


def _merged(current: M, patch: Model) -> M:
    try:
        return merged(current, patch)
    except ValidationError as error:
        raise HTTPException(422, one_line(error)) from None


def _access_point(ap: AccessPoint) -> AccessPointAnswer:
    durations = sorted(ap.loop.durations)

    def percentile(part: float) -> float:
        return durations[min(len(durations) - 1, int(part * len(durations)))] * 1000 if durations else 0.0

    return AccessPointAnswer(
        name=ap.config.name,
        address=ap.config.address,
        device_id=ap.config.device_id,
        state=ap.connection.state.value,
        problem=ap.connection.problem,
        p4runtime_version=ap.connection.p4runtime_version,
        sessions=ap.connection.sessions,
        features=ap.config.features,
        stations=len(ap.stations.by_mac),
        flows=len(ap.flows.by_key),
        flows_free=ap.flows.free,
        loop=LoopAnswer(
            ticks=ap.loop.ticks, late=ap.loop.late, tick_ms_p50=percentile(0.5), tick_ms_p99=percentile(0.99)
        ),
    )


def _flow(flow: Flow) -> FlowAnswer:
    key = flow.key
    return FlowAnswer(
        flow_index=flow.index,
        generation=flow.generation,
        src_addr=str(ip_address(key.src_addr)),
        dst_addr=str(ip_address(key.dst_addr)),
        protocol=key.protocol,
        src_port=key.src_port,
        dst_port=key.dst_port,
        direction=flow.direction,
        ingress_port=flow.ingress_port,
        egress_port=flow.egress_port,
        flow_class=flow.flow_class,
        class_id=flow.class_id,
        weight=flow.weight,
        packets=flow.packets,
        bytes=flow.bytes,
        rate_bps=flow.rate.value * 8,
        feedback=flow.feedback,
        since=flow.since,
    )


def _class(ap: AccessPoint, class_id: int) -> ClassAnswer:
    volumes = [state.volumes[class_id] for state in ap.loop.ports.values() if class_id in state.volumes]
    return ClassAnswer(
        class_id=class_id,
        name=CLASS_NAMES.get(class_id, "operator"),
        weight=class_weight(ap.config, class_id),
        sent_packets=sum(volume.sent_packets for volume in volumes),
        sent_bytes=sum(volume.sent_bytes for volume in volumes),
        filtered_packets=sum(volume.filtered_packets for volume in volumes),
    )
