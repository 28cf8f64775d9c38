# SPDX-License-Identifier: Apache-2.0
"""A law of feedback of one's own: the device term rises with the queue, in a straight line.

    .venv/bin/python -m accesspoint.controller.law try examples/own_law.py --set full=4
    ACCESSPOINT_LAWS=examples/own_law.py make lab     # `ncr.law` of the access point may be `ramp` now

Shares of flows and classes are those of the default law.
"""

from typing import ClassVar

from accesspoint.controller.law.base import DeviceTerm, Parameter
from accesspoint.controller.law.pi2 import Pi2


class RampTerm(DeviceTerm):
    """0 up to the target, the limit at `full` targets."""

    def __init__(self, full: float) -> None:
        self._full = full

    def update(self, now: float, queue: float, target: float, arriving: bool, *, limit: float, **gains: float) -> float:
        """Return the feedback of the queue of now."""
        return min(limit, max(0.0, (queue - target) / (target * (self._full - 1))))

    def resume(self, feedback: float) -> None:
        """Do nothing: it keeps nothing."""


class Ramp(Pi2):
    """The law `ramp`."""

    name = "ramp"
    parameters: ClassVar = {
        "full": Parameter(default=10, least=1.5, most=100, help="queue, in targets, where all is marked")
    }

    def device(self) -> DeviceTerm:
        """As `Law.device`."""
        return RampTerm(self.own["full"])
