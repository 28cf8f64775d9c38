# SPDX-License-Identifier: Apache-2.0
"""Makes the runs of plans: what is missing, unfit ones once more, with progress; stops cleanly and can go on later."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from accesspoint.experiments.execution.pool import Outcome, Pool
from accesspoint.experiments.runs.plan import Needs, Order, Plan, needs
from accesspoint.experiments.runs.store import Run, Store, second
from accesspoint.topologies.requirements import LabError

ROOM = 0.7  # of the CPU: below that one more run may begin
MAX_FAILURES = 3  # in a row: then something is wrong with more than a run


@dataclass
class Tally:
    """Counts of runs by outcome."""

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
        self._stores: dict[str, Store] = {}
        self._failures = 0
        self._single = {plan.experiment for plan, _ in work if plan.single}
        self._begun: dict[str, Order] = {}
        self.tally = Tally()
        missing = []
        for plan, store in work:
            store.discard_parts()
            self._stores[plan.experiment] = store
            missing.append(store.missing(plan))
        self._needs: dict[str, Needs] = {order.key: needs(order) for orders in missing for order in orders}
        self._pending = self._mixed(missing)
        self._wanted = len(self._pending)
        self._done = 0.0

    def _mixed(self, missing: Sequence[Sequence[Order]]) -> list[Order]:
        """Sort orders by when they may begin. A run that needs the machine alone starts as soon as the one before has
        ended. Orders of each other experiment are spread over the whole time, as heavy runs and light ones together
        fill the machine better than runs of one kind; long ones begin earlier by so much that all experiments end
        together."""
        work = sum(each.seconds * each.load for each in self._needs.values()) / max(1, self._pool.places())
        begin = {
            order.key: (not self._needs[order.key].solo, work * place / len(orders) - self._needs[order.key].seconds)
            for orders in missing
            for place, order in enumerate(orders, start=1)
        }
        return sorted((order for orders in missing for order in orders), key=lambda order: begin[order.key])

    def run(self) -> Tally:
        """Make runs until none is missing. Raises LabError when runs keep failing; finished runs stay."""
        started, cpu = time.monotonic(), time.process_time()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[runs]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            TextColumn("{task.fields[live]}"),
        )
        progress = Progress(
            *columns, console=self._console, auto_refresh=False, disable=not self._console.is_terminal,
            speed_estimate_period=600,
        )  # fmt: skip
        try:
            with progress:
                task = progress.add_task("running", total=self._total() or 1, runs="", live="")
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
            while (order := self._next()) is not None:
                self._pending.remove(order)
                self._begun[order.key] = order
                self._pool.start(order, self._stores[order.experiment])
            self.tally.side_by_side = max(self.tally.side_by_side, len(self._pool.running()))
            for outcome in self._pool.finished():
                self._take(outcome)
            running = self._pool.running()
            under_way = sum(min(since, self._needs[name].seconds) for name, since in running.items())
            progress.update(
                task, completed=self._done + under_way, total=self._total(),
                description=self._described(sorted(running)), runs=f"{self._ended()}/{self._wanted}", live=self._live(),
                refresh=True,
            )  # fmt: skip

    def _described(self, running: Sequence[str]) -> str:
        """Names of the running runs, without their experiment's where there is one."""
        names = running if len(self._stores) > 1 else [key.partition("/")[2] for key in running]
        return ", ".join(names)[:60] or "running"

    def _live(self) -> str:
        """The live line of the run that has the machine to itself."""
        running = [self._begun[key] for key in self._pool.running()]
        return self._stores[running[0].experiment].live(running[0]) if len(running) == 1 else ""

    def _total(self) -> float:
        return sum(each.seconds for each in self._needs.values())

    def _next(self) -> Order | None:
        """Return the first order that there is room for."""
        running = [self._needs[name] for name in self._pool.running()]
        if self._careful and len(running) >= int(self._side_by_side):
            return None
        return next((order for order in self._pending if self._pool.room(self._needs[order.key], running)), None)

    def _learn(self, run: Run) -> None:
        """Additive increase while runs are fit and leave the machine room, multiplicative decrease when not."""
        if not run.fit:
            self._side_by_side = max(1.0, self._side_by_side / 2)
        elif run.facts["self_check"].get("cpu_busy", 1.0) < ROOM and self._side_by_side < self._pool.places():
            self._side_by_side += 1 / int(self._side_by_side)

    def _take(self, outcome: Outcome) -> None:
        order, run = outcome.order, outcome.run
        self._done += self._needs[order.key].seconds
        if run is None:
            self._failures += 1
            stop = LabError(f"{order.key}: {outcome.error}; finished runs are kept, `resume` continues from there")
            if "No space left" in outcome.error:
                raise stop
            run = self._stores[order.experiment].keep_failure(order, outcome.error)
            if self._failures >= MAX_FAILURES or order.experiment in self._single:
                raise stop
        else:
            self._failures = 0
        self._learn(run)
        problem = "; ".join(run.problems)
        if run.fit:
            self.tally.made += 1
            if not self._console.is_terminal:
                self._say(f"{self._ended()} of {self._wanted}: {order.key}: done")
        elif order.attempt == 1 and order.experiment not in self._single:
            again = second(order)
            self._needs[again.key] = self._needs[order.key]
            solo = sum(self._needs[each.key].solo for each in self._pending)  # those come first
            self._pending.insert(solo if self._needs[again.key].solo else len(self._pending), again)
            self._say(f"{self._ended()} of {self._wanted}: {order.key}: unfit, once more: {problem}")
        else:
            self.tally.unfit.append(f"{order.key}: {problem}")
            self._say(f"{self._ended()} of {self._wanted}: {order.key}: unfit: {problem}")

    def _ended(self) -> int:
        return self.tally.made + len(self.tally.unfit)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)
