# SPDX-License-Identifier: Apache-2.0
"""A law over the scenarios of `simulation`, beside those of the package: a table, and a picture of the queues.

Raises `LawError` where the law's own code fails, with the scenario.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..config import Ncr
from .base import Law
from .own import LawError
from .simulation import SCENARIOS, Result, simulate

HEAD = f"{'scenario':34s} {'law':>10s} {'used':>6s} {'p50 ms':>8s} {'p95 ms':>8s} {'feedback':>9s} {'Jain':>6s}"
SECONDS_SHOWN = 15.0
"""Curves of each run, from its beginning on."""


@dataclass
class Run:
    """A law in a scenario: its figures, and the queue in ms every 10 ms."""

    scenario: str
    law: str
    result: Result
    queue: list[tuple[float, float]]

    def __str__(self) -> str:
        result = self.result
        feedback = sum(result.feedback) / len(result.feedback)
        return (
            f"{self.scenario:34s} {self.law:>10s} {result.utilisation:6.3f} {result.delay(0.5) * 1000:8.1f} "
            f"{result.delay(0.95) * 1000:8.1f} {feedback:9.4f} {result.jain:6.3f}"
        )


def runs(laws: list[Law], parameters: Ncr, only: str = "", seed: int = 1) -> Iterator[Run]:
    """Run every law in each scenario whose name contains `only`, one after the other."""
    for name, (senders, capacity, seconds) in SCENARIOS.items():
        for law in laws if only in name else []:
            queue: list[tuple[float, float]] = []

            def watch(now: float, feedback: float, delay: float, queue: list[tuple[float, float]] = queue) -> None:
                if not 0 <= feedback <= 1:  # False for what is no number
                    raise LawError(f"the device term is {feedback} at {now:.2f} s: it must be within 0 and 1")
                queue.append((now, delay * 1000))

            try:
                result = simulate(senders(), capacity, seconds, parameters=parameters, law=law, seed=seed, watch=watch)
            except Exception as error:  # code of others
                raise LawError(f"law '{law.name}' in '{name}': {type(error).__name__}: {error}") from error
            yield Run(name, law.name, result, queue)


def draw(found: list[Run], path: Path) -> None:
    """Draw the queue of each scenario over time, a line for each law, as SVG. Raises LawError without matplotlib."""
    try:
        from matplotlib.figure import Figure  # a second that other commands need not wait for
    except ImportError:
        # An access point's package has no need of it.
        raise LawError("nothing is drawn: matplotlib is missing: pip install matplotlib") from None
    names = list(dict.fromkeys(run.scenario for run in found))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for place in axes.flat[len(names) :]:
        place.set_axis_off()
    for place, name in zip(axes.flat, names, strict=False):
        for run in (run for run in found if run.scenario == name):
            shown = [(now, delay) for now, delay in run.queue if now <= SECONDS_SHOWN]
            label = f"{run.law}: {run.result.utilisation:.1%} used, Jain {run.result.jain:.2f}"
            place.plot(*zip(*shown, strict=True), label=label, linewidth=1)
        place.set_title(name, fontsize=9)
        place.set_xlabel("s", fontsize=8)
        place.set_ylabel("queue in ms", fontsize=8)
        place.set_ylim(bottom=0)
        place.tick_params(labelsize=8)
        place.grid(alpha=0.25)
        place.legend(fontsize=7, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
