# SPDX-License-Identifier: Apache-2.0
"""`make test`: every test, or those of one part, and at the end what ran, what was skipped and how to have that run.

.venv/bin/python tools/test.py [PART...]
"""

import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
BMV2 = "simple_switch_grpc"
LABS = {"hosts/tests", "controller", "topologies", "experiments", "tests"}
"""Folders whose tests run in real time: other work on the machine can disturb them."""
MAX_RETRIES = 3
"""Tests of such a room that are run once more when they have failed; more are no chance."""


@dataclass
class Outcome:
    """Outcome of a part. skipped: reason -> number of tests; again: those that passed at the second time only.

    shown: the commands' output comes at once; else when each has ended, as other parts run at the same time."""

    shown: bool = True
    failed: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    once_more: list[tuple[tuple[str, ...], list[str]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def run(outcome: Outcome, *command: str) -> int:
    print(f"== {' '.join(command)}", flush=True)
    if outcome.shown:
        return subprocess.run(command, cwd=ROOT).returncode
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    print(f"\n-- {' '.join(command)} ({time.monotonic() - began:.0f} s)\n{done.stdout}", end="", flush=True)
    return done.returncode


def call(outcome: Outcome, *command: str) -> bool:
    """Run a command, and return whether it succeeded."""
    if code := run(outcome, *command):
        outcome.failed.append(f"`{' '.join(command)}` ended with {code}")
    return not code


def pytest(outcome: Outcome, *folders: str) -> None:
    # Failures are kept for each part apart: others run at the same time.
    command = (PYTHON, "-m", "pytest", "-q", "-o", f"cache_dir=.pytest_cache/{folders[0]}")
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        code = run(outcome, *command, f"--junit-xml={report}", *folders)
        broken = []
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
            ends = [child for child in case if child.tag in ("failure", "error", "skipped")]
            outcome.counts[ends[0].tag if ends else "passed"] += 1
            if ends and ends[0].tag == "skipped":
                outcome.skipped[ends[0].get("message") or "no reason given"] += 1
            elif ends:
                broken.append(f"{case.get('classname')}::{case.get('name')}")
    if code == 1 and LABS.intersection(folders) and 0 < len(broken) <= MAX_RETRIES:
        outcome.once_more.append(((*command, "--last-failed", "--last-failed-no-failures=none", *folders), broken))
    elif code:
        outcome.failed.append(f"`{' '.join((*command, *folders))}` ended with {code}")


def once_more(outcome: Outcome) -> None:
    """Repeat the tests of labs that failed, when no other part runs any more."""
    for command, broken in outcome.once_more:
        if call(outcome, *command):
            outcome.again += broken


def cargo_test(room: str, *words: str) -> list[str]:
    return ["cargo", "test", "--release", "--quiet", "--manifest-path", f"{room}/Cargo.toml", *words]


def cargo(outcome: Outcome, room: str) -> None:
    call(outcome, *cargo_test(room))


def side_by_side(*rows: Callable[[], object]) -> None:
    with ThreadPoolExecutor(len(rows)) as pool:
        for done in [pool.submit(row) for row in rows]:
            done.result()


def compile_tests(outcome: Outcome) -> None:
    """Compile before anything else: no test in real time then finds a program exchanged, or waits for a compiler."""
    side_by_side(*(partial(call, outcome, *cargo_test(room, "--no-run")) for room in ("switch", "hosts")))


def check(outcome: Outcome) -> None:
    """Run the checks with the processors' idle time: tests in real time run meanwhile."""
    for part in ("check-python", "check-switch", "check-hosts"):
        call(outcome, "chrt", "--idle", "0", "make", "--no-print-directory", part)


def switch(outcome: Outcome) -> None:
    cargo(outcome, "switch")
    pytest(outcome, "switch/tests")


def hosts(outcome: Outcome) -> None:
    pytest(outcome, "hosts/tests")
    cargo(outcome, "hosts")


def ptf(outcome: Outcome) -> None:
    call(outcome, PYTHON, "ptf-tests/run.py", "--target", "apswitch")
    call(outcome, PYTHON, "ptf-tests/run.py", "--target", "apswitch", "--connections", "200")
    if shutil.which(BMV2):
        call(outcome, PYTHON, "ptf-tests/run.py", "--target", "bmv2")
        call(outcome, PYTHON, "ptf-tests/run.py", "--target", "bmv2", "--connections", "50")
    else:
        outcome.skipped[f"packet tests on BMv2: {BMV2} is not on PATH: install BMv2 as docs/targets.md says"] += 1


def mutants(outcome: Outcome) -> None:
    call(outcome, PYTHON, "-m", "accesspoint.ptf_tests.mutants")


PARTS = {
    "compile": compile_tests,
    "check": check,
    "switch": switch,
    "hosts": hosts,
    "controller": lambda outcome: pytest(outcome, "controller"),
    "topologies": lambda outcome: pytest(outcome, "topologies"),
    "experiments": lambda outcome: pytest(outcome, "experiments"),
    "project": lambda outcome: pytest(outcome, "tests"),
    "ptf": ptf,
    "mutants": mutants,
}
WHAT = {
    "compile": "the Rust tests of switch and hosts",
    "check": "format, lint, types",
    "switch": "apswitch: cargo test, switch/tests",
    "hosts": "end hosts: cargo test, hosts/tests",
    "controller": "controller, REST, page, apctl",
    "topologies": "labs and Mininet classes",
    "experiments": "experiments and reports",
    "project": "docs, examples, distribution, conformance, bench, hostile",
    "ptf": "packet tests on every target that is here",
    "mutants": "whether they find mistakes in the program: a sample",
}


STAGES = (
    (("compile",),),
    (("hosts",), ("check",)),
    (("controller", "topologies"), ("experiments", "project", "switch", "ptf", "mutants")),
)
"""Stages of `make test`: one after the other, the rows of a stage at the same time. The end hosts' tests keep the
shortest times, and wait most of them: only the checks run at the same time. Parts that send packets are in one row."""


def summary(outcomes: dict[str, Outcome]) -> str:
    lines = ["", "part          time  tests", "------------------------------------------------------------"]
    for name, outcome in outcomes.items():
        counts = ", ".join(f"{number} {word}" for word, number in sorted(outcome.counts.items())) or WHAT[name]
        lines.append(f"{name:<12}{outcome.seconds:5.0f} s {'FAILED: ' if outcome.failed else ''}{counts}")
    skipped = sum((outcome.skipped for outcome in outcomes.values()), Counter[str]())
    if skipped:
        lines += ["", "Skipped, and what it takes to have it run:"]
        lines += [f"  {number:3} x {' '.join(reason.split())[:200]}" for reason, number in skipped.most_common()]
    if again := [f"  {name}" for outcome in outcomes.values() for name in outcome.again]:
        lines += ["", "Failed, and passed at the second time: the machine was busy, or they race:", *again]
    failed = [f"  {name}: {reason}" for name, outcome in outcomes.items() for reason in outcome.failed]
    return "\n".join([*lines, "", *(["Failed:", *failed] if failed else ["Everything that ran has passed."])])


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in PARTS]:
        print(f"error: there is no part '{unknown[0]}': choose of", file=sys.stderr)
        for name, what in WHAT.items():
            print(f"  {name:<12} {what}", file=sys.stderr)
        return 2
    began = time.monotonic()
    stages = (((*names,),),) if names else STAGES
    outcomes = {name: Outcome(shown=row is stage[0]) for stage in stages for row in stage for name in row}

    def run_row(row: Sequence[str]) -> None:
        for name in row:
            print(f"\n== {name} ({WHAT[name]})", flush=True)
            start = time.monotonic()
            PARTS[name](outcomes[name])
            outcomes[name].seconds = time.monotonic() - start

    for stage in stages:
        if len(stage) > 1:
            print(f"\n== beside each other: {'; '.join(', '.join(row) for row in stage)}")
            print("   (what others than the first say comes when each has ended)", flush=True)
        side_by_side(*(partial(run_row, row) for row in stage))
    for outcome in outcomes.values():
        once_more(outcome)
    print(f"\n{time.monotonic() - began:.0f} s in all")
    print(summary(outcomes))
    return 1 if any(outcome.failed for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
