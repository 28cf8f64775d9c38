# SPDX-License-Identifier: Apache-2.0
"""TCP-like senders through one port with feedback: a seeded packet simulation to tune and to guard the laws.

One FIFO port of a given capacity; bulk only, as the priority queues never reach the controller's mathematics. Senders
have windows (CUBIC, RFC 9438, with its Reno region; or Reno), delayed ACKs on a path that is never congested, ECN
with one reduction per round trip (RFC 3168), and never less than two packets in flight, as Linux. The controller sees
what it sees on a switch: counters, every 10 ms; its writes take effect one tick later. The link may carry something
else than is configured, and change.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..agent.capacity import Capacity
from ..agent.feedback import Rates
from ..agent.queue_estimate import FULL_FRAME, PortCounters, QueueEstimate
from ..config import Ncr
from . import chosen
from .base import Law
from .shares import demands, divide

TICK = 0.01
MIN_WINDOW = 2.0
CUBIC_C = 0.4


@dataclass
class Sender:
    """One upload or download of full frames; `rtt` without queueing, in seconds."""

    name: int
    rtt: float
    start: float = 0.0
    stop: float = float("inf")
    cubic: bool = True
    ecn: bool = True
    rate_limit: float = float("inf")
    weight: float = 1.0
    window: float = 10.0
    threshold: float = float("inf")
    flying: int = 0
    delivered: int = 0
    cut_at: float = -1.0
    top: float = 0.0
    epoch: float = -1.0
    smoothed_rtt: float = 0.0
    next_send: float = 0.0
    paced: bool = False
    window_at_epoch: float = 10.0
    station: int | None = None
    """Number of its station; given for all senders or for none."""

    def acknowledged(self, now: float, rtt: float) -> None:
        """One packet arrived unmarked."""
        self.smoothed_rtt = rtt if self.smoothed_rtt == 0 else 0.875 * self.smoothed_rtt + 0.125 * rtt
        if now - self.cut_at < max(self.smoothed_rtt, self.rtt):
            # Linux lets no window grow while it is being reduced (RFC 6937).
            return
        if self.window < self.threshold:
            self.window += 1
            return
        if not self.cubic:
            self.window += 1 / self.window
            return
        if self.epoch < 0:
            self.epoch = now
            self.top = max(self.top, self.window)
        k = ((self.top - self.window_at_epoch) / CUBIC_C) ** (1 / 3) if self.top > self.window_at_epoch else 0.0
        elapsed = now - self.epoch
        target = CUBIC_C * (elapsed + self.smoothed_rtt - k) ** 3 + self.top
        self.window += max(0.01, min(target - self.window, self.window / 2)) / self.window
        reno = self.window_at_epoch + 3 * 0.3 / 1.7 * elapsed / max(self.smoothed_rtt, 1e-3)
        self.window = max(self.window, reno)

    def signalled(self, now: float) -> None:
        """One packet arrived marked, or was dropped."""
        if now - self.cut_at < max(self.smoothed_rtt, self.rtt):
            return
        self.cut_at = now
        self.top = self.window * (0.85 if self.window < self.top else 1.0)
        self.window = max(MIN_WINDOW, self.window * (0.7 if self.cubic else 0.5))
        self.threshold = self.window
        self.window_at_epoch = self.window
        self.epoch = -1.0


@dataclass
class Result:
    """Measurements of a run after its warm-up."""

    seconds: float
    capacity: float
    sent: int = 0
    per_sender: dict[int, int] = field(default_factory=dict)
    delays: list[float] = field(default_factory=list)
    feedback: list[float] = field(default_factory=list)
    estimate_error: list[float] = field(default_factory=list)

    @property
    def utilisation(self) -> float:
        """Part of the capacity that was used."""
        return self.sent * FULL_FRAME / self.seconds / self.capacity

    def delay(self, part: float) -> float:
        """Return a percentile of the queueing delay in seconds."""
        delays = sorted(self.delays)
        return delays[min(len(delays) - 1, int(part * len(delays)))] if delays else 0.0

    def rate(self, name: int) -> float:
        """Bits/s of one sender."""
        return self.per_sender.get(name, 0) * FULL_FRAME * 8 / self.seconds

    @property
    def jain(self) -> float:
        """Jain's fairness index over all senders."""
        rates = list(self.per_sender.values())
        return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


