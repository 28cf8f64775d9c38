# SPDX-License-Identifier: Apache-2.0
"""Access points of this process, for the service. Every answer is plain data; long lists come in pieces.

Each method is short, so that learning gets its turn between two: a piece of `PIECE` flows takes about a millisecond.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from typing import Any, TypeVar

from ..config import AccessPointConfig, missing_file
from ..observation import (
    ClassObservation,
    FlowObservation,
    Observation,
    PortObservation,
    StationObservation,
    UsageObservation,
    measured,
)
from .access_point import ManagedAccessPoint
from .connection import Elect, State, over_grpc
from .flow import Flow
from .loop import percentile
from .program import FLOWS_SIZE
from .reconciler import AWAY, Reconciler, Refused, Standing, to_switch
from .regulator import PortRegulator
from .transport import Transport

T = TypeVar("T")

PIECE = 250
"""Flows or stations in one answer."""
LOOK = 16_384
"""Flow indices looked at for one answer."""
MAX_NAMED = 100
"""Stations in metrics, so that their number has a bound: only those with settings."""
ACTIVE_SECONDS = 10.0


class LocalBackend:
    """The access points of this process; `ready`, `connect` and `elect` as in `ManagedAccessPoint`."""

    lost = 0
    """Samples of history that agents could not keep; those of this process are the service's own."""

    def __init__(
        self,
        ready: Callable[[str], None],
        connect: Callable[[AccessPointConfig], Transport] = over_grpc,
        elect: Elect | None = None,
    ) -> None:
        self.access_points: dict[str, ManagedAccessPoint] = {}
        self._ready = ready
        self._connect = connect
        self._elect = elect
        self._reconcilers: dict[str, Reconciler] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = False
        self.changed: Callable[[str], None] = lambda name: None
        """Called with the name of an access point of which another revision is in effect."""
        self.desired_changed = asyncio.Event()
        """Set when somebody else has changed the desired state; never set here."""

    def start(self) -> None:
        """Begin to bring about what is desired."""
        self._started = True
        for name in self._reconcilers:
            self._run(name)

    def desire(self, name: str, revision: int, config: AccessPointConfig | None) -> None:
        """Desire a revision of an access point; None: it is removed."""
        if config is not None and name not in self._reconcilers:
            self._reconcilers[name] = Reconciler(
                name, self.access_points, self._make, lambda changed: self.changed(changed)
            )
            if self._started:
                self._run(name)
        if name in self._reconcilers:
            self._reconcilers[name].desire(revision, config)

    @property
    def names(self) -> list[str]:
        """Return the desired access points."""
        return [*self._reconcilers]

    def fall_back(self, name: str, revision: int, config: AccessPointConfig) -> None:
        """Run this as long as the switch refuses what is desired; it was in effect before this process."""
        self._reconcilers[name].fall_back(revision, config.model_copy())

    def _run(self, name: str) -> None:
        reconciler = self._reconcilers[name]

        async def run() -> None:
            await reconciler.run()
            # It was removed.
            del self._reconcilers[name], self._tasks[name]

        self._tasks[name] = asyncio.create_task(run())

    def _make(self, config: AccessPointConfig) -> ManagedAccessPoint:
        # A copy, since `ManagedAccessPoint.configure` changes it.
        return ManagedAccessPoint(config.model_copy(), self._ready, self._connect, self._elect)

    @staticmethod
    def missing_file(config: AccessPointConfig) -> str | None:
        """Return a file of a configuration that does not exist on the access point's machine, in one line, or None."""
        return missing_file(config)

    def standing(self, name: str) -> Standing:
        """Return the desired revision of an access point, and the one in effect."""
        reconciler = self._reconcilers.get(name)
        return Standing(0, None) if reconciler is None else reconciler.standing

    async def stop(self) -> None:
        """End the sessions of all access points, and remove all feedback."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(reconciler.end() for reconciler in self._reconcilers.values()))

    def observe(self, name: str) -> Observation:
        """Return the state of an access point."""
        seen = observe(self._find(name))
        seen["problem"] = seen["problem"] or self.standing(name).reason
        return seen

    async def flows(self, name: str, start: int) -> tuple[list[FlowObservation], int | None]:
        """Return some flows in the order of their indices, from index `start` on, and the next start, or None."""
        ap = self._find(name)
        indices = ap.flows.by_index
        found: list[FlowObservation] = []
        end = min(start + LOOK, FLOWS_SIZE)
        for index in range(start, end):
            if len(found) == PIECE:
                return found, index
            flow = indices.get(index)
            if flow is not None:
                found.append(_flow(ap, flow))
        return found, end if end < FLOWS_SIZE else None

    async def stations(self, name: str, start: int) -> tuple[list[StationObservation], int | None]:
        """Return some stations by address, from address `start` on, and the next start, or None."""
        ap = self._find(name)
        known = sorted(number for number in ap.stations.by_number if number >= start)
        piece = [ap.stations.by_number[number] for number in known[:PIECE]]
        used = ap.usage.of(*(station.mac for station in piece))
        answers = [
            StationObservation(
                address=station.address,
                outer_vid=station.outer_vid,
                inner_vid=station.inner_vid,
                port=station.port,
                role=port.role if (port := ap.config.port(station.port)) else "none",
                since=station.since,
                moves=station.moves,
                host_name=ap.usage.names.get(station.mac),
                randomised=bool(station.mac >> 40 & 2),
                **usage,
            )
            for station, usage in zip(piece, used, strict=True)
        ]
        return answers, known[PIECE] if len(known) > PIECE else None

    async def usage(self, name: str, address: str) -> UsageObservation:
        """Return a station's usage and current rates; `address` as people write it."""
        return self._find(name).usage.of(int(address.replace(":", ""), 16))[0]

    def used(self, name: str) -> dict[str, UsageObservation]:
        """Return the usage of each station of an access point, by its address."""
        return self._find(name).usage.all()

    async def change_flow(
        self, name: str, flow_index: int, weight: float | None, flow_class: int | None
    ) -> FlowObservation:
        """Set a flow's weight or class, as long as the flow lives."""
        ap = self._find(name)
        flow = self._flow(ap, flow_index)
        if flow_class is not None:
            await _to_switch(ap, ap.flows.set_class(ap.connection, flow, flow_class))
        if weight is not None:
            ap.flows.set_weight(flow, weight)
        return _flow(ap, flow)

    async def flow(self, name: str, flow_index: int) -> FlowObservation:
        """Return one flow."""
        ap = self._find(name)
        return _flow(ap, self._flow(ap, flow_index))

    async def counters(self, name: str) -> list[tuple[str, int, int, int, int]]:
        """Return all counters, read now: counter, port, class or queue, packets, bytes."""
        ap = self._find(name)
        cells = await _to_switch(ap, ap.counters())
        return [(*key, *value) for key, value in cells.items()]

    def _find(self, name: str) -> ManagedAccessPoint:
        if name not in self.access_points:
            raise Refused(AWAY, self.standing(name).reason or f"{name}: not started yet")
        return self.access_points[name]

    @staticmethod
    def _flow(ap: ManagedAccessPoint, flow_index: int) -> Flow:
        flow = ap.flows.by_index.get(flow_index)
        if flow is None:
            raise Refused(404, f"no flow has index {flow_index}")
        return flow


