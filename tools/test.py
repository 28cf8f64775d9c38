# SPDX-License-Identifier: Apache-2.0
"""`make test`, `make test-all`, `make quick`: run the tests, and report what ran, what was skipped and how to run it.

.venv/bin/python tools/test.py [--all | --quick | --asked] [PART...]

`make test` runs what the machine's load cannot change, and one short lab of each kind. `make test-all` adds those that
take long or need radios, ns-3 or a root of their own (mark `long`), mutants and BMv2, and then, one after the other,
tests that keep times (mark `realtime`). Nothing that fails is tried again. `make` calls it with `--asked` before it
installs anything: a part that is none, and a tool that it does not install, are named then.
"""

import argparse
import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
BMV2 = "simple_switch_grpc"
CARGO = ("cargo", "test", "--release", "--quiet")
FAST, LONG, REALTIME = "not realtime and not long", "long and not realtime", "realtime"
QUICK = f"{FAST} and not lab"
MAX_QUICK_SECONDS = 45  # of tests, so that `make quick` takes no more than 60 s
RUST = (1, 95)
BEFOREHAND = {  # a command -> what it is needed for, and its mend; `make` installs what else is missing
    "cargo": "build and test the switch and the hosts: install Rust 1.95 or newer, from https://rustup.rs",
    "cc": "link what cargo builds: apt install gcc libc6-dev",
}
TOOLS = BEFOREHAND | {
    "mnexec": "run labs: apt install mininet",
    "clang": "build the hosts' BPF programs: tools/install.sh bpf",
}


@dataclass
class Outcome:
    """Outcome of a part. skipped: reason -> number of tests.

    shown: the output of its commands appears at once; else when each has ended, as another part runs meanwhile."""

    shown: bool = True
    failed: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Interrupted(Exception):
    """No other command is begun after Ctrl-C."""