def simulate(
    senders: list[Sender],
    capacity_bps: float,
    seconds: float,
    *,
    parameters: Ncr | None = None,
    law: Law | None = None,
    limit: int = 1000,
    seed: int = 1,
    warm_up: float = 5.0,
    shares: bool = True,
    watch: Callable[[float, float, float], None] | None = None,
    configured_bps: float | None = None,
    rate: Callable[[float], float] | None = None,
    retuned: Callable[[float], float] | None = None,
) -> Result:
    """Run `senders` for `seconds`; `watch(now, feedback, delay)` is called every tick.

    Args:
        law: in place of the one that `parameters` name.
        configured_bps: what the controller is told of the link; 0: nothing.
        rate: what the link carries at a time in bits/s, in place of `capacity_bps`.
        retuned: what the controller is told of the link at a time, in place of `configured_bps`.
    """
    parameters = parameters or Ncr()
    law = law or chosen(parameters.law, parameters.own)
    random_source = random.Random(seed)
    capacity = capacity_bps / 8

    def service_at(now: float) -> float:
        return FULL_FRAME * 8 / rate(now) if rate else FULL_FRAME / capacity

    events: list[tuple[float, int, str, object]] = []
    order = 0

    def at(when: float, kind: str, what: object) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (when, order, kind, what))

    queue: deque[tuple[int, float, bool, float]] = deque()
    by_name = {sender.name: sender for sender in senders}
    arrived = gone = 0
    arrivals = dict.fromkeys(by_name, 0)
    link = Capacity(capacity if configured_bps is None else configured_bps / 8)
    estimate = QueueEstimate(link.value, limit)
    device = law.device()
    rates = Rates(len(senders))
    terms, weights = np.zeros(len(senders)), np.array([sender.weight for sender in senders])
    stations = None
    if parameters.isolate_stations and all(sender.station is not None for sender in senders):
        stations = np.array([sender.station for sender in senders])
    shared_at = 0.0
    device_feedback = 0.0
    flow_feedback: dict[int, float] = {}
    next_flows = 0.0
    result = Result(seconds - warm_up, capacity, per_sender=dict.fromkeys(by_name, 0))

    def send(sender: Sender, now: float) -> None:
        nonlocal arrived
        if now >= sender.stop:
            return
        while sender.flying < int(sender.window):
            if sender.next_send > now:
                if not sender.paced:
                    sender.paced = True
                    at(sender.next_send, "paced", sender)
                return
            if sender.rate_limit < float("inf"):
                sender.next_send = max(now, sender.next_send) + FULL_FRAME * 8 / sender.rate_limit
            sender.flying += 1
            of_device = device_feedback if sender.ecn else law.dropped(device_feedback)
            feedback = min(1.0, of_device + flow_feedback.get(sender.name, 0.0))
            hit = random_source.random() < feedback
            if hit and not sender.ecn:
                at(now + sender.rtt, "lost", (sender, now))
                continue
            # What a full queue drops was counted as arrived, as on v1model.
            arrived += 1
            arrivals[sender.name] += 1
            if len(queue) >= limit:
                at(now + sender.rtt, "lost", (sender, now))
                continue
            queue.append((sender.name, now, hit, now))
            if len(queue) == 1:
                at(now + service_at(now), "leave", None)

    for sender in senders:
        at(sender.start, "send", sender)
    at(0.0, "tick", None)
    while events:
        now, _, kind, what = heapq.heappop(events)
        if now >= seconds:
            break
        if kind in ("send", "paced"):
            assert isinstance(what, Sender)
            what.paced = False
            send(what, now)
        elif kind == "leave":
            name, sent_at, hit, queued_at = queue.popleft()
            gone += 1
            if now >= warm_up:
                result.sent += 1
                result.per_sender[name] += 1
                result.delays.append(now - service_at(now) - queued_at)
            sender = by_name[name]
            at(now + sender.rtt, "ack", (sender, sent_at, hit))
            if queue:
                at(now + service_at(now), "leave", None)
        elif kind in ("ack", "lost"):
            assert isinstance(what, tuple)
            sender, sent_at = what[0], what[1]
            sender.flying -= 1
            if kind == "lost" or what[2]:
                sender.signalled(now)
            else:
                sender.acknowledged(now, now - sent_at)
            send(sender, now)
        else:
            counters = PortCounters(arrived, arrived * FULL_FRAME, gone, gone * FULL_FRAME, gone * FULL_FRAME)
            before = estimate.packets
            if retuned and (told := retuned(now) / 8) != link.configured:
                link.configure(told)
                estimate.capacity = link.value
            estimate.update(counters, now)
            link.update(gone * FULL_FRAME, gone, estimate.packets - estimate.doubt, now)
            estimate.capacity = link.value
            target = law.queue_target(
                link.value, parameters.queue_target_ms / 1000, parameters.queue_target_packets * FULL_FRAME, 0.0
            )
            device_feedback = device.update(
                now, estimate.bytes, target, estimate.packets != before or bool(queue),
                gamma=parameters.gamma, kappa1=parameters.kappa1, kappa2=parameters.kappa2,
                interval=parameters.device_interval, limit=parameters.device_limit,
            )  # fmt: skip
            if shares and now >= next_flows:
                next_flows = now + parameters.flow_interval
                volumes = np.array([arrivals[name] * FULL_FRAME for name in by_name], np.float64)
                rates.update(slice(None), volumes, now, law.averaging(parameters.smoothing_ms / 1000))
                active = ~rates.idle(slice(None), now)
                terms[~active] = 0.0
                found, elastic = rates.value[active], np.ones(int(active.sum()))
                parts = weights[active]
                if stations is not None and parts.size:
                    present, of = np.unique(stations[active], return_inverse=True)
                    levels = [(of, parts), (np.zeros(present.size, np.int64), np.ones(present.size))]
                    parts, _ = divide(link.value, demands(found, elastic), levels)
                terms[active], _ = law.shares(
                    terms[active].tolist(), now - shared_at, link.value, found.tolist(),
                    parts.tolist(), elastic.tolist(), gain=parameters.alpha,
                    interval=parameters.flow_interval, limit=parameters.flow_limit, fullness=estimate.bytes / target,
                )  # fmt: skip
                shared_at = now
                flow_feedback = dict(zip(by_name, terms.tolist(), strict=True))
            if now >= warm_up:
                result.feedback.append(device_feedback)
                result.estimate_error.append(estimate.packets - len(queue))
            if watch:
                watch(now, device_feedback, len(queue) * service_at(now))
            at(now + TICK, "tick", None)
    return result


