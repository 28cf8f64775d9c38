# SPDX-License-Identifier: Apache-2.0
"""State of access points: ports, queues, feedback, classes, stations, flows, counters; and their history."""

import heapq
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, BeforeValidator

from ..agent.classes import CLASS_NAMES
from ..agent.reconciler import Refused
from ..agent.regulator import class_weight
from ..config import AccessPointConfig, ClassId, Station, StationAddress
from ..observation import (
    MEASURES,
    NOTHING_USED,
    ClassObservation,
    FlowObservation,
    Observation,
    StationObservation,
    unseen_port,
)
from ..samples import HOUR, RETENTION, STATION_RETENTION
from ..state.history import MAX_SAMPLES, answer_columns, resolution_for
from .access_points import AP
from .http import (
    PREFIX,
    ApName,
    Asked,
    Serving,
    answered,
    change_of,
    page_of,
    patched,
    require_match,
    router_of,
    weakly_tagged,
)
from .models import (
    ClassAnswer,
    ClassFeedbackAnswer,
    CounterAnswer,
    FeedbackAnswer,
    FlowPatch,
    HistoryAnswer,
    MeasureAnswer,
    OneStationAnswer,
    Page,
    PortAnswer,
    PortHistory,
    PortPatch,
    StationAnswer,
    StationHistoryAnswer,
    StationPatch,
)
from .problems import ProblemError, changes, responses
from .service import Service

router = router_of("live")

PortPath = Annotated[int, Path(ge=0, lt=510, description="The number of a port.", examples=[2])]
StationPath = Annotated[
    StationAddress, Path(description="A MAC address, in lower case.", examples=["02:00:00:00:00:0b"])
]
Start = Annotated[
    float | None, Query(ge=-1e10, le=1e11, description="Seconds since the epoch, or below 0: before now.")
]
End = Annotated[float | None, Query(ge=-1e10, le=1e11, description="As `start`; without it, now.")]
_NUMBER = BeforeValidator(lambda given: int(given) if isinstance(given, str) and given.isdecimal() else given)
FlowPath = Annotated[int, Path(ge=0, le=65_535, description="The index of a flow.", examples=[17])]


def ports_of(config: AccessPointConfig, seen: Observation) -> list[PortAnswer]:
    """Return the ports with the configuration of each; one that does not run yet has counted nothing."""
    found = {port["port"]: port for port in seen["ports"]}
    return [
        PortAnswer(
            **(found.get(wanted.port) or unseen_port(wanted.port, wanted.role)),
            capacity_bps=wanted.capacity_bps,
            queue_limit=wanted.queue_limit,
            regulated=wanted.regulated,
        )
        for wanted in config.ports
    ]


def feedback_of(seen: Observation) -> list[FeedbackAnswer]:
    """Return the feedback of each port."""
    return [
        FeedbackAnswer(
            port=port["port"],
            device=port["device"],
            classes=[
                ClassFeedbackAnswer(
                    class_id=entry["class_id"],
                    feedback=entry["feedback"],
                    arriving_bps=entry["arriving_bps"],
                    desired_bps=entry["desired_bps"],
                )
                for entry in port["classes"]
            ],
            largest_flow=port["largest_flow"],
        )
        for port in seen["ports"]
    ]


def classes_of(config: AccessPointConfig, seen: Observation) -> list[ClassAnswer]:
    """Return the classes over all ports."""
    by_class: dict[int, list[ClassObservation]] = {}
    for port in seen["ports"]:
        for entry in port["classes"]:
            by_class.setdefault(entry["class_id"], []).append(entry)
    total = sum(entry["sent_bytes"] for entries in by_class.values() for entry in entries)
    return [
        ClassAnswer(
            class_id=class_id,
            name=CLASS_NAMES.get(class_id, "operator"),
            weight=class_weight(config, class_id),
            share=sum(entry["sent_bytes"] for entry in entries) / total if total else 0.0,
            sent_packets=sum(entry["sent_packets"] for entry in entries),
            sent_bytes=sum(entry["sent_bytes"] for entry in entries),
            filtered_packets=sum(entry["filtered_packets"] for entry in entries),
            marked_packets=sum(entry["marked_packets"] for entry in entries),
            dropped_packets=sum(entry["dropped_packets"] for entry in entries),
        )
        for class_id, entries in sorted(by_class.items())
    ]