class Commands:
    """Commands that run in the checkout. Ctrl-C ends them, as they are in the terminal's process group."""

    MAX_DEAF_SECONDS = 10.0
    """Age of a command that may have begun after Ctrl-C, and did not hear of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: dict[subprocess.Popen[str], float] = {}
        self.interrupted = False

    @contextmanager
    def begun(self, command: Sequence[str], shown: bool) -> Iterator[subprocess.Popen[str]]:
        """Begin a command, and wait for its end. shown: its output appears at once, else it can be read. Raises
        Interrupted."""
        out, errors = (None, None) if shown else (subprocess.PIPE, subprocess.STDOUT)
        with self._lock:
            if self.interrupted:
                raise Interrupted
            print(f"== {' '.join(command)}", flush=True)
            process = subprocess.Popen(command, cwd=ROOT, text=True, errors="replace", stdout=out, stderr=errors)
            self._began[process] = time.monotonic()
        try:
            yield process
        finally:
            process.wait()
            del self._began[process]

    def interrupt(self) -> None:
        """Begin no other command, and end those that have begun just now."""
        now = time.monotonic()
        with self._lock:
            self.interrupted = True
        from accesspoint.topologies.processes import end_family  # not before: it takes a while

        for process, began in list(self._began.items()):
            if now - began < self.MAX_DEAF_SECONDS:
                end_family(process.pid)


COMMANDS = Commands()


def run(outcome: Outcome, *command: str) -> int:
    """Run a command in the checkout; return its exit code. Raises Interrupted."""
    began = time.monotonic()
    with COMMANDS.begun(command, outcome.shown) as process:
        said = process.communicate()[0]
    if not outcome.shown:
        print(f"\n-- {' '.join(command)} ({time.monotonic() - began:.0f} s)\n{said}", end="", flush=True)
    return process.returncode


def call(outcome: Outcome, *command: str) -> None:
    """Run a command, and record it when it fails."""
    if code := run(outcome, *command):
        outcome.failed.append(f"`{' '.join(command)}` ended with {code}")


def pytest(outcome: Outcome, marks: str, room: str, workers: int = 1) -> None:
    """Run the tests of a folder that have these marks, of `workers` files at a time unless they keep times."""
    # pytest remembers failures for each part: others run at the same time.
    command: tuple[str, ...] = (PYTHON, "-m", "pytest", "-q", "-o", f"cache_dir=.pytest_cache/{room}", "-m", marks)
    if workers > 1 and marks in (FAST, LONG):
        command += ("-n", str(workers), "--dist", "loadfile")
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        code = run(outcome, *command, "--durations=5", f"--junit-xml={report}", room)
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
            ends = [child for child in case if child.tag in ("failure", "error", "skipped")]
            outcome.counts[ends[0].tag if ends else "passed"] += 1
            if ends and ends[0].tag == "skipped":
                outcome.skipped[ends[0].get("message") or "no reason given"] += 1
    if code not in (0, 5):  # 5: none has these marks
        outcome.failed.append(f"`{' '.join((*command, room))}` ended with {code}")


def compile_tests(outcome: Outcome, marks: str) -> None:
    """Compile before the tests that run cargo, so that none of them waits for it."""
    call(outcome, *CARGO, "--no-run")


def check(outcome: Outcome, marks: str) -> None:
    """Check format, lint, types and imports of all but Rust."""
    for part in ("check-text", "check-native", "check-python"):
        call(outcome, "make", "--no-print-directory", part)
    if importlib.util.find_spec("ns3") is None:
        outcome.skipped["clang-tidy of the C++ for ns-3: ns-3 is missing; install it with: make ns3"] += 1


def rust(outcome: Outcome, marks: str) -> None:
    """Run the Rust tests, and check format and lint of Rust."""
    call(outcome, *CARGO, "--no-fail-fast")
    call(outcome, "make", "--no-print-directory", "check-rust")


def folder(room: str, workers: int = 1) -> Callable[[Outcome, str], None]:
    """Return a part that runs the tests of a folder."""
    return lambda outcome, marks: pytest(outcome, marks, room, workers)


def ptf(outcome: Outcome, marks: str) -> None:
    """Run the packet tests on apswitch, and the model of connections."""
    call(outcome, PYTHON, "ptf-tests/run.py", "--target", "apswitch", "--jobs", "4")
    call(outcome, PYTHON, "ptf-tests/run.py", "--target", "apswitch", "--connections", "200")


def bmv2(outcome: Outcome, marks: str) -> None:
    """Run the same on BMv2."""
    if shutil.which(BMV2):
        call(outcome, PYTHON, "ptf-tests/run.py", "--target", "bmv2")
        call(outcome, PYTHON, "ptf-tests/run.py", "--target", "bmv2", "--connections", "50")
    else:
        outcome.skipped[f"packet tests on BMv2: {BMV2} is not on PATH: install BMv2 as docs/targets.md says"] += 1


def mutants(outcome: Outcome, marks: str) -> None:
    call(outcome, PYTHON, "-m", "accesspoint.ptf_tests.mutants")


FOLDERS = {
    "controller": "controller",
    "topologies": "topologies",
    "project": "tests",
    "experiments": "experiments",
    "switch": "switch/tests",
    "hosts": "hosts/tests",
}
"""Parts that are the tests of a folder."""
WORKERS = {"controller": 2}
"""Files of a part that are tested at a time: where tests wait more than they compute."""
PARTS = {
    "compile": compile_tests,
    "rust": rust,
    "ptf": ptf,
    **{part: folder(where, WORKERS.get(part, 1)) for part, where in FOLDERS.items()},
    "check": check,
    "bmv2": bmv2,
    "mutants": mutants,
}
CONTENTS = {
    "compile": "the Rust tests of switch and hosts",
    "rust": "cargo test of switch and hosts, format, lint",
    "ptf": "packet tests on apswitch, and modelled connections",
    "controller": "controller, REST, page, apctl",
    "topologies": "labs and Mininet classes",
    "project": "docs, examples, distribution, conformance, bench, hostile, foreign",
    "experiments": "experiments and reports",
    "switch": "apswitch over P4Runtime and gNMI",
    "hosts": "end hosts on links",
    "check": "format, lint, types, imports of all but Rust",
    "bmv2": "packet tests on BMv2",
    "mutants": "whether the packet tests find mistakes in the program: a sample",
}
ROWS = (
    ("compile", "rust"),
    ("controller",),
    ("project",),
    ("topologies",),
    ("experiments",),
    ("hosts",),
    ("ptf",),
    ("switch",),
    ("check",),
)
"""Parts of `make test`, the longest first; those of a row run one after the other, for both want cargo's lock."""
AT_ONCE = 2 + (os.cpu_count() or 2)
"""Rows that run at the same time: two more than cores, as each waits for half of its time."""
LONG_ROWS = tuple((part,) for part in (*FOLDERS, "mutants", "bmv2"))
"""Rows of `make test-all` after those."""
REALTIME_ROW = tuple(FOLDERS)
"""Parts of `make test-all` at last: tests that keep times have the machine for themselves."""


