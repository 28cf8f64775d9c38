# SPDX-License-Identifier: Apache-2.0
"""Samples with known figures, in place of a measurement."""

from experiments.headline import HEADLINE
from experiments.live import Arm
from experiments.metrics import arm_summary
from experiments.runner import ArmRun
from experiments.samples import Sample

SECONDS = 24
SELF_CHECK = {
    "cpu_busy": 0.2,
    "cpu_steal": 0.0,
    "switch_cpu": 0.1,
    "controller_cpu": 0.1,
    "timer_late_p99_ms": 0.2,
    "probes_unanswered": 0,
    "congestion_control": {"downlink": "cubic", "uplink": "cubic"},
    "ecn": {"downlink": True, "uplink": True},
    "problems": [],
}


def samples(before: float = 13.0, during: float = 13.0, up: float = 0.9, ping: float = 10.0) -> list[Sample]:
    """A run of 24 s: the download's rate in the upload's third and outside of it, the upload's, and the ping (ms)."""
    result = []
    for step in range(4 * SECONDS):
        time = step / 4 + 0.125
        busy = SECONDS / 3 <= time < 2 * SECONDS / 3
        result.append(Sample(time, "downlink_mbps", during if busy else before, 0.25))
        if busy:
            result.append(Sample(time, "uplink_mbps", up, 0.25))
        for quantity in ("ping_ms", "delay_up_ms", "delay_down_ms"):
            result.append(Sample(time, quantity, ping + step % 4 if busy else 4.0))
    return result


def run(arm: Arm, **figures: float) -> ArmRun:
    """A finished run of an arm."""
    measured = samples(**figures)
    summary = arm_summary(HEADLINE, measured, SECONDS) | {"self_check": SELF_CHECK}
    return ArmRun(arm, started=1_700_000_000.0, samples=measured, summary=summary)


def runs() -> list[ArmRun]:
    """Collapse, ACKs first, and cure."""
    figures = (
        {"during": 2.0, "up": 0.92, "ping": 580.0},
        {"during": 13.0, "up": 0.63, "ping": 400.0},
        {"during": 12.9, "up": 0.87, "ping": 9.0},
    )
    return [run(arm, **values) for arm, values in zip(HEADLINE.arms, figures, strict=True)]