async def _to_switch(ap: ManagedAccessPoint, call: Coroutine[Any, Any, T]) -> T:
    """Await a call to the switch, which must be there; raises `Refused`."""
    if ap.connection.state != State.READY:
        call.close()
        raise Refused(AWAY, ap.connection.problem or f"{ap.config.name}: not connected")
    return await to_switch(ap, call)


def observe(ap: ManagedAccessPoint) -> Observation:
    """Return the state of an access point."""
    durations = ap.loop.durations
    now = time.time()
    return Observation(
        name=ap.config.name,
        time=now,
        state=ap.connection.state.value,
        problem=ap.connection.problem,
        p4runtime_version=ap.connection.p4runtime_version,
        sessions=ap.connection.sessions,
        stations_refused=dict(ap.stations.refused.by_reason),
        flows_refused=dict(ap.flows.refused.by_reason),
        stations_named=ap.usage.named(MAX_NAMED),
        messages_lost=dict(ap.connection.lost.by_reason),
        **measured("access_point", ap),
        tick_ms_p50=percentile(durations, 0.5) * 1000,
        tick_ms_p99=percentile(durations, 0.99) * 1000,
        tick_counts=[*ap.loop.tick_counts],
        tick_seconds=ap.loop.tick_seconds,
        ports=[_port(ap, state, now) for state in ap.loop.ports.values()],
    )


