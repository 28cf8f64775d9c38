# SPDX-License-Identifier: Apache-2.0
"""One port of one access point: from counters to feedback. Pure: time is an argument.

volumes, flow rates -> queue estimate -> device term            every tick
                                      -> class and flow terms   every `flow_interval`
"""

import math

import numpy as np
import numpy.typing as npt

from ..config import CLASS_DOWNLINK, CLASS_UPLINK, AccessPointConfig, Ncr, Port
from ..law import chosen
from ..law.base import BUSY_QUEUE, IDLE_SECONDS
from ..law.shares import Floats, Level, Numbers, demands, demands_behind, divide
from .capacity import Capacity
from .feedback import Rate
from .flow_table import FlowTable
from .program import QUEUE_SPARSE
from .queue_estimate import FULL_FRAME, PortCounters, QueueEstimate
from .queue_meters import queue_rates

MIN_SHARED = 0.01
"""Part of the capacity that is shared in any case, however much group traffic there is."""

MIN_STANDING = 2
"""Packets that the bulk of a station may have waiting, beside others', before it counts as a queue."""

NOBODY = np.zeros(0, np.int64)

CLASSES = 8


VOLUMES = ("arrived", "sent", "filtered")
"""Counters of each port and class that the loop reads."""


class Volumes:
    """Counters of a port since the pipeline was pushed: a place for each class; group traffic has one place in all."""

    def __init__(self) -> None:
        self.arrived_packets, self.sent_packets, self.filtered_packets = ([0] * CLASSES for _ in VOLUMES)
        self.arrived_bytes, self.sent_bytes, self.filtered_bytes = ([0] * CLASSES for _ in VOLUMES)
        self.group_arrived_packets, self.group_sent_packets = [0], [0]
        self.group_arrived_bytes, self.group_sent_bytes = [0], [0]
        self.others_packets = self.others_bytes = 0
        """Group traffic that came in through the other ports, and through this one where it goes back: a copy of each
        packet has entered this one's queue."""

    def drop(self, class_id: int) -> None:
        """Forget the counters of this class."""
        self.arrived_packets[class_id] = self.sent_packets[class_id] = self.filtered_packets[class_id] = 0
        self.arrived_bytes[class_id] = self.sent_bytes[class_id] = self.filtered_bytes[class_id] = 0

    def together(self) -> PortCounters:
        """Return the counters of all classes and group traffic together."""
        sent_bytes = sum(self.sent_bytes) + self.group_sent_bytes[0]
        return PortCounters(
            arrived_packets=sum(self.arrived_packets) + self.others_packets,
            arrived_bytes=sum(self.arrived_bytes) + self.others_bytes,
            gone_packets=sum(self.sent_packets) + sum(self.filtered_packets) + self.group_sent_packets[0],
            gone_bytes=sent_bytes + sum(self.filtered_bytes),
            sent_bytes=sent_bytes,
        )


def slowest_uplink(regulators: "list[PortRegulator]", but: "PortRegulator") -> float:
    """Return the capacity that limits the ACKs of what leaves through a station's port; else infinite.

    A slow station must not lengthen the queue that it shares with faster ones: only uplinks count.
    """
    if but.port.role != "station":
        return math.inf
    uplinks = [other.capacity for other in regulators if other.port.role == "uplink" and other.capacity]
    return min(uplinks, default=math.inf)


def class_weight(config: AccessPointConfig, class_id: int) -> float:
    """W of a class (3.2.2)."""
    weights = config.class_weights
    return {CLASS_DOWNLINK: weights.downlink, CLASS_UPLINK: weights.uplink}.get(class_id, weights.other)


def queue_target(capacity: float, ncr: Ncr, ack_capacity: float = math.inf) -> float:
    """q* in bytes of a port with `capacity` bytes/s; the ACKs of what it sends return over `ack_capacity` bytes/s."""
    delay, least = ncr.queue_target_ms / 1000, ncr.queue_target_packets * FULL_FRAME
    return chosen(ncr.law, ncr.own).queue_target(capacity, delay, least, FULL_FRAME / ack_capacity)


