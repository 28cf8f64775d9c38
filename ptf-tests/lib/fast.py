# SPDX-License-Identifier: Apache-2.0
"""`run.py --connections N`: modelled connections on apswitch in virtual time, on all processors.

Each case has a number, the first that of the seed, until N connections were drawn. Workers take turns.
"""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from accesspoint.ptf_tests.lib.simulated import Program, VirtualNetwork
from accesspoint.ptf_tests.model.connections import Run
from accesspoint.ptf_tests.model.script import Case, cases
from accesspoint.ptf_tests.model.search import Found, Tally, fault, search

MAX_FOUND = 3  # counterexamples of a run
EVERY = 0.5  # s between a worker's reports
PATIENCE = 600.0  # s, for a worker that shrinks


@dataclass
class Networks:
    """A switch for each limit that cases have."""

    program: Program
    networks: dict[int, VirtualNetwork] = field(default_factory=dict)

    def begin(self, case: Case) -> Run:
        """Put a case on its switch."""
        if case.limit not in self.networks:
            self.networks[case.limit] = VirtualNetwork(self.program, case.limit)
        network = self.networks[case.limit]
        network.next_case()
        return Run(case, network)

    def close(self) -> None:
        """End the switches."""
        for network in self.networks.values():
            network.close()
        self.networks.clear()


def failing(program: Program, numbers: range, known: frozenset[int] = frozenset()) -> Iterator[Found]:
    """Return those of the cases that fail, as they are drawn, but for the known ones."""
    networks, tally, strategy = Networks(program), Tally(), cases()
    try:
        for number in numbers:
            if number not in known and (found := search(number, strategy, networks.begin, tally, shrink=False)):
                yield found
    finally:
        networks.close()


def confirm(found: Found, program: Program) -> Found:
    """Run a counterexample on a new switch, which has seen no other case."""
    networks = Networks(program)
    kind, report = fault(networks.begin(found.case))
    networks.close()
    note = "" if report else "On a new switch this case holds: it fails after others, whose state it finds.\n\n"
    return Found(found.number, kind or found.kind, found.case, note + (report or found.report))


def work(first: int, step: int, strict: bool, p4info: Path, device_config: bytes, answers: Any, stop: Any) -> None:
    """Run every `step`th case until told to stop."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    networks, tally = Networks(Program(p4info, device_config)), Tally()
    strategy, number, told = cases(strict=strict), first, time.monotonic()
    try:
        while not stop.is_set():
            found = search(number, strategy, networks.begin, tally)
            if found:
                answers.put(("found", confirm(found, networks.program)))
            if found or time.monotonic() - told > EVERY or tally.connections >= 100:
                answers.put(("tally", tally))
                tally, told = Tally(), time.monotonic()
            number += step
    except Exception as error:
        answers.put(("error", f"case {number}: {type(error).__name__}: {error}"))
    answers.close()
    answers.join_thread()
    networks.close()


def run(
    connections: int, seed: int, strict: bool, p4info: Path, device_config: Path, workers: int
) -> tuple[Tally, list[Found]]:
    """Run cases from the seed on until so many connections were drawn; return what was run, and counterexamples."""
    if connections < 100:
        workers = 1
    answers: Any = multiprocessing.Queue()
    stop = multiprocessing.Event()
    config = device_config.read_bytes()
    started = [
        multiprocessing.Process(
            target=work, args=(seed + one, workers, strict, p4info, config, answers, stop), daemon=True
        )
        for one in range(workers)
    ]
    for process in started:
        process.start()
    total = Tally()
    found: list[Found] = []
    columns = TextColumn("connections"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=connections)
        try:
            while total.connections < connections and len(found) < MAX_FOUND:
                kind, what = answers.get(timeout=PATIENCE)
                if kind == "error":
                    raise RuntimeError(what)
                if kind == "found":
                    found.append(what)
                else:
                    total.cases += what.cases
                    total.connections += what.connections
                    total.frames += what.frames
                    progress.update(task, completed=min(total.connections, connections))
        except Empty:
            raise RuntimeError(f"no worker has said anything for {PATIENCE:.0f} s") from None
        finally:
            stop.set()
            for process in started:
                process.terminate()
                process.join()
    return total, found
