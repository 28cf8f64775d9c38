# SPDX-License-Identifier: Apache-2.0
"""Makes the runs of plans: what is missing, unfit ones once more, with progress; stops cleanly and can go on later."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from experiments.plan import OVERHEAD, Order, Plan
from experiments.pool import Outcome, Pool
from experiments.store import Run, Store, second
from topologies.requirements import LabError

ROOM = 0.7  # of the CPU: below that one more run may begin
MAX_FAILURES = 3  # in a row: then something is wrong with more than a run


@dataclass
class Tally:
    """What happened to the runs."""

    made: int = 0
    unfit: list[str] = field(default_factory=list)
    side_by_side: int = 1  # at most
    cpu: float = 0.0  # cores that this process took


class Execution:
    """Some plans at work."""

    def __init__(self, work: Sequence[tuple[Plan, Store]], pool: Pool, console: Console, careful: bool = False) -> None:
        """careful: begins with one run at a time and makes as many as the self-check allows; else the pool's."""
        self._pool, self._console = pool, console
        self._careful, self._side_by_side = careful, 1.0
        self._pending: deque[tuple[Order, Store]] = deque()
        self._stores: dict[str, Store] = {}
        self._failures = 0
        self.tally = Tally()
        mixed: list[tuple[float, Order, Store]] = []
        for plan, store in work:
            store.discard_parts()
            self._stores[plan.experiment] = store
            missing = store.missing(plan)
            mixed += [(place / len(missing), order, store) for place, order in enumerate(missing)]
        # A heavy experiment's runs beside light ones' fill the machine better than beside each other.
        self._pending += [(order, store) for _, order, store in sorted(mixed, key=lambda entry: entry[0])]
        self._lengths = {order.key: order.seconds + OVERHEAD for order, _ in self._pending}
        self._done = 0.0

    def run(self) -> Tally:
        """Until nothing is missing. Raises LabError when runs keep failing; what is finished stays."""
        started, cpu = time.monotonic(), time.process_time()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[runs]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
        )
        total = len(self._pending)
        progress = Progress(
            *columns, console=self._console, refresh_per_second=2, disable=not self._console.is_terminal,
            speed_estimate_period=600,
        )  # fmt: skip
        try:
            with progress:
                task = progress.add_task("running", total=sum(self._lengths.values()) or 1, runs=f"0/{total} runs")
                self._loop(progress, task)
        finally:
            self._pool.stop()
            for store in self._stores.values():
                store.discard_parts()
        self.tally.cpu = round((time.process_time() - cpu) / max(1e-3, time.monotonic() - started), 4)
        return self.tally

    def _loop(self, progress: Progress, task: TaskID) -> None:
        waiting = False
        while self._pending or self._pool.running():
            if not self._pool.places() and not waiting:
                self._say("no worker is there: waiting for one")
            waiting = not self._pool.places()
            while self._pending and len(self._pool.running()) < self._allowed():
                self._pool.start(*self._pending.popleft())
            for outcome in self._pool.finished():
                self._take(outcome)
            running = self._pool.running()
            under_way = sum(min(since, self._lengths.get(name, since)) for name, since in running.items())
            left = len(self._pending) + len(running)
            progress.update(
                task, completed=self._done + under_way, total=sum(self._lengths.values()),
                description=", ".join(sorted(running))[:60] or "running", runs=f"{self.tally.made} runs, {left} to go",
            )  # fmt: skip

    def _allowed(self) -> int:
        places = self._pool.places()
        return min(places, int(self._side_by_side)) if self._careful else places

    def _learn(self, run: Run) -> None:
        """Additive increase while runs are fit and leave the machine room, multiplicative decrease when not."""
        if not run.fit:
            self._side_by_side = max(1.0, self._side_by_side / 2)
        elif run.facts["self_check"].get("cpu_busy", 1.0) < ROOM and self._side_by_side < self._pool.places():
            self._side_by_side += 1 / int(self._side_by_side)
        self.tally.side_by_side = max(self.tally.side_by_side, int(self._side_by_side))

    def _take(self, outcome: Outcome) -> None:
        order, run = outcome.order, outcome.run
        self._done += self._lengths[order.key]
        if run is None:
            self._failures += 1
            stop = LabError(f"{order.key}: {outcome.error}; finished runs are kept, `resume` goes on from there")
            if "No space left" in outcome.error:
                raise stop
            run = self._stores[order.experiment].keep_failure(order, outcome.error)
            if self._failures >= MAX_FAILURES:
                raise stop
        else:
            self._failures = 0
        self._learn(run)
        problem = "; ".join(run.problems)
        if run.fit:
            self.tally.made += 1
            if not self._console.is_terminal:
                self._say(f"{order.key}: done")
        elif order.attempt == 1:
            again = second(order)
            self._lengths[again.key] = order.seconds + OVERHEAD
            self._pending.append((again, self._stores[order.experiment]))
            self._say(f"{order.key}: unfit, once more: {problem}")
        else:
            self.tally.unfit.append(f"{order.key}: {problem}")
            self._say(f"{order.key}: unfit: {problem}")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)
