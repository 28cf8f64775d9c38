# SPDX-License-Identifier: Apache-2.0
"""One port of one access point: from what was counted to what is fed back. Pure: time is an argument.

volumes, flow rates -> queue estimate -> device term            every tick
                                      -> class and flow terms   every `flow_interval`
"""

import math

import numpy as np

from .board import CLASSES, VOLUMES_BYTES
from .config import CLASS_DOWNLINK, CLASS_UPLINK, AccessPointConfig, Port
from .feedback import DeviceTerm, Floats, Rate, queue_target, share_terms, share_terms_of_few
from .flow_table import FlowTable, Numbers
from .queue_estimate import PortCounters, QueueEstimate

BUSY_QUEUE = 0.5
"""There is a queue to share when it holds this part of its target."""

NOBODY = np.zeros(0, np.int64)


class Volumes:
    """What a port counted since the pipeline was pushed: six times one place for each class, in the memory of a
    `Board` or, with None, in their own."""

    def __init__(self, counts: memoryview | None = None) -> None:
        self._counts = memoryview(bytearray(VOLUMES_BYTES)).cast("q") if counts is None else counts
        parts = [self._counts[start : start + CLASSES] for start in range(0, len(self._counts), CLASSES)]
        self.arrived_packets, self.sent_packets, self.filtered_packets = parts[:3]
        self.arrived_bytes, self.sent_bytes, self.filtered_bytes = parts[3:]

    def drop(self, class_id: int) -> None:
        """Nothing is known of this class any more."""
        for place in range(class_id, len(self._counts), CLASSES):
            self._counts[place] = 0

    def together(self) -> PortCounters:
        """All classes."""
        counts = self._counts.tolist()
        sent_bytes = sum(counts[4 * CLASSES : 5 * CLASSES])
        return PortCounters(
            arrived_packets=sum(counts[:CLASSES]),
            arrived_bytes=sum(counts[3 * CLASSES : 4 * CLASSES]),
            gone_packets=sum(counts[CLASSES : 3 * CLASSES]),
            gone_bytes=sent_bytes + sum(counts[5 * CLASSES :]),
            sent_bytes=sent_bytes,
        )


def class_weight(config: AccessPointConfig, class_id: int) -> float:
    """W of a class (3.2.2)."""
    weights = config.class_weights
    return {CLASS_DOWNLINK: weights.downlink, CLASS_UPLINK: weights.uplink}.get(class_id, weights.other)


def target_bytes(config: AccessPointConfig, port: Port) -> float:
    """q* of a port in bytes."""
    # A slow station must not lengthen the queue that it shares with faster ones: only uplinks count.
    uplinks = [other.capacity_bps / 8 for other in config.ports if other.role == "uplink" and other != port]
    ack_capacity = min(uplinks, default=math.inf) if port.role == "station" else math.inf
    return queue_target(port.capacity_bps / 8, config.ncr, ack_capacity)


