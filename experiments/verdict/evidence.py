# SPDX-License-Identifier: Apache-2.0
"""Types and functions for the evidence of a claim: figures of experiments, by repeats."""

from collections.abc import Callable
from typing import Protocol

from accesspoint.experiments.experiment import Value
from accesspoint.experiments.verdict.claims import Point, Repeats


class Measured(Protocol):
    """A figure of an experiment's arm at a point of the experiment; None: it was not run."""

    def __call__(self, experiment: str, measure: str, arm: str, **point: Value) -> Repeats | None: ...


Answers = Callable[[Measured, str, Point | None], Repeats | None]
"""Function of measured figures, and of an arm and a point as the claim calls them, to the claim's figure."""


def both(one: Repeats | None, other: Repeats | None, how: Callable[[Repeats, Repeats], Repeats]) -> Repeats | None:
    return how(one, other) if one is not None and other is not None else None


def times(one: Repeats | None, factor: float) -> Repeats | None:
    return one * factor if one is not None else None
