# SPDX-License-Identifier: Apache-2.0
"""Access points of this process, for the service. Every answer is plain data; long lists come in pieces.

Each method is short, so that learning gets its turn between two: a piece of `PIECE` flows takes about a millisecond.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from finsy.proto import rpc_code

from ..config import AccessPointConfig, ConfigError
from ..observation import (
    ClassObservation,
    FlowObservation,
    Observation,
    PortObservation,
    StationObservation,
    UsageObservation,
    measured,
)
from .access_point import AccessPoint
from .connection import Elect, SessionError, State, over_grpc
from .flow import Flow
from .loop import percentile
from .program import FLOWS_SIZE
from .regulator import PortRegulator
from .transport import RpcError, Transport

LOG = logging.getLogger(__name__)

PIECE = 250
"""Flows or stations in one answer."""
LOOK = 16_384
"""Flow indices looked at for one answer."""
MAX_NAMED = 100
"""Stations in metrics, so that their number has a bound: only those with settings."""
ACTIVE_SECONDS = 10.0
RETRY_SECONDS = 1.0
"""Seconds between two tries to bring about what is desired."""
LIVE = ("features", "ncr", "class_weights", "rules", "stations", "sparse", "queue_shares", "limits", "ports")
"""Fields that change within a session; a change of any other field starts a new session."""
LIVE_OF_PORT = ("capacity_bps", "queue_limit", "regulated")
"""Fields of a port, of the same."""


def is_live(before: AccessPointConfig, after: AccessPointConfig) -> bool:
    """Return True when a change needs no new session: counters, feedback and integrators stay."""
    changed = {name for name in type(after).model_fields if getattr(before, name) != getattr(after, name)}
    if not changed <= {*LIVE}:
        return False
    shapes = [[port.model_dump(exclude={*LIVE_OF_PORT}) for port in config.ports] for config in (before, after)]
    return shapes[0] == shapes[1]


class Refused(Exception):
    """A request that cannot be served: an HTTP status, and one line that says why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(slots=True)
class Due:
    """A desired configuration that does not run yet, since when (seconds since the epoch), and why."""

    config: AccessPointConfig
    since: float
    reason: str