class PortRegulator:
    """The feedback of what leaves through one port; `classes`: those in use, `volumes`: what it counted before."""

    def __init__(
        self,
        config: AccessPointConfig,
        port: Port,
        flows: FlowTable,
        classes: list[int],
        volumes: Volumes | None = None,
    ) -> None:
        self.port = port
        self.classes = classes
        self.volumes = volumes or Volumes()
        self.active: dict[int, None] = {}
        """Indices of flows with traffic."""
        self.link = Capacity(port.capacity)
        self.capacity = self.link.value
        """C in bytes/s; 0 as long as nothing is known."""
        self.ack_capacity = math.inf
        """Capacity of the slowest uplink that the ACKs of what leaves here return through."""
        self.estimate = QueueEstimate(self.capacity, port.queue_limit)
        self.class_rates = [0.0] * CLASSES
        """Bytes/s that arrive and are not filtered: only those need the link."""
        self._flows = flows
        self._arrivals = [Rate() for _ in range(CLASSES)]
        self._filtered = [Rate() for _ in range(CLASSES)]
        self._group = Rate()
        self._shared = self.capacity
        """Bytes/s that group traffic leaves to classes and flows."""
        self._arrived = 0
        self._shares_at = self._busy_at = self._empty_at = -math.inf
        """The last: time at which the queue was empty, so that what was sent before has left."""
        self._shared_arrived = -1
        self.law = chosen(config.ncr.law, config.ncr.own)
        self._reset()
        self.configure(config)

    def _reset(self) -> None:
        self.device = self.law.device()
        self.feedback = 0.0
        self.class_feedback: dict[int, float] = {}
        self.class_desired = [0.0] * CLASSES
        self.largest_flow_feedback = 0.0
        self.fair_sparse = 0.0
        """Bytes/s of flows that go ahead within their fair share."""
        self.standing_depth = 0
        """Packets from which on a station's bulk counts as a queue, where each has a queue of its own; 0: all bulk is
        one station's."""

    @property
    def delay(self) -> float:
        """Seconds until the queue of now has left; 0: nothing is known of the link."""
        return self.estimate.bytes / self.capacity if self.capacity else 0.0

    @property
    def target_delay(self) -> float:
        """q* in seconds; 0: nothing is known of the link."""
        return self.target / self.capacity if self.capacity else 0.0

    @property
    def target_reason(self) -> str | None:
        """Return why q* is above the configured delay; None: it is not."""
        ncr, least = self.config.ncr, self.config.ncr.queue_target_packets * FULL_FRAME
        if not self.capacity or self.target <= self.capacity * ncr.queue_target_ms / 1000 * 1.001:
            return None
        said = f"{ncr.queue_target_ms:g} ms were asked for"
        if self.target > least:
            wait = FULL_FRAME / self.ack_capacity * 1000
            return f"{said}, and ACKs wait for {wait:.3g} ms behind one frame of their link"
        time = least / self.capacity * 1000
        return f"{said}, and the least, queue_target_packets {ncr.queue_target_packets:g}, takes {time:.3g} ms here"

    def resume(self, feedback: float, class_feedback: dict[int, float]) -> None:
        """Resume from the feedback that the switch has of an earlier loop."""
        self.estimate.start_empty()
        self.feedback = feedback
        self.device.resume(feedback)
        self.class_feedback = dict(class_feedback)

    def use(self, classes: list[int]) -> None:
        """Read these classes from now on."""
        for class_id in set(range(CLASSES)) - set(classes):
            # Its last counters would look like a queue for ever.
            self.volumes.drop(class_id)
        if not set(self.classes) <= set(classes):
            self.estimate.start_empty()
        self.classes = classes

    def configure(self, config: AccessPointConfig) -> None:
        """Apply changed parameters, of its port as well; what it has learned and summed up stays."""
        self.config = config
        self.port = config.port(self.port.port) or self.port
        self.link.configure(self.port.capacity)
        self.capacity = self.estimate.capacity = self.link.value
        self.estimate.limit = self.port.queue_limit
        if self.law is not (law := chosen(config.ncr.law, config.ncr.own)):
            self.law = law
            self.device = self.law.device()
            self.device.resume(self.feedback)
        self.regulated = config.features.ncr and self.port.regulated
        self.aim()
        self._weights = [class_weight(config, class_id) for class_id in range(CLASSES)]

    def aim(self) -> None:
        """Find q* in bytes."""
        self.target = queue_target(self.capacity, self.config.ncr, self.ack_capacity)

    def update(self, now: float) -> Numbers:
        """Compute the feedback; return the indices of the flows whose terms were updated."""
        counters = self.volumes.together()
        estimate, link = self.estimate, self.link
        estimate.update(counters, now)
        link.update(counters.sent_bytes, counters.gone_packets, estimate.packets - estimate.doubt, now)
        if link.value != self.capacity:
            self.capacity = estimate.capacity = link.value
            self.aim()
        if not estimate.packets:
            self._empty_at = now
        arriving = counters.arrived_packets != self._arrived
        self._arrived = counters.arrived_packets
        ncr = self.config.ncr
        if self.regulated:
            self.feedback = self.device.update(
                now, self.estimate.bytes, self.target, arriving,
                gamma=ncr.gamma, kappa1=ncr.kappa1, kappa2=ncr.kappa2, interval=ncr.device_interval,
                limit=ncr.device_limit,
            )  # fmt: skip
        elapsed = now - self._shares_at
        # The tick that is nearest: no tick is on time to the microsecond.
        if elapsed < ncr.flow_interval - ncr.device_interval / 2:
            return NOBODY
        self._shares_at = now
        moved = counters.arrived_packets != self._shared_arrived
        if self.regulated and not (moved or self.active or self.class_feedback):
            # Ports without traffic cost nothing.
            return NOBODY
        self._shared_arrived = counters.arrived_packets
        looked_at = np.fromiter(self.active, np.int64, len(self.active))
        idle = looked_at[self._flows.rates.idle(looked_at, now)]
        gone = idle[~self._are_queued(idle)] if self.regulated else idle
        for index in gone.tolist():
            del self.active[index]
        self._flows.active[gone] = False
        active = looked_at if not gone.size else np.fromiter(self.active, np.int64, len(self.active))
        if self.regulated:
            fullness = self.estimate.bytes / self.target
            if fullness >= BUSY_QUEUE:
                self._busy_at = now
            elapsed = elapsed if math.isfinite(elapsed) else 0.0
            elastic = self._flows.elastic(active, self.config.features.sparse)
            self._group.update(float(self.volumes.others_bytes), now, ncr.smoothing_ms / 1000)
            self._shared = max(self.capacity - self._group.value, self.capacity * MIN_SHARED)
            self._share_among_classes(now, elapsed, fullness, active, elastic)
            self._share_among_flows(now, elapsed, fullness, active, elastic)
            self._flows.stop(gone)
        else:
            self._reset()
            self._flows.stop(looked_at)
        return looked_at

    def _are_queued(self, flows: Numbers) -> npt.NDArray[np.bool_]:
        """Return True for each flow that is held back and may have packets in the queue."""
        queued = self._flows.rates.moved[flows] > self._empty_at
        return queued & (self._flows.elastic(flows, self.config.features.sparse) > 0) & self.law.thins

    def _backlog(self, flows: Numbers, now: float) -> Floats:
        """Return the bytes that each of these flows asks to be sent if it is held back: the queue above its target, and
        all of it for one that has fallen silent."""
        silent = self._flows.rates.idle(flows, now)
        return np.maximum(self.estimate.bytes - np.where(silent, 0.0, self.target), 0.0)

    def queue_rates(self) -> dict[int, float]:
        """Return the rate of each priority queue, in bytes/s.

        A flow that goes ahead within its fair share has a meter of its own, whose rate is added to the queue's: these
        are fair shares of the port, together never more than it carries. The queue's own share is for flows whose
        demand is not computed yet."""
        rates = queue_rates(self.config, self.capacity)
        rates[QUEUE_SPARSE] = min(self.capacity, rates[QUEUE_SPARSE] + self.fair_sparse)
        return rates

    def _standing_depth(self, stations: int) -> int:
        """Return the packets from which on the bulk of one of so many stations counts as a queue: half its part of q*,
        as the queue of all is one to share from half of q* on."""
        if stations < 2:
            return 0
        return max(MIN_STANDING, round(BUSY_QUEUE * self.target / stations / FULL_FRAME))

    def _share_among_classes(
        self, now: float, elapsed: float, fullness: float, flows: Numbers, elastic: Floats
    ) -> None:
        ncr = self.config.ncr
        tau = self.law.averaging(ncr.smoothing_ms / 1000)
        for class_id in self.classes:
            arrivals, filtered = self._arrivals[class_id], self._filtered[class_id]
            arrivals.update(float(self.volumes.arrived_bytes[class_id]), now, tau)
            filtered.update(float(self.volumes.filtered_bytes[class_id]), now, tau)
            self.class_rates[class_id] = max(0.0, arrivals.value - filtered.value)
        held = np.bincount(
            self._flows.class_id[flows], self._flows.rates.value[flows] * elastic, minlength=CLASSES
        ).tolist()  # fmt: skip
        at = [class_id for class_id in self.classes if not self._arrivals[class_id].idle(now)]
        rates = [self.class_rates[class_id] for class_id in at]
        feedback, desired = self.law.shares(
            [self.class_feedback.get(class_id, 0.0) for class_id in at],
            elapsed,
            self._shared,
            rates,
            [self._weights[class_id] for class_id in at],
            [min(1.0, held[class_id] / rate) if rate > 0 else 0.0 for class_id, rate in zip(at, rates, strict=True)],
            gain=ncr.beta,
            interval=ncr.flow_interval,
            limit=ncr.class_limit,
            fullness=fullness,
        )
        # A class that is missing has gone idle and restarts.
        self.class_desired, self.class_feedback = [0.0] * CLASSES, dict(zip(at, feedback, strict=True))
        for class_id, wanted in zip(at, desired, strict=True):
            self.class_desired[class_id] = wanted

    def _flow_weights(self, flows: Numbers) -> Floats:
        """Return the flows' weights in the flow term, whose sum over a class is W (3.2.2), shared by flow alone."""
        classes, weights = self._flows.class_id[flows], self._flows.weight[flows] * self._flows.station_weight[flows]
        of_class = np.maximum(np.bincount(classes, weights, minlength=CLASSES), 1e-9)
        return weights * (np.array(self._weights) / of_class)[classes]

    def _levels(self, flows: Numbers) -> list[Level]:
        """Return the groups by which shares are: class, then station, then flow. A flow's weight is its share itself
        then: so what a station's ping leaves is for its own download."""
        table = self._flows
        of_flows = np.stack((table.class_id[flows].astype(np.int64), table.station[flows]))
        (of_groups, _), first, group = np.unique(of_flows, axis=1, return_index=True, return_inverse=True)
        present, classes_of = np.unique(of_groups, return_inverse=True)
        return [
            (group.reshape(-1), table.weight[flows]),
            (classes_of, table.station_weight[flows[first]]),
            (np.zeros(present.size, np.int64), np.array(self._weights)[present]),
        ]

    def _share_among_flows(self, now: float, elapsed: float, fullness: float, flows: Numbers, elastic: Floats) -> None:
        """Set the flow terms, and who of small packets goes ahead.

        A flow is counted before its ACKs are filtered; what is left is taken to be the same part of each in a class.
        """
        ncr, table = self.config.ncr, self._flows
        classes = table.class_id[flows]
        kept = np.array(
            [
                min(1.0, rate / arrivals.value) if arrivals.value > 0 else 1.0
                for rate, arrivals in zip(self.class_rates, self._arrivals, strict=True)
            ]
        )
        # Nor does what a station sends above its limit get so far.
        rates = table.rates.value[flows] * kept[classes] * (1 - table.held[flows])
        levels = self._levels(flows) if ncr.isolate_stations and flows.size else None
        fair: Floats | None = None
        if levels is None:
            weights = self._flow_weights(flows)
        else:
            weights, fair = divide(self._shared, demands(rates, elastic), levels)
        terms, desired = self.law.shares(
            table.feedback[flows].tolist(),
            elapsed,
            self._shared,
            rates.tolist(),
            weights.tolist(),
            elastic.tolist(),
            gain=ncr.alpha,
            interval=ncr.flow_interval,
            limit=ncr.flow_limit,
            fullness=fullness,
        )
        feedback = np.array(terms)
        table.feedback[flows] = feedback
        if flows.size:
            # A flow far below what it may have is not the cause of the queue.
            if levels is not None and table.ask_ahead(flows):
                _, fair = divide(self._shared, demands_behind(rates, elastic, self._backlog(flows, now)), levels)
            part = self.config.sparse.fair_share
            fair = (np.array(desired) / weights).max() * weights if fair is None else fair
            allowed = part * fair if part else None
            table.allow(flows, allowed, now - self._busy_at < IDLE_SECONDS)
            if allowed is not None and self.config.features.sparse and self.law.thins:
                of_port = self.law.dropped(self.feedback)
                of_class_too = [of_port + self.class_feedback.get(class_id, 0.0) for class_id in classes.tolist()]
                table.thin(flows, allowed, np.array(of_class_too), self.config.sparse.max_thinned)
        table.apply_limits(flows)
        self.standing_depth = self._standing_depth(np.unique(table.station[flows[elastic > 0]]).size)
        self.fair_sparse = table.fair_sparse_rate(flows)
        self.largest_flow_feedback = float(feedback.max(initial=0.0))