def _port(ap: ManagedAccessPoint, state: PortRegulator, now: float) -> PortObservation:
    number = state.port.port
    link = "unknown"
    last_active = ap.activity.get(number)
    if ap.carriers.get(number) is False:
        link = "down"
    elif ap.connection.state == State.READY:
        # A clock that was set back makes nothing active for ever.
        link = "active" if last_active is not None and 0 <= now - last_active < ACTIVE_SECONDS else "idle"
    return PortObservation(
        port=number,
        role=state.port.role,
        link=link,
        last_active=last_active,
        **measured("port", ap, state),
        capacity_problem=_capacity_problem(state),
        target_reason=state.target_reason,
        classes=[
            ClassObservation(class_id=class_id, **measured("class", ap, state, class_id)) for class_id in state.classes
        ],
    )


def _capacity_problem(state: PortRegulator) -> str | None:
    """Return the problem of a link whose capacity differs from the configured one, and its fix; None: no problem."""
    if not state.port.capacity or state.capacity == state.port.capacity:
        return None
    carried, said = (f"{8 * rate / 1e6:.3g} Mb/s" for rate in (state.link.learned, state.port.capacity))
    return f"the link carries {carried}, not {said}, and is regulated by that: correct capacity_bps, or let it be auto"


def _flow(ap: ManagedAccessPoint, flow: Flow) -> FlowObservation:
    key, index, table = flow.key, flow.index, ap.loop.flows
    state = ap.loop.ports.get(key.egress_port)
    class_id, feedback = int(table.class_id[index]), float(table.feedback[index])
    feedback_class = state.class_feedback.get(class_id, 0.0) if state else 0.0
    feedback_device = state.feedback if state else 0.0
    # Flows that go ahead without being thinned, and pure ACKs, are not regulated.
    regulated = table.is_regulated(index, ap.config.features.sparse)
    total = min(1.0, feedback + feedback_class + feedback_device + float(table.held[index])) if regulated else 0.0
    return FlowObservation(
        flow_index=index,
        generation=flow.generation,
        src_addr=str(ip_address(key.src_addr)),
        dst_addr=str(ip_address(key.dst_addr)),
        protocol=key.protocol,
        src_port=key.src_port,
        dst_port=key.dst_port,
        direction=flow.direction,
        ingress_port=key.ingress_port,
        egress_port=key.egress_port,
        outer_vid=key.outer_vid,
        inner_vid=key.inner_vid,
        flow_class=flow.flow_class,
        class_id=class_id,
        weight=flow.weight,
        packets=int(table.packets[index]),
        bytes=int(table.bytes[index]),
        rate_bps=float(table.rates.value[index]) * 8,
        active=bool(table.active[index]),
        feedback=feedback,
        feedback_class=feedback_class,
        feedback_device=feedback_device,
        feedback_limit=float(table.held[index]),
        feedback_total=total,
        since=flow.since,
    )
