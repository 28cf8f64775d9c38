# SPDX-License-Identifier: Apache-2.0
"""Shares of a port's capacity among flows in groups: first by class, then by station, then by flow."""

import itertools

import numpy as np
import numpy.typing as npt

from .pi2 import PROBE, desired_volumes

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Level = tuple[Numbers, Floats]
"""For each member of a level the number of its group in the level above, and its weight in that."""

MIN_SHARE = 1.0  # byte/s
WAIT_SECONDS = 0.25
"""Seconds in which who waits asks to be sent."""


def demands(rates: Floats, elastic: Floats) -> Floats:
    """Return what flows ask for, in the units of `rates`: who would take more (`elastic`) asks for more than it has."""
    return rates * (1 + PROBE * elastic)


def demands_behind(rates: Floats, elastic: Floats, waiting: Floats) -> Floats:
    """Return what flows ask for, in bytes/s, where others go ahead of those that are `elastic`.

    The rate of these says little: a sender that hears nothing sends nothing, and one with the least window sends
    what is left to it. So they ask for twice that, and for the bytes that are `waiting`.
    """
    return rates + elastic * (rates + waiting / WAIT_SECONDS)


def divide(capacity: float, asked: Floats, levels: list[Level]) -> tuple[Floats, Floats]:
    """Divide `capacity` among groups, what each gets among its own groups, and so on, by weighted max-min.

    A group keeps what some of its members do not ask for as long as others do.

    Args:
        capacity: what there is, as bytes/s.
        asked: what each flow asks for, as bytes/s.
        levels: the innermost first, whose members are the flows; the groups of the outermost are all 0.

    Returns:
        Each flow's part, all in all `capacity`, and `MIN_SHARE` at least, so that it can be a weight; and the part that
        it could have if it asked for more. Both as bytes/s.
    """
    wanted = [asked]
    for (groups, _), (above, _) in itertools.pairwise(levels):
        wanted.append(np.bincount(groups, wanted[-1], above.size).astype(np.float64))
    given = fair = np.array([capacity])
    for (groups, weights), want in zip(reversed(levels), reversed(wanted), strict=True):
        shares, level = given[groups], fair / np.bincount(groups, weights)
        if shares.size > given.size:  # who is alone has all of its group's
            order = np.argsort(groups, kind="stable")
            for at in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
                group = groups[at[0]]
                shares[at] = desired_volumes(float(given[group]), want[at].tolist(), weights[at].tolist())
                level[group] = max(level[group], float((shares[at] / weights[at]).max()))
        given, fair = shares, level[groups] * weights
    return np.maximum(given, MIN_SHARE), fair
