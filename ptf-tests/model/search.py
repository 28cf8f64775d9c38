# SPDX-License-Identifier: Apache-2.0
"""The search for a case with which the property does not hold, and for the shortest that fails so, by Hypothesis."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from accesspoint.ptf_tests.model.connections import Corruption, Run, describe
from accesspoint.ptf_tests.model.script import Case


class Counterexample(AssertionError):
    """The property does not hold."""


@dataclass
class Tally:
    """Cases, connections and frames so far."""

    cases: int = 0
    connections: int = 0
    frames: int = 0

    def add(self, run: Run) -> None:
        """Count a case."""
        self.cases += 1
        self.connections += len(run.all)
        self.frames += len(run.sent)


@dataclass(frozen=True)
class Found:
    """A counterexample: the number of the case, the shortest case that fails so, its kind, and the report of it."""

    number: int
    kind: str
    case: Case
    report: str


def fault(run: Run) -> tuple[str, str]:
    """Run a case; return kind and report of the violation, or nothing."""
    try:
        violation = run.run()
    except Corruption as error:
        return "corruption", f"{run.case}\n\n{error}"
    return (violation.kind, describe(run.case, violation, run.start)) if violation else ("", "")


def search(
    number: int,
    strategy: st.SearchStrategy[Case],
    begin: Callable[[Case], Run],
    tally: Tally,
    shrink: bool = True,
    tries: int = 1,
) -> Found | None:
    """Draw the case of a number and run it; shrink it if it fails. `begin` puts a case on a network.

    tries: how often it must fail in the same way, where time is real.

    Hypothesis makes most of many examples by repeating parts of others, so each number has two: the first is the
    simplest that there is, and is not run.
    """
    drawn = 0
    first_kind = ""
    last: tuple[str, Case, str] | None = None

    @seed(number)
    @settings(
        max_examples=2,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(strategy)
    def hold(case: Case) -> None:
        nonlocal drawn, first_kind, last
        drawn += 1
        if drawn == 1:
            return
        run = begin(case)
        kind, report = fault(run)
        if last is None:
            tally.add(run)
        for _ in range(tries - 1):
            if not kind or fault(begin(case))[0] != kind:
                return
        if kind and kind == (first_kind or kind):  # a shorter case of another kind is another one
            first_kind = kind
            last = kind, case, report
            raise Counterexample(report)

    try:
        hold()
    except Exception:
        if last is None:
            raise
        # Also where Hypothesis finds that it does not fail each time.
        return Found(number, *last)
    return None
