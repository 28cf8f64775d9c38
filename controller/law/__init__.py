# SPDX-License-Identifier: Apache-2.0
"""The laws of feedback, a module each. Pure: numbers and time in, probabilities out; nothing of the controller.

    base    interface of a law to the loop
    paper   the law of the paper, as it is written there
    pi2     the default law; docs/controller/laws.md says why
    own     laws of the user's: files that ACCESSPOINT_LAWS names, and entry points
    trial   `python -m accesspoint.controller.law try FILE`

The paper is "Protecting Download Traffic from Upload Traffic over Asymmetric Wireless Links" (2018), sections 3.1 and
3.2. Its equations are known only where its prose says what they hold; the numbers in parentheses are its own.
"""

import functools
from collections.abc import Mapping

from . import own
from .base import Law
from .paper import Paper
from .pi2 import Pi2

LAWS: dict[str, Law] = {law.name: law for law in (Paper(), Pi2())}
"""The laws by their names in the configuration (`ncr.law`), with the defaults of their parameters."""

BROKEN: list[str] = own.add(LAWS)
"""A line for each file and entry point of the user's that has no law to offer."""


def chosen(name: str, values: Mapping[str, float]) -> Law:
    """Return the law of this name with these parameters of its own, the same object for the same values."""
    return _chosen(name, tuple(sorted(values.items())))


@functools.lru_cache(maxsize=64)
def _chosen(name: str, values: tuple[tuple[str, float], ...]) -> Law:
    return type(LAWS[name])(**dict(values)) if values else LAWS[name]
