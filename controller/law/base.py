# SPDX-License-Identifier: Apache-2.0
"""Interface of a law of feedback. The feedback of a packet is the sum of three terms, (1):

    F_i = f_i + f_class(i) + f_device, within [0, 1]

The first two are updated every T_n, the last every T_m. Each reaches the data plane by itself, which adds them,
saturating at 1; so each is within [0, 1] as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

IDLE_SECONDS = 1.0
"""Seconds without traffic after which a busy period (3.2.1) is over, and a term restarts: its errors belong to that."""

BUSY_QUEUE = 0.5
"""There is a queue to share when it holds this part of its target."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a law's own: its default, its bounds, and its effect in a sentence."""

    default: float
    least: float
    most: float
    help: str


class DeviceTerm:
    """The device term of one port (3.2.3)."""

    def update(
        self,
        now: float,
        queue: float,
        target: float,
        arriving: bool,
        *,
        gamma: float,
        kappa1: float,
        kappa2: float,
        interval: float,
        limit: float,
    ) -> float:
        """Compute the feedback of the port.

        Args:
            now: seconds, never going back.
            queue: q in bytes.
            target: q* in bytes, above 0.
            arriving: whether anything entered the queue since the last update.
            interval: T_m in seconds.
            limit: the largest feedback.
        """
        raise NotImplementedError

    def resume(self, feedback: float) -> None:
        """Resume from the feedback that the data plane has."""
        raise NotImplementedError


class Law:
    """One law; it has no state of its own.

    Args:
        own: values of `parameters`, within their bounds; those that are missing have their defaults.
    """

    name = ""
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    """Parameters of its own by name, beside those that the interface names: `ncr.own` in the configuration."""
    exact = False
    """True when every change of a term is written to the data plane, however small."""
    scalable_queue = False
    """True when the feedback of scalable senders lets them wait in a queue of their own, ahead of the bulk."""
    thins = True
    """True when flows of small packets that ask for more than their fair share go ahead, and what is above is dropped,
    in place of the law's flow term (`FlowTable.thin`)."""

    def __init__(self, **own: float) -> None:
        self.own = {name: own.get(name, parameter.default) for name, parameter in self.parameters.items()}

    def scalable(self, feedback: float) -> float:
        """Return the feedback of scalable senders (RFC 9330), whose window goes with 1/feedback, for a classic one."""
        raise NotImplementedError

    def dropped(self, feedback: float) -> float:
        """Return the device term's drops of packets that are not ECN-capable, where it marks `feedback` of the rest."""
        raise NotImplementedError

    def averaging(self, seconds: float) -> float:
        """Return the time constant of measured rates for the configured one; 0: the rate of one interval."""
        raise NotImplementedError

    def queue_target(self, capacity: float, delay: float, least: float, frame_time: float) -> float:
        """q* in bytes.

        Args:
            capacity: C in bytes/s.
            delay: q* as seconds at C.
            least: q* in bytes at least.
            frame_time: seconds that a frame keeps the ACKs waiting which clock out what this port sends.
        """
        raise NotImplementedError

    def shares(
        self,
        before: list[float],
        elapsed: float,
        capacity: float,
        rates: list[float],
        weights: list[float],
        elastic: list[float],
        *,
        gain: float,
        interval: float,
        limit: float,
        fullness: float,
    ) -> tuple[list[float], list[float]]:
        """Compute the flow terms, or the class terms, of one port (3.2.1, 3.2.2); a place in each list for each.

        Args:
            before: the feedback at the last update; 0 for who was idle.
            elapsed: seconds since then.
            capacity: C in bytes/s; 0 means that nothing is known to be shared, and there is no feedback.
            rates: M as bytes/s.
            weights: w, or W of a class; above 0.
            elastic: which part of each would take more.
            gain: alpha or beta.
            interval: T_n in seconds.
            limit: the largest feedback.
            fullness: q / q*.

        Returns:
            The new feedback, and D in bytes/s.
        """
        raise NotImplementedError

    def device(self) -> DeviceTerm:
        """Return the device term of a port, at its beginning."""
        raise NotImplementedError