@router.get(PREFIX + "/measures", response_model=list[MeasureAnswer], responses=responses())
async def list_measures() -> Any:
    """Measures of access points, ports, classes of ports, and stations, and where each is found."""
    return [
        MeasureAnswer(
            name=measure.name,
            level=measure.level,
            text=measure.text,
            unit=measure.unit,
            counter=measure.counter,
            metric=measure.metric + "_total" * (measure.counter and bool(measure.metric)) or None,
            history=answer_columns(measure),
        )
        for measure in MEASURES
    ]


@router.get(AP + "/ports", response_model=list[PortAnswer], responses=responses(404))
async def get_ports(service: Serving, name: ApName) -> Any:
    """Ports with link state, queue, and packets sent, marked, dropped and filtered by class."""
    return ports_of(service.config(name), service.monitor.observe(name))


def _port_answer(service: Service, config: AccessPointConfig, port: int) -> Response:
    """Return a port with its configuration, whose ETag it has, also of an access point that nothing is known of: a
    change of it has been kept. Raises `ProblemError` 404."""
    try:
        seen: Any = service.monitor.observe(config.name)
    except Refused:
        seen = {"ports": []}
    for answer in ports_of(config, seen):
        if answer["port"] == port:
            return weakly_tagged(answer, config.port(port))
    raise ProblemError(404, f"{config.name} has no port {port}")


@router.get(AP + "/ports/{port}", response_model=PortAnswer, responses=responses(404))
async def get_port(service: Serving, name: ApName, port: PortPath) -> Response:
    """One port. The ETag is of its configuration."""
    return _port_answer(service, service.config(name), port)


@router.patch(AP + "/ports/{port}", response_model=PortAnswer, responses=changes(404, 412))
async def change_port(
    service: Serving,
    request: Request,
    name: ApName,
    port: PortPath,
    patch: PortPatch,  # type: ignore[valid-type]
    how: Asked,
) -> Response:
    """Change what feedback takes a port for: `{"capacity_bps": 900000}`. The session, counters and feedback stay."""
    assert isinstance(patch, BaseModel)

    def entry() -> dict[str, Any]:
        if service.config(name).port(port) is None:
            raise ProblemError(404, f"{name} has no port {port}")
        require_match(request, service.config(name).port(port))
        wanted = service.wanted[name]
        ports = [patched(one, patch) if one["port"] == port else one for one in wanted["ports"]]
        return wanted | {"ports": ports}

    config = await service.change(name, change_of(request, patch), entry, how.dry)
    return await answered(_port_answer(service, config, port), how, service, name)


@router.get(AP + "/classes", response_model=list[ClassAnswer], responses=responses(404))
async def get_classes(service: Serving, name: ApName) -> Any:
    """Classes in use, with the weight and the sent volume of each."""
    return classes_of(service.config(name), service.monitor.observe(name))


@router.get(AP + "/feedback", response_model=list[FeedbackAnswer], responses=responses(404))
async def get_feedback(service: Serving, name: ApName) -> Any:
    """Current feedback of each port."""
    return feedback_of(service.monitor.observe(name))


@router.get(AP + "/counters", response_model=list[CounterAnswer], responses=responses(404, 502))
async def get_counters(service: Serving, name: ApName) -> Any:
    """All counters that are not 0, read from the switch now."""
    return [
        CounterAnswer(counter=counter, port=port, index=index, packets=packets, bytes=size)
        for counter, port, index, packets, size in await service.backend.counters(name)
        if packets
    ]


def _said(config: AccessPointConfig, address: str) -> Station:
    return config.stations.get(address) or Station()


def _settings(config: AccessPointConfig, address: str | None, is_local: bool = True) -> dict[str, Any]:
    """Return the settings of a station, None: of one without its own, and those in effect. is_local: not behind the
    uplink, where none are."""
    used = config.station(address) if is_local else Station()
    return _said(config, address or "").model_dump() | {
        "weight_used": used.weight,
        "limit_down_used_bps": used.limit_down_bps,
        "limit_up_used_bps": used.limit_up_bps,
    }


async def _one_station(service: Service, config: AccessPointConfig, address: str) -> Any:
    """Return all that is known of a station, also of a disconnected one."""
    name = config.name
    try:
        used: Any = await service.backend.usage(name, address)
        seen = [station for station in await service.monitor.stations(name) if station["address"] == address]
    except Refused:
        used, seen = NOTHING_USED, []
    is_local = not seen or any(station["role"] == "station" for station in seen)
    return {"address": address, **_settings(config, address, is_local), **used, "seen": seen}