class LocalBackend:
    """The access points of this process; `ready`, `connect` and `elect` as in `AccessPoint`."""

    elsewhere = False
    """True when the access points, and the files that a configuration names, are on other machines."""

    lost = 0
    """Samples of history that agents could not keep; those of this process are the service's own."""

    def __init__(
        self,
        ready: Callable[[str], None],
        connect: Callable[[AccessPointConfig], Transport] = over_grpc,
        elect: Elect | None = None,
    ) -> None:
        self.access_points: dict[str, AccessPoint] = {}
        self._ready = ready
        self._connect = connect
        self._elect = elect
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._due: dict[str, Due] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        """Held while an access point is changed."""
        self._retrying: asyncio.Task[None] | None = None
        self.desired_changed = asyncio.Event()
        """Set when somebody else has changed the desired state; never set here."""

    def prepare(self, configs: list[AccessPointConfig]) -> None:
        """Begin with these access points, all of them or none; raises `Refused`."""
        self.access_points.update({config.name: self._make(config) for config in configs})

    def start(self) -> None:
        """Connect the prepared access points."""
        for ap in self.access_points.values():
            self._run(ap)

    def add(self, config: AccessPointConfig) -> None:
        """Add an access point."""
        ap = self.access_points[config.name] = self._make(config)
        self._run(ap)

    async def remove(self, name: str) -> None:
        """End a session, and remove all feedback."""
        self._due.pop(name, None)
        ap = self.access_points.pop(name, None)
        if ap is None:
            return
        await ap.release()
        task = self._tasks.pop(name, None)
        if task:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def attempt(self, config: AccessPointConfig) -> None:
        """Apply a configuration that is not desired yet, completely or not at all; raises `Refused`."""
        async with self._lock(config.name):
            await self._change(config)
            self._due.pop(config.name, None)

    async def bring(self, config: AccessPointConfig) -> None:
        """Apply a configuration that is desired. Until it runs it is tried again, and `observe` has the reason."""
        async with self._lock(config.name):
            self._due.pop(config.name, None)
            await self._try(Due(config, time.time(), ""))
        if self._due and self._retrying is None:
            self._retrying = asyncio.create_task(self._retry())

    async def _try(self, due: Due) -> None:
        """Try to bring about a configuration, with the lock held."""
        name = due.config.name
        try:
            await self._change(due.config)
        except Refused as error:
            if name not in self.access_points:
                return
            reason = f"{name}: what is desired does not run yet: {error}; trying again"
            if reason != due.reason:
                LOG.warning("%s", reason, extra={"access_point": name})
            self._due[name] = Due(due.config, due.since, reason)
        else:
            self._due.pop(name, None)

    async def _retry(self) -> None:
        """Try again until everything that is desired runs."""
        while self._due:
            await asyncio.sleep(RETRY_SECONDS)
            for name in [*self._due]:
                async with self._lock(name):
                    # A later change may have come before.
                    if name in self._due:
                        await self._try(self._due[name])
        self._retrying = None

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _change(self, config: AccessPointConfig) -> None:
        """Apply a configuration, completely or not at all; raises `Refused` when the switch refuses."""
        ap = self._find(config.name)
        before = ap.config.model_copy()
        if config == before:
            return
        if is_live(before, config):
            try:
                ap.program.target.check(config)
            except ConfigError as error:
                raise Refused(422, str(error)) from None
            self._set(ap, config)
            try:
                await _to_switch(ap, ap.sync(), unless_away=True)
            except Refused:
                self._set(ap, before)
                raise
            return
        made = self._make(config)
        await self.remove(config.name)
        self.access_points[config.name] = made
        self._run(made)

    def keep(self, name: str, config: AccessPointConfig | None, revision: int) -> None:
        """Do nothing: nobody else must learn that a configuration was kept."""

    async def stop(self) -> None:
        """End the sessions of all access points."""
        if self._retrying is not None:
            self._retrying.cancel()
        await asyncio.gather(*(self.remove(name) for name in [*self.access_points]))

    def observe(self, name: str) -> Observation:
        """Return the state of an access point."""
        seen = observe(self._find(name))
        if due := self._due.get(name):
            seen["problem"] = seen["problem"] or due.reason
            seen["differs_since"] = due.since
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

    def _find(self, name: str) -> AccessPoint:
        if name not in self.access_points:
            raise Refused(503, f"{name}: not started yet")
        return self.access_points[name]

    @staticmethod
    def _flow(ap: AccessPoint, flow_index: int) -> Flow:
        flow = ap.flows.by_index.get(flow_index)
        if flow is None:
            raise Refused(404, f"no flow has index {flow_index}")
        return flow

    def _make(self, config: AccessPointConfig) -> AccessPoint:
        try:
            # A copy, since `_set` changes it: after a failed change the caller's configuration is as before.
            return AccessPoint(config.model_copy(), self._ready, self._connect, self._elect)
        except ConfigError as error:
            raise Refused(422, str(error)) from None

    @staticmethod
    def _set(ap: AccessPoint, config: AccessPointConfig) -> None:
        for name in LIVE:
            setattr(ap.config, name, getattr(config, name))
        ap.loop.configure()
        ap.usage.configure()

    def _run(self, ap: AccessPoint) -> None:
        if not ap.config.enabled:
            ap.connection.state = State.STOPPED
            return
        self._tasks[ap.config.name] = asyncio.create_task(ap.run())


async def _to_switch(ap: AccessPoint, call: Any, unless_away: bool = False) -> Any:
    """Await a call to the switch; raises `Refused`. With `unless_away` a switch that is away is no error."""
    if ap.connection.state != State.READY:
        call.close()
        if unless_away:
            return None
        raise Refused(503, ap.connection.problem or f"{ap.config.name}: not connected")
    try:
        return await call
    except SessionError as error:
        raise Refused(503, str(error)) from None
    except RpcError as error:
        if error.code in (rpc_code.CANCELLED, rpc_code.UNAVAILABLE):
            # A session that ends cancels the calls that are under way.
            raise Refused(503, ap.connection.problem or f"{ap.config.name}: the connection was lost") from None
        raise Refused(502, f"{ap.config.name}: the switch refuses: {error}") from None


def observe(ap: AccessPoint) -> Observation:
    """Return the state of an access point."""
    durations = ap.loop.durations
    now = time.time()
    return Observation(
        name=ap.config.name,
        time=now,
        state=ap.connection.state.value,
        problem=ap.connection.problem,
        differs_since=None,
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


def _port(ap: AccessPoint, state: PortRegulator, now: float) -> PortObservation:
    number = state.port.port
    link = "unknown"
    last_active = ap.activity.get(number)
    if ap.connection.state == State.READY:
        # A clock that was set back makes nothing active for ever.
        link = "active" if last_active is not None and 0 <= now - last_active < ACTIVE_SECONDS else "idle"
    return PortObservation(
        port=number,
        role=state.port.role,
        link=link,
        last_active=last_active,
        **measured("port", ap, state),
        capacity_problem=_capacity_problem(state),
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


def _flow(ap: AccessPoint, flow: Flow) -> FlowObservation:
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