def summary(outcomes: dict[str, Outcome]) -> str:
    """Return the table of parts, what was skipped, and what failed."""
    lines = ["", "part          time  tests", "------------------------------------------------------------"]
    for name, outcome in outcomes.items():
        counts = ", ".join(f"{number} {word}" for word, number in sorted(outcome.counts.items()))
        what = counts or CONTENTS[name.partition(" ")[0]]
        lines.append(f"{name:<20}{outcome.seconds:5.0f} s {'FAILED: ' if outcome.failed else ''}{what}")
    skipped = sum((outcome.skipped for outcome in outcomes.values()), Counter[str]())
    if skipped:
        lines += ["", "Skipped, and what it takes to have it run:"]
        lines += [f"  {number:3} x {' '.join(reason.split())[:200]}" for reason, number in skipped.most_common()]
    failed = [f"  {name}: {reason}" for name, outcome in outcomes.items() for reason in outcome.failed]
    return "\n".join([*lines, "", *(["Failed:", *failed] if failed else ["Everything that ran has passed."])])


def run_rows(rows: Sequence[Sequence[str]], marks: str, suffix: str = "") -> dict[str, Outcome]:
    """Run rows of parts, `AT_ONCE` at a time; return name -> outcome."""
    outcomes = {name + suffix: Outcome(shown=row is rows[0]) for row in rows for name in row}

    def run_row(row: Sequence[str]) -> None:
        for name in row:
            if COMMANDS.interrupted:
                return
            print(f"\n== {name} ({CONTENTS[name]})", flush=True)
            start = time.monotonic()
            PARTS[name](outcomes[name + suffix], marks)
            outcomes[name + suffix].seconds = time.monotonic() - start

    if len(rows) > 1:
        print(f"\n== {AT_ONCE} at a time: {'; '.join(', '.join(row) for row in rows)}")
        print("   (the output of all rows but the first appears when a command has ended)", flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            running = [pool.submit(run_row, row) for row in rows]
            while wait(running, timeout=1.0).not_done:
                pass  # the kernel may give Ctrl-C to another thread, which does not wake this one
            for done in running:
                done.result()
        except KeyboardInterrupt:
            COMMANDS.interrupt()
            raise
    return outcomes


def changed() -> set[str]:
    """Return the files that differ from the main branch, and those that git does not know."""
    found = set()
    base = subprocess.run(
        ["git", "merge-base", "main", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    for words in (["diff", "--name-only", base or "HEAD"], ["ls-files", "--others", "--exclude-standard"]):
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        found |= set(done.stdout.split())
    return found


def imports(file: Path) -> set[str]:
    """Return the modules that a Python file imports, with the names that it takes out of each."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def tests_of(files: set[str]) -> list[str]:
    """Return the test files among these, and those that import one of them; ptf's need a switch and are left out."""
    modules = set()
    for file in files:
        if file.endswith(".py"):
            names = Path(file.replace("ptf-tests", "ptf_tests")).with_suffix("").parts
            names = names[:-1] if names[-1] == "__init__" else names
            modules.add(".".join(names if names[0] == "accesspoint" else ("accesspoint", *names)))
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.py"], cwd=ROOT, capture_output=True)
    tests = [
        name
        for name in listed.stdout.decode().split()
        if Path(name).name.startswith("test_") and "/tests/" in f"/{name}" and not name.startswith("ptf-tests/")
    ]
    return [name for name in tests if (ROOT / name).exists() and (name in files or imports(ROOT / name) & modules)]


def quick(parts: Sequence[str]) -> dict[str, Outcome]:
    """Check what changed since main, and run the tests of it that need no lab. parts: only their tests; empty: all."""
    files = changed()
    outcome = Outcome()
    began = time.monotonic()
    call(outcome, "make", "--no-print-directory", "check-text")
    bin_ = Path(PYTHON).parent
    call(outcome, str(bin_ / "ruff"), "check", ".")
    call(outcome, str(bin_ / "ruff"), "format", "--check", ".")
    if any(file.endswith(".py") for file in files):
        call(outcome, str(bin_ / "mypy"))
        call(outcome, str(bin_ / "lint-imports"))
    if any(file.endswith((".c", ".cc", ".h")) for file in files):
        call(outcome, "make", "--no-print-directory", "check-native")
    if any(file.endswith((".rs", "Cargo.toml")) for file in files):
        call(outcome, "cargo", "fmt", "--all", "--check")
        call(outcome, "cargo", "check", "--release", "--quiet", "--workspace", "--all-targets")
    folders = tuple(f"{FOLDERS.get(part, part)}/" for part in parts or FOLDERS)
    tests_began = time.monotonic()
    for file in tests_of(files):
        if not file.startswith(folders):
            continue
        if time.monotonic() - tests_began > MAX_QUICK_SECONDS:
            outcome.skipped[
                f"{file}, after {MAX_QUICK_SECONDS} s of tests: run it with pytest, or all with: make test"
            ] += 1
        else:
            pytest(outcome, QUICK, file)
    outcome.seconds = time.monotonic() - began
    return {"check": outcome}


def missing(tools: dict[str, str]) -> list[str]:
    """Return a line for each tool that is missing or too old, with the fix."""
    lines = [f"error: {tool} is missing: needed to {what}" for tool, what in tools.items() if not shutil.which(tool)]
    if "cargo" in tools and shutil.which("cargo"):
        said = subprocess.run(["cargo", "--version"], cwd=ROOT, capture_output=True, text=True)
        found = re.match(r"cargo (\d+)\.(\d+)", said.stdout)
        if not found or (int(found[1]), int(found[2])) < RUST:
            have = said.stdout.strip() or said.stderr.strip().partition("\n")[0]
            lines.append(f"error: cargo is too old ({have}): needed to {tools['cargo']}")
    return lines


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="tests in real time, mutants and BMv2, too")
    parser.add_argument("--quick", action="store_true", help="lint, types, and the test files that changed")
    parser.add_argument("--asked", action="store_true", help="run nothing: say which part or tool is missing")
    parser.add_argument("part", nargs="*", help=f"only these: {', '.join(PARTS)}")
    options = parser.parse_args(words)
    if unknown := [name for name in options.part if name not in PARTS]:
        print(f"error: there is no part '{unknown[0]}': choose of", file=sys.stderr)
        for name, what in CONTENTS.items():
            print(f"  {name:<12} {what}", file=sys.stderr)
        return 2
    if lines := missing(BEFOREHAND if options.asked else TOOLS):
        print("\n".join(lines), file=sys.stderr)
        return 2
    if options.asked:
        return 0
    began = time.monotonic()
    try:
        if options.quick:
            outcomes = quick(options.part)
        elif options.part:
            outcomes = run_rows((options.part,), "" if options.all else FAST)
        else:
            outcomes = run_rows(ROWS, FAST)
            if options.all:
                outcomes |= run_rows(LONG_ROWS, LONG, " (long)")
                outcomes |= run_rows((REALTIME_ROW,), REALTIME, " (realtime)")
    except KeyboardInterrupt:
        print(f"interrupted after {time.monotonic() - began:.0f} s", file=sys.stderr)
        return 130
    print(f"\n{time.monotonic() - began:.0f} s in all")
    print(summary(outcomes))
    return 1 if any(outcome.failed for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