class PortRegulator:
    """The feedback of what leaves through one port; `classes` are those in use, `counts` as in `Volumes`."""

    def __init__(
        self,
        config: AccessPointConfig,
        port: Port,
        flows: FlowTable,
        classes: list[int],
        counts: memoryview | None = None,
    ) -> None:
        self.port = port
        self.classes = classes
        self.volumes = Volumes(counts)
        self.active: dict[int, None] = {}
        """Indices of flows with traffic."""
        self.estimate = QueueEstimate(port.capacity_bps / 8, port.queue_limit)
        self.class_rates = [0.0] * CLASSES
        """Bytes/s that arrive and are not filtered: only those need the link."""
        self._flows = flows
        self._arrivals = [Rate() for _ in range(CLASSES)]
        self._filtered = [Rate() for _ in range(CLASSES)]
        self._counters = self.volumes.together()
        self._arrived = 0
        self._shares_at = -math.inf
        self._shared_arrived = -1
        self.configure(config)
        self._reset()

    def _reset(self) -> None:
        self.device = DeviceTerm()
        self.feedback = 0.0
        self.class_feedback: dict[int, float] = {}
        self.class_desired = [0.0] * CLASSES
        self._class_pressure = [0.0] * CLASSES
        self.largest_flow_feedback = 0.0

    def resume(self, feedback: float, class_feedback: dict[int, float]) -> None:
        """Go on from the feedback that the switch has, where an earlier loop left off."""
        self.estimate.start_empty()
        self.feedback = feedback
        self.device.sum = self.device.pressure = math.sqrt(feedback)
        self.class_feedback = dict(class_feedback)
        for class_id, value in class_feedback.items():
            self._class_pressure[class_id] = math.sqrt(value)

    def use(self, classes: list[int]) -> None:
        """These classes are read from now on."""
        for class_id in set(range(CLASSES)) - set(classes):
            # What it counted last would look like a queue for ever.
            self.volumes.drop(class_id)
        if not set(self.classes) <= set(classes):
            self.estimate.start_empty()
        self.classes = classes

    def configure(self, config: AccessPointConfig) -> None:
        """Parameters have changed."""
        self.config = config
        self.regulated = config.features.ncr and self.port.regulated
        self.target = target_bytes(config, self.port)
        self._weights = [class_weight(config, class_id) for class_id in range(CLASSES)]

    def update(self, now: float, counted: bool = True) -> Numbers:
        """Compute; returns the indices of the flows whose feedback was looked at. `counted`: whether `volumes` have
        changed."""
        if counted:
            self._counters = self.volumes.together()
        counters = self._counters
        self.estimate.update(counters, now)
        arriving = counters.arrived_packets != self._arrived
        self._arrived = counters.arrived_packets
        ncr = self.config.ncr
        if self.regulated:
            self.feedback = self.device.update(now, self.estimate.bytes, self.target, ncr, arriving=arriving)
        elapsed = now - self._shares_at
        if elapsed < ncr.flow_interval:
            return NOBODY
        self._shares_at = now
        moved = counters.arrived_packets != self._shared_arrived
        if self.regulated and not (moved or self.active or self.class_feedback):
            # Ports without traffic cost nothing.
            return NOBODY
        self._shared_arrived = counters.arrived_packets
        looked_at = np.fromiter(self.active, np.int64, len(self.active))
        gone = looked_at[self._flows.rates.idle(looked_at, now)]
        for index in gone.tolist():
            del self.active[index]
        self._flows.active[gone] = False
        active = looked_at if not gone.size else np.fromiter(self.active, np.int64, len(self.active))
        if self.regulated:
            busy = self.estimate.bytes >= BUSY_QUEUE * self.target
            elapsed = elapsed if math.isfinite(elapsed) else 0.0
            elastic = self._flows.elastic(active, self.config.features.sparse)
            self._share_among_classes(now, elapsed, busy, active, elastic)
            self._share_among_flows(elapsed, busy, active, elastic)
            self._flows.stop(gone)
        else:
            self._reset()
            self._flows.stop(looked_at)
        return looked_at

    def _share_among_classes(self, now: float, elapsed: float, busy: bool, flows: Numbers, elastic: Floats) -> None:
        ncr = self.config.ncr
        tau = ncr.smoothing_ms / 1000
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
        pressure, desired = share_terms_of_few(
            [self._class_pressure[class_id] for class_id in at],
            elapsed,
            self.port.capacity_bps / 8,
            rates,
            [self._weights[class_id] for class_id in at],
            [min(1.0, held[class_id] / rate) if rate > 0 else 0.0 for class_id, rate in zip(at, rates, strict=True)],
            gain=ncr.beta,
            interval=ncr.flow_interval,
            limit=ncr.class_limit,
            busy=busy,
        )
        # Who is missing has gone idle and starts anew.
        self._class_pressure, self.class_desired, self.class_feedback = [0.0] * CLASSES, [0.0] * CLASSES, {}
        for class_id, term, wanted in zip(at, pressure, desired, strict=True):
            self._class_pressure[class_id], self.class_desired[class_id] = term, wanted
            self.class_feedback[class_id] = term * term

    def _share_among_flows(self, elapsed: float, busy: bool, flows: Numbers, elastic: Floats) -> None:
        """A flow's weight is its part of its class's: sum of w_i over a class is W (3.2.2); with `isolate_stations`
        first in equal parts to the stations that have flows of the class.

        A flow is counted before its ACKs are filtered; what is left is taken to be the same part of each in a class.
        """
        ncr, table = self.config.ncr, self._flows
        classes, weights = table.class_id[flows], table.weight[flows]
        if ncr.isolate_stations and flows.size:
            _, of = np.unique(np.stack((classes.astype(np.int64), table.station[flows])), axis=1, return_inverse=True)
            of = of.reshape(-1)
            weights = weights / np.bincount(of, weights)[of]
        of_class = self._weights / np.maximum(np.bincount(classes, weights, minlength=CLASSES), 1e-9)
        kept = np.array(
            [
                min(1.0, rate / arrivals.value) if arrivals.value > 0 else 1.0
                for rate, arrivals in zip(self.class_rates, self._arrivals, strict=True)
            ]
        )
        weights = weights * of_class[classes]
        pressure, desired = share_terms(
            table.pressure[flows],
            elapsed,
            self.port.capacity_bps / 8,
            table.rates.value[flows] * kept[classes],
            weights,
            elastic,
            gain=ncr.alpha,
            interval=ncr.flow_interval,
            limit=ncr.flow_limit,
            busy=busy,
        )
        feedback = pressure * pressure
        table.pressure[flows], table.feedback[flows] = pressure, feedback
        if flows.size:
            # What the largest gets, by weight: who is far below that is no reason for the queue.
            level, part = float((desired / weights).max()), self.config.sparse.fair_share
            table.allow(flows, part * level * weights if part else None)
        self.largest_flow_feedback = float(feedback.max(initial=0.0))
