# SPDX-License-Identifier: Apache-2.0
"""One port of one access point: from what was counted to what is fed back. Pure: time is an argument.

volumes, flow rates -> queue estimate -> device term            every tick
                                      -> class and flow terms   every `flow_interval`
"""

import math
from dataclasses import dataclass

from .config import CLASS_DOWNLINK, CLASS_UPLINK, AccessPointConfig, Port
from .feedback import DeviceTerm, Measured, Rate, ShareTerms, queue_target
from .flows import Flow
from .queue_estimate import PortCounters, QueueEstimate

BUSY_QUEUE = 0.5
"""There is a queue to share when it holds this part of its target."""


@dataclass(slots=True)
class Volume:
    """What a port counted of one class since the pipeline was pushed."""

    arrived_packets: int = 0
    arrived_bytes: int = 0
    sent_packets: int = 0
    sent_bytes: int = 0
    filtered_packets: int = 0
    filtered_bytes: int = 0


def class_weight(config: AccessPointConfig, class_id: int) -> float:
    """W of a class (3.2.2)."""
    weights = config.class_weights
    return {CLASS_DOWNLINK: weights.downlink, CLASS_UPLINK: weights.uplink}.get(class_id, weights.other)


class PortRegulator:
    """The feedback of what leaves through one port."""

    def __init__(self, config: AccessPointConfig, port: Port) -> None:
        self._config = config
        self.port = port
        # A slow station must not lengthen the queue that it shares with faster ones: only uplinks count.
        uplinks = [other.capacity_bps / 8 for other in config.ports if other.role == "uplink" and other != port]
        self._ack_capacity = min(uplinks, default=math.inf) if port.role == "station" else math.inf
        self.volumes: dict[int, Volume] = {}
        self.active: dict[int, Flow] = {}
        """Flows with traffic, by index."""
        self.estimate = QueueEstimate(port.capacity_bps / 8, port.queue_limit)
        self.class_rates: dict[int, float] = {}
        """Bytes/s that arrive and are not filtered: only those need the link."""
        self._arrivals: dict[int, Rate] = {}
        self._filtered: dict[int, Rate] = {}
        self._arrived = 0
        self._shares_at = -math.inf
        self._reset()

    def _reset(self) -> None:
        self.device = DeviceTerm()
        self.class_terms: ShareTerms[int] = ShareTerms()
        self.flow_terms: ShareTerms[int] = ShareTerms()
        self.feedback = 0.0
        self.class_feedback: dict[int, float] = {}

    @property
    def regulated(self) -> bool:
        """Whether there is feedback at all."""
        return self._config.features.ncr and self.port.regulated

    @property
    def target(self) -> float:
        """q* in bytes."""
        return queue_target(self.port.capacity_bps / 8, self._config.ncr, self._ack_capacity)

    @property
    def largest_flow_feedback(self) -> float:
        """The largest flow term."""
        return max((flow.feedback for flow in self.active.values()), default=0.0)

    def update(self, now: float) -> list[Flow]:
        """Compute; returns the flows whose feedback was looked at."""
        counters = self._counters()
        self.estimate.update(counters, now)
        arriving = counters.arrived_packets != self._arrived
        self._arrived = counters.arrived_packets
        ncr = self._config.ncr
        if self.regulated:
            self.feedback = self.device.update(now, self.estimate.bytes, self.target, ncr, arriving=arriving)
        if now - self._shares_at < ncr.flow_interval:
            return []
        self._shares_at = now
        looked_at = list(self.active.values())
        self.active = {index: flow for index, flow in self.active.items() if not flow.rate.idle(now)}
        if self.regulated:
            busy = self.estimate.bytes >= BUSY_QUEUE * self.target
            self._share_among_classes(now, busy)
            self._share_among_flows(now, busy)
            for flow in looked_at:
                if flow.index not in self.active:
                    flow.feedback = 0.0
        elif self.feedback or self.class_feedback or self.flow_terms.pressure:
            self._reset()
            for flow in looked_at:
                flow.feedback = 0.0
        return looked_at

    def _counters(self) -> PortCounters:
        """All classes together."""
        volumes = self.volumes.values()
        sent_bytes = sum(volume.sent_bytes for volume in volumes)
        return PortCounters(
            arrived_packets=sum(volume.arrived_packets for volume in volumes),
            arrived_bytes=sum(volume.arrived_bytes for volume in volumes),
            gone_packets=sum(volume.sent_packets + volume.filtered_packets for volume in volumes),
            gone_bytes=sent_bytes + sum(volume.filtered_bytes for volume in volumes),
            sent_bytes=sent_bytes,
        )

    def _share_among_classes(self, now: float, busy: bool) -> None:
        ncr = self._config.ncr
        elastic: dict[int, float] = {}
        for flow in self.active.values():
            if self._elastic(flow):
                elastic[flow.class_id] = elastic.get(flow.class_id, 0.0) + flow.rate.value
        measured: dict[int, Measured] = {}
        tau = ncr.smoothing_ms / 1000
        for class_id, volume in self.volumes.items():
            arrivals = self._arrivals.setdefault(class_id, Rate(tau))
            filtered = self._filtered.setdefault(class_id, Rate(tau))
            arrivals.tau = filtered.tau = tau
            rate = arrivals.update(volume.arrived_bytes, now) - filtered.update(volume.filtered_bytes, now)
            rate = self.class_rates[class_id] = max(0.0, rate)
            if not arrivals.idle(now):
                part = min(1.0, elastic.get(class_id, 0.0) / rate) if rate > 0 else 0.0
                measured[class_id] = Measured(rate, class_weight(self._config, class_id), part)
        self.class_feedback = self.class_terms.update(
            now,
            self.port.capacity_bps / 8,
            measured,
            gain=ncr.beta,
            interval=ncr.flow_interval,
            limit=ncr.class_limit,
            busy=busy,
        )

    def _share_among_flows(self, now: float, busy: bool) -> None:
        """A flow's weight is its part of its class's: sum of w_i over a class is W (3.2.2).

        A flow is counted before its ACKs are filtered; what is left is taken to be the same part of each in a class.
        """
        ncr = self._config.ncr
        classes = {index: flow.class_id for index, flow in self.active.items()}
        weights: dict[int, float] = {}
        for index, flow in self.active.items():
            weights[classes[index]] = weights.get(classes[index], 0.0) + flow.weight
        part = {class_id: class_weight(self._config, class_id) / weight for class_id, weight in weights.items()}
        kept = {class_id: self._kept(class_id) for class_id in weights}
        measured = {
            index: Measured(
                flow.rate.value * kept[classes[index]], flow.weight * part[classes[index]], float(self._elastic(flow))
            )
            for index, flow in self.active.items()
        }
        feedback = self.flow_terms.update(
            now,
            self.port.capacity_bps / 8,
            measured,
            gain=ncr.alpha,
            interval=ncr.flow_interval,
            limit=ncr.flow_limit,
            busy=busy,
        )
        for index, flow in self.active.items():
            flow.feedback = feedback[index]

    def _elastic(self, flow: Flow) -> bool:
        """Whether feedback holds this flow back: not ACKs, and not what passes as sparse."""
        sparse = self._config.features.sparse and flow.rate.value <= flow.sparse_rate
        return not (flow.acknowledges or sparse)

    def _kept(self, class_id: int) -> float:
        """The part of what arrives of a class that is not filtered."""
        arrivals = self._arrivals.get(class_id)
        if arrivals is None or arrivals.value <= 0:
            return 1.0
        return min(1.0, self.class_rates[class_id] / arrivals.value)
