# SPDX-License-Identifier: Apache-2.0
"""`python -m conformance.stf.testgen`: packet cases that p4testgen makes of programs, by symbolic execution.

Those of the project's own program are committed, so that nobody needs p4testgen to run them: `renew` makes them anew,
`check` tells whether they are of the present sources. `try` makes cases of other programs and runs them.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console

from conformance.report import cell
from conformance.stf import cases
from conformance.stf.__main__ import Outcome, ask_all, totals
from conformance.suite import FAIL, NOT_APPLICABLE, PASS
from topologies import contain, targets
from topologies.requirements import ROOT, LabError

TOOL = "p4testgen"
TAKES = 600  # s; for one program
SEED = 1
OWN = ROOT / "p4src/ap.p4"
CASES = ROOT / "p4src/cases"
SUMS = CASES / "sources.sha256"
# As many as it makes of the program within a minute; what statements they cover is on the page of the result.
MOST_OWN = 19
INGRESS_PORT = "standard_metadata.ingress_port"
FIRST_STATEMENT = f"        meta.ingress_port = {INGRESS_PORT};\n"
# p4testgen cannot write ranges in this format: it leaves the table that has some to its default action.
WITHOUT_RANGES = ("--skip-control-plane-entities", "ApIngress.Frame.Classify.classify")
HEADER = "# SPDX-License-Identifier: Apache-2.0\n# Made by p4testgen; renew with: make cases\n"
PAGE = """# What p4testgen makes of programs, on {name}

