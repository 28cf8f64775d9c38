# SPDX-License-Identifier: Apache-2.0
"""A port and the senders through it as averages, in steps of 2 ms: what a law of feedback is judged stable on.

The windows are those of Reno (Misra, Gong and Towsley 2000): a segment more per round trip, half of them less per
marked one, two segments at least, as Linux has it; feedback acts a round trip later. Everything is equal for all
senders. There is neither chance nor packets here: what swings, swings by the law. `simulation` has those.
"""

from dataclasses import dataclass
from statistics import fmean, pstdev

from accesspoint.controller.agent.queue_estimate import FULL_FRAME
from accesspoint.controller.agent.regulator import queue_target
from accesspoint.controller.config import Ncr
from accesspoint.controller.law import LAWS

STEP = 0.002
LIMIT = 1000
"""Frames that the port's queue holds."""


@dataclass(frozen=True)
class Settled:
    """The second half of a run. queue, swing: mean and standard deviation of the queue as parts of its target."""

    queue: float
    swing: float
    used: float
    feedback: float


def settle(ncr: Ncr, bps: float, rtt: float, senders: int, seconds: float = 60.0) -> Settled:
    """Run so many senders with a round trip of `rtt` seconds through a port of `bps` bits/s, from a full link on."""
    law, capacity = LAWS[ncr.law], bps / 8
    target = queue_target(capacity, ncr)
    device, flow, port = law.device(), 0.0, 0.0
    window, queue, now = max(2.0, capacity * rtt / FULL_FRAME / senders), 0.0, 0.0
    device_due = flows_due = 0.0
    fed_back: list[float] = []
    queues, used = [], []
    while now < seconds:
        round_trip = rtt + queue / capacity
        back = round(round_trip / STEP)
        marked = fed_back[-back] if len(fed_back) >= back else 0.0
        rate = window / round_trip
        window = max(2.0, window + STEP * (1 / round_trip - marked * rate * window / 2))
        arriving = senders * rate * FULL_FRAME
        before, queue = queue, min(LIMIT * FULL_FRAME, max(0.0, queue + (arriving - capacity) * STEP))
        queues.append(queue / target)
        used.append(min(1.0, (arriving - (queue - before) / STEP) / capacity))
        if now >= flows_due:
            flows_due += ncr.flow_interval
            (flow, *_), _ = law.shares(
                [flow] * senders, ncr.flow_interval, capacity, [arriving / senders] * senders, [1.0] * senders,
                [1.0] * senders, gain=ncr.alpha, interval=ncr.flow_interval, limit=ncr.flow_limit,
                fullness=queue / target,
            )  # fmt: skip
        if now >= device_due:
            device_due += ncr.device_interval
            port = device.update(
                now, queue, target, True, gamma=ncr.gamma, kappa1=ncr.kappa1, kappa2=ncr.kappa2,
                interval=ncr.device_interval, limit=ncr.device_limit,
            )  # fmt: skip
        fed_back.append(min(1.0, flow + port))
        now += STEP
    half = len(queues) // 2
    return Settled(fmean(queues[half:]), pstdev(queues[half:]), fmean(used[half:]), fmean(fed_back[half:]))