SCENARIOS: dict[str, tuple[Callable[[], list[Sender]], float, float]] = {
    "one upload, 1 Mb/s, 4 ms": (lambda: [Sender(0, 0.004)], 1e6, 30),
    "five uploads, 1 Mb/s, 4 ms": (lambda: [Sender(n, 0.004) for n in range(5)], 1e6, 30),
    "one download, 14 Mb/s, 4 ms": (lambda: [Sender(0, 0.004)], 14e6, 30),
    "one download, 14 Mb/s, 50 ms": (lambda: [Sender(0, 0.05)], 14e6, 30),
    "one download, 20 Mb/s, 90 ms": (lambda: [Sender(0, 0.09)], 20e6, 40),
    "one download, 30 Mb/s, 40 ms": (lambda: [Sender(0, 0.04)], 30e6, 30),
    "four downloads, 30 Mb/s, 20-80 ms": (lambda: [Sender(n, 0.02 * (n + 1)) for n in range(4)], 30e6, 30),
    "fifty uploads, 3 Mb/s, 90 ms": (lambda: [Sender(n, 0.09) for n in range(50)], 3e6, 40),
    "Reno without ECN, 14 Mb/s, 20 ms": (lambda: [Sender(0, 0.02, cubic=False, ecn=False)], 14e6, 30),
}
"""Senders, bits/s, seconds."""


def table() -> str:
    """Run every scenario; return a line each: the snapshot that `test_simulation` compares."""
    lines = [f"{'scenario':34s} {'used':>6s} {'p50 ms':>7s} {'p95 ms':>7s} {'feedback':>9s} {'Jain':>6s}"]
    for name, (senders, capacity, seconds) in SCENARIOS.items():
        result = simulate(senders(), capacity, seconds)
        feedback = sum(result.feedback) / len(result.feedback)
        lines.append(
            f"{name:34s} {result.utilisation:6.3f} {result.delay(0.5) * 1000:7.1f} {result.delay(0.95) * 1000:7.1f} "
            f"{feedback:9.4f} {result.jain:6.3f}"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