@router.get(AP + "/stations", response_model=list[StationAnswer], responses=responses(404))
async def get_stations(
    service: Serving,
    request: Request,
    response: Response,
    name: ApName,
    page: Annotated[Page, Query()],
    port: Annotated[int | None, Query(ge=0, lt=510)] = None,
    role: Literal["station", "uplink", "none"] | None = None,
    name_contains: Annotated[str | None, Query(max_length=64, description="Of its name or address.")] = None,
    sort: Annotated[
        Literal["address", "-rate_down_bps", "-rate_up_bps", "-bytes_down", "-bytes_up"],
        Query(description="With a minus the largest first."),
    ] = "address",
) -> Any:
    """Learned MAC addresses with port, usage and settings."""
    config, text = service.config(name), (name_contains or "").lower()
    seen = await service.monitor.stations(name)

    def part() -> list[dict[str, Any]]:
        of_others = {is_local: _settings(config, None, is_local) for is_local in (False, True)}

        def settings(each: StationObservation) -> dict[str, Any]:
            is_local = each["role"] == "station"
            return (
                _settings(config, each["address"], is_local)
                if each["address"] in config.stations
                else of_others[is_local]
            )

        found: list[dict[str, Any]] = [
            station
            for station in ({**each, **settings(each)} for each in seen)
            if (port is None or station["port"] == port)
            and (role is None or station["role"] == role)
            and (text in station["address"] or text in (station["name"] or station["host_name"] or "").lower())
        ]
        if sort != "address":
            found.sort(key=lambda station: station[sort[1:]], reverse=True)
        return found

    # There may be thousands.
    found = await service.compute(part)
    return page_of(request, response, page, found)


@router.get(AP + "/stations/{station}", response_model=OneStationAnswer, responses=responses(404))
async def get_station(service: Serving, name: ApName, station: StationPath) -> Response:
    """One MAC address, also of a disconnected station. The ETag is of its settings."""
    config = service.config(name)
    answer = await _one_station(service, config, station)
    if not answer["seen"] and station not in config.stations:
        raise ProblemError(404, f"{name} knows no station {station}")
    return weakly_tagged(answer, _said(config, station))


@router.patch(AP + "/stations/{station}", response_model=OneStationAnswer, responses=changes(404, 412))
async def change_station(
    service: Serving,
    request: Request,
    name: ApName,
    station: StationPath,
    patch: StationPatch,  # type: ignore[valid-type]
    how: Asked,
) -> Response:
    """Change settings of a station: `{"name": "Printer", "limit_down_bps": 5000000}`. Null removes a setting."""
    assert isinstance(patch, BaseModel)

    def entry() -> dict[str, Any]:
        require_match(request, _said(service.config(name), station))
        wanted = service.wanted[name]
        stations = dict(wanted.get("stations", {}))
        said = patched(stations.pop(station, {}), patch)
        return wanted | {"stations": {**stations, **({station: said} if said else {})}}

    config = await service.change(name, change_of(request, patch), entry, how.dry)
    answer = weakly_tagged(await _one_station(service, config, station), _said(config, station))
    return await answered(answer, how, service, name)


@router.get(AP + "/flows", response_model=list[FlowObservation], responses=responses(404))
async def get_flows(
    service: Serving,
    request: Request,
    response: Response,
    name: ApName,
    page: Annotated[Page, Query()],
    active: Annotated[bool, Query(description="Only flows with traffic.")] = False,
    direction: Literal["local", "uplink", "downlink"] | None = None,
    class_id: Annotated[ClassId | None, Query()] = None,
    protocol: Annotated[int | None, Query(ge=0, le=255)] = None,
    port: Annotated[int | None, Query(ge=0, lt=510, description="Entered or left through this port.")] = None,
    address: Annotated[str | None, Query(max_length=45, description="Source or destination.")] = None,
    sort: Annotated[
        Literal["flow_index", "-rate_bps", "-bytes", "-feedback_total"],
        Query(description="With a minus the largest first."),
    ] = "flow_index",
) -> Any:
    """The flows with the three terms of each: `feedback` (its own), `feedback_class`, `feedback_device`; and their sum,
    `feedback_total`, which is what a packet meets."""

    def wanted(flow: FlowObservation) -> bool:
        return (
            (not active or flow["active"])
            and (direction is None or flow["direction"] == direction)
            and (class_id is None or flow["class_id"] == class_id)
            and (protocol is None or flow["protocol"] == protocol)
            and (port is None or port in (flow["ingress_port"], flow["egress_port"]))
            and (address is None or address in (flow["src_addr"], flow["dst_addr"]))
        )

    flows = await service.monitor.flows(name)

    def part() -> tuple[list[FlowObservation], int]:
        found = [flow for flow in flows if wanted(flow)]
        end = page.offset + page.limit
        if sort.startswith("-"):
            column: Any = sort[1:]
            first = heapq.nlargest(end, found, key=lambda flow: flow[column])  # type: ignore[literal-required]
            return first[page.offset :], len(found)
        return found[page.offset : end], len(found)

    # There may be 65,536.
    found, total = await service.compute(part)
    return page_of(request, response, page, found, total)