[p4testgen](../conformance.md#p4testgen) follows the ways through a program and makes a packet case of each: entries, a
packet, and what has to leave. {version}; at most {most} cases of each program.

| program | cases | pass | fail | reason |
| --- | ---: | ---: | ---: | --- |
"""


class TestgenError(Exception):
    """One line that names what is wrong and the mend."""


def generate(source: Path, directory: Path, *options: str) -> list[Path]:
    """Cases of a program, with more of p4testgen's options. Raises TestgenError."""
    command = [TOOL, "--target", "bmv2", "--arch", "v1model", "--std", "p4-16", "--test-backend", "STF"]
    command += ["--seed", str(SEED), "--track-coverage", "STATEMENTS", "--path-selection", "GREEDY_STATEMENT_SEARCH"]
    command += [*options, "--out-dir", str(directory), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TAKES)
    except FileNotFoundError:
        raise TestgenError(f"{TOOL} is not on PATH: build p4c with -DENABLE_TEST_TOOLS=ON") from None
    except subprocess.TimeoutExpired:
        raise TestgenError(f"{TOOL} takes longer than {TAKES} s for {source.name}") from None
    found = sorted(directory.glob("*.stf"), key=number)
    if not found:
        raise TestgenError(f"{TOOL} makes no case of {source.name}: {cases.complaint(done.stderr)}")
    return found


def number(case: Path) -> int:
    """Which of its program's cases it is."""
    return int(case.stem.rpartition("_")[2])


def generate_own(directory: Path) -> list[Path]:
    """Cases of the project's program, none from the port that v1model drops to. Raises TestgenError."""
    shutil.copytree(OWN.parent, directory, dirs_exist_ok=True)
    source = directory / OWN.name
    text = source.read_text()
    if text.count(FIRST_STATEMENT) != 1:
        raise TestgenError(f"{OWN.name} has no line '{FIRST_STATEMENT.strip()}' in its ingress: say where it begins")
    source.write_text(text.replace(FIRST_STATEMENT, f"assume({INGRESS_PORT} < 511);\n{FIRST_STATEMENT}"))
    cases_of = directory / "made"
    cases_of.mkdir()
    return generate(source, cases_of, "--max-tests", str(MOST_OWN), "--only-covering-tests", *WITHOUT_RANGES)


def statements(text: str) -> str:
    """A case without what was true only when it was made: times and traces."""
    lines = [line.strip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def sums() -> str:
    """Of the program's sources and of the cases."""
    sources = [path for path in OWN.parent.rglob("*.p4") if "tna" not in path.relative_to(OWN.parent).as_posix()]
    files = [*sorted(sources), *sorted(CASES.glob("*.stf"))]
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}\n" for path in files)


def renew() -> None:
    """Raises TestgenError."""
    with tempfile.TemporaryDirectory(prefix="testgen-") as scratch:
        made = {path.name: statements(path.read_text()) for path in generate_own(Path(scratch))}
    shutil.rmtree(CASES, ignore_errors=True)
    CASES.mkdir()
    for name, text in made.items():
        (CASES / name).write_text(HEADER + text)
    SUMS.write_text(sums())
    print(f"{CASES.relative_to(ROOT)}: {len(made)} cases by {TOOL} of p4c {cases.compiler_version()}")


def check() -> None:
    """Raises TestgenError."""
    if not SUMS.exists() or SUMS.read_text() != sums():
        raise TestgenError("p4src and its packet cases differ; renew them with: make cases")


def try_all(sources: list[Path], options: argparse.Namespace) -> int:
    """A row for each program."""
    target = targets.find(options.target)
    console = Console(width=None if sys.stdout.isatty() else 160)
    version = f"{target.title} {target.version()}, p4c {cases.compiler_version()}"
    text = PAGE.format(name=target.title, version=version, most=options.max_tests)
    limits = ("--max-tests", str(options.max_tests), "--port-ranges", "0:510")
    every: list[Outcome] = []
    for source in sources:
        with tempfile.TemporaryDirectory(prefix="testgen-") as scratch:
            directory = Path(scratch)
            try:
                compiled = compile_once(source, directory)
                found = [cases.Case(stf, compiled) for stf in generate(source, directory, *limits)]
            except (TestgenError, cases.NotApplicable) as why:
                console.print(f"{source.stem}: {why}", highlight=False, markup=False)
                text += f"| {cell(source.stem)} | 0 | 0 | 0 | {cell(str(why))} |\n"
                continue
            outcomes = ask_all(found, target, options, console)
            for one in outcomes:
                if one.status != PASS and options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    shutil.copy(directory / f"{one.name}.stf", options.keep)
        every += outcomes
        count = Counter(one.status for one in outcomes)
        reasons = sorted({f"{one.name}: {one.reason}" for one in outcomes if one.status != PASS})
        console.print(f"{source.stem}: {totals(outcomes)}", highlight=False)
        for reason in reasons:
            console.print(f"  {reason}", highlight=False, markup=False)
        row = [cell(source.stem), len(outcomes), count[PASS], count[FAIL] + count[NOT_APPLICABLE]]
        text += f"| {' | '.join(map(str, row))} | {cell('; '.join(reasons))} |\n"
    console.print(f"[bold]{version}[/bold]: {totals(every)}", highlight=False)
    if options.markdown:
        path = options.markdown if options.markdown.name else ROOT / f"docs/results/testgen-{target.name}.md"
        path.write_text(text)
    return int(any(one.status != PASS for one in every))


def compile_once(source: Path, directory: Path) -> Path:
    """The program in the directory, without its suffix."""
    if not source.is_file():
        raise TestgenError(f"there is no {source}")
    cases.load(cases.Case(source, source.with_suffix("")), directory)
    if (directory / "program.json").exists():
        return directory / "program"
    return source.with_suffix("")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.stf.testgen", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("renew", help=f"make the cases of {OWN.name} anew")
    commands.add_parser("check", help="are they of the present sources?")
    trying = commands.add_parser("try", help="make cases of programs and run them")
    trying.add_argument("program", type=Path, nargs="+", metavar="FILE.p4")
    trying.add_argument("--target", choices=targets.TARGETS, default=targets.DEFAULT, help="default: %(default)s")
    trying.add_argument("--max-tests", type=int, default=20, metavar="N", help="of each program (default: %(default)s)")
    trying.add_argument("--wait", type=float, default=5.0, metavar="S", help="for what must come (default: 5 s)")
    trying.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="cases at once (default: cores)")
    trying.add_argument("--keep", type=Path, metavar="DIR", help="keep the cases that fail there")
    trying.add_argument("--markdown", nargs="?", const=Path(), type=Path, metavar="FILE", help="also a page")
    options = parser.parse_args()
    options.verbose = False
    try:
        if options.command == "try":
            sources = options.program
            run = lambda: try_all(sources, options)  # noqa: E731
            return contain.run(run) if os.geteuid() == 0 else run()
        {"renew": renew, "check": check}[options.command]()
    except (TestgenError, LabError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