@router.get(AP + "/flows/{flow_index}", response_model=FlowObservation, responses=responses(404))
async def get_flow(service: Serving, name: ApName, flow_index: FlowPath) -> Any:
    """One flow."""
    return await service.backend.flow(name, flow_index)


@router.patch(AP + "/flows/{flow_index}", response_model=FlowObservation, responses=responses(404, 502))
async def change_flow(service: Serving, request: Request, name: ApName, flow_index: FlowPath, patch: FlowPatch) -> Any:
    """Change a flow's weight, or the class that it asks for, as long as it lives: `{"weight": 2}`"""
    async with service.lock(name):
        answer = await service.backend.change_flow(name, flow_index, patch.weight, patch.flow_class)
        service.monitor.forget_lists(name)
        await service.write(service.store.audit, change_of(request, patch))
    return answer


@router.get(AP + "/history", response_model=HistoryAnswer, responses=responses(404))
async def get_history(
    service: Serving,
    name: ApName,
    start: Start = None,
    end: End = None,
    resolution: Annotated[
        Literal[1, 10, 60, 600] | None,
        _NUMBER,
        Query(description="Seconds; without it, the finest that is kept for the range and fits a screen."),
    ] = None,
    port: Annotated[int | None, Query(ge=0, lt=510)] = None,
) -> Any:
    """Samples of measures, of the last hour unless `start` is given. 1 s is kept for 2 hours, 10 s for 2 days,
    a minute for 30 days, 10 minutes for a year."""
    since, until, step = _range(start, end, resolution, RETENTION)
    found = await service.read(service.archive.query, name, port, since, until, step)
    return HistoryAnswer(
        access_point=name,
        resolution=step,
        start=since,
        end=until,
        ports=[PortHistory(port=number, columns=columns) for number, columns in found.items()],
    )


@router.get(AP + "/stations/{station}/history", response_model=StationHistoryAnswer, responses=responses(404))
async def get_station_history(
    service: Serving,
    name: ApName,
    station: StationPath,
    start: Start = None,
    end: End = None,
    resolution: Annotated[Literal[60, 600] | None, _NUMBER, Query(description="Seconds.")] = None,
) -> Any:
    """Usage of a station, of the last hour unless `start` is given. A minute is kept for 30 days, 10 minutes for a
    year. An unknown address has used nothing."""
    service.config(name)
    since, until, step = _range(start, end, resolution, STATION_RETENTION)
    columns = await service.read(service.archive.used, name, station, since, until, step)
    return StationHistoryAnswer(
        access_point=name,
        station=station,
        resolution=step,
        start=since,
        end=until,
        columns=columns,
        used={column: sum(values) for column, values in columns.items() if column != "time"},
    )


def _range(
    start: float | None, end: float | None, resolution: int | None, retention: Mapping[int, int]
) -> tuple[float, float, int]:
    """Return start, end and resolution; raises `ProblemError`."""
    now = time.time()
    until = now if end is None else end if end > 0 else now + end
    since = until - HOUR if start is None else start if start > 0 else now + start
    if since >= until:
        raise ProblemError(422, "query.start: not before `end`")
    step = resolution or resolution_for(since, until, now, retention)
    if (until - since) / step > MAX_SAMPLES and until - since > retention[step]:
        since = until - retention[step]
    if (until - since) / step > MAX_SAMPLES:
        raise ProblemError(
            422, f"query.resolution: more than {MAX_SAMPLES} samples; ask for a coarser one or less time"
        )
    return since, until, step
