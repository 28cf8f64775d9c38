# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.conformance.stf.testgen`: packet cases that p4testgen makes of programs, by symbolic
execution.

Those of the project's own program are committed, so that nobody needs p4testgen to run them: `renew` makes them anew,
`check` tells whether they are of the present sources. `try` makes cases of other programs and runs them.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from accesspoint.checks.conformance.report import cell
from accesspoint.checks.conformance.stf import cases
from accesspoint.checks.conformance.stf.__main__ import Outcome, ask_all, totals
from accesspoint.checks.conformance.suite import FAIL, NOT_APPLICABLE, PASS
from accesspoint.topologies import targets
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.requirements import ROOT, LabError

TOOL = "p4testgen"
TAKES = 600  # s; for one program
SEED = 1
SOURCES = ROOT / "p4src"
CASES = ROOT / "p4src/testdata/cases"
SUMS = CASES / "sources.sha256"
HEADER = "# SPDX-License-Identifier: Apache-2.0\n# Made by p4testgen; renew with: make cases\n"
CPU_PORT = re.compile(r"const bit<9> CPU_PORT = (\d+);")
# `ApIngress.Learn.learn`, which is `ApIngress.Frame.Learn.learn` elsewhere: the last two parts are the stage's own.
PLACE = re.compile(r"\bAp(?:Ingress|Egress)\.(?:\w+\.)*(\w+\.\w+)\b")


@dataclass(frozen=True)
class Build:
    """A build of the project's program, and how p4testgen takes it.

    stem: of the names of its cases. most: cases that are looked at; those kept cover a statement that none before
    covers. behind: lines of the program, and what p4testgen is to assume there. skipped: tables left to their default
    action.
    """

    name: str
    source: str
    stem: str
    options: tuple[str, ...]
    most: int
    behind: tuple[tuple[str, str], ...]
    skipped: tuple[str, ...]
    include: str = ""


BMV2 = Build(
    "bmv2",
    "v1model/ap.p4",
    "ap",
    ("--target", "bmv2", "--arch", "v1model"),
    # As many as it makes of the program within a minute; what statements they cover is on the page of the result.
    19,
    # None comes from the port that v1model drops to.
    (("apply {\n        meta.ingress_port = standard_metadata.ingress_port;", "assume(meta.ingress_port < 511);"),),
    # p4testgen cannot write ranges in this format.
    ("ApIngress.Frame.Classify.classify",),
)
TOFINO = Build(
    "tofino",
    "tna/ap.p4",
    "ap_tna",
    ("--target", "tofino", "--arch", "tna", "-D__TARGET_TOFINO__=1", "--port-ranges", "0:63,320:320"),
    230,
    # A frame that leaves can be seen: it leaves through a port of the first pipe's.
    (
        ("PacketOut.apply(hdr.wire, for_tm.ucast_egress_port);", "testgen_assume(for_tm.ucast_egress_port < 64);"),
        (
            "Forward.apply(hdr.wire, meta.stages);",
            "testgen_assume(meta.stages.egress_port < 64 || meta.stages.unicast == 0);",
        ),
    ),
    # Beside the ranges, the stages that are the architecture's own: registers, which the other build has otherwise.
    (
        "ApIngress.Classify.classify",
        "ApIngress.Gate.gate",
        "ApIngress.Sparse.sparse",
        "ApEgress.AckFilter.ack_filter",
    ),
    "#include <tna.p4>",
)
BUILDS = (BMV2, TOFINO)
PAGE = """# Cases of p4testgen on {name}

[p4testgen](../conformance.md#p4testgen) follows the paths through a program and makes a packet case of each: entries, a
packet, and what has to leave. {version}; at most {most} cases of each program.

| program | cases | pass | fail | reason |
| --- | ---: | ---: | ---: | --- |
"""


class TestgenError(Exception):
    """Error of the generator: one line that names the cause and the fix."""


def generate(source: Path, directory: Path, *options: str) -> list[Path]:
    """Cases of a program, with more of p4testgen's options. Raises TestgenError."""
    command = [TOOL, "--std", "p4-16", "--test-backend", "STF", "--seed", str(SEED)]
    command += ["--track-coverage", "STATEMENTS", "--path-selection", "GREEDY_STATEMENT_SEARCH"]
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
    """Number of a case among those of its program."""
    return int(case.stem.rpartition("_")[2])


def generate_own(build: Build, directory: Path) -> list[Path]:
    """Cases of a build of the project's program. Raises TestgenError."""
    shutil.copytree(SOURCES, directory, dirs_exist_ok=True)
    source = directory / f"{build.stem}.p4"  # cases are named by it, and what it includes is found beside it
    text = (SOURCES / build.source).read_text()
    for line, assumed in build.behind:
        if text.count(f"{line}\n") != 1:
            place = line.split("\n")[-1].strip()
            raise TestgenError(f"{build.source} has not one line '{place}': behind it p4testgen assumes {assumed}")
        text = text.replace(f"{line}\n", f"{line}\n{assumed}\n")
    if build.include:
        text = text.replace(f"{build.include}\n", f"{build.include}\n#include <testgen.p4>\n", 1)
    source.write_text(text)
    made = directory / "made"
    made.mkdir()
    limits = ("--max-tests", str(build.most), "--only-covering-tests")
    skipped = ("--skip-control-plane-entities", ",".join(build.skipped))
    return generate(source, made, *build.options, *limits, *skipped)


def cpu_port(architecture: str) -> str:
    """CPU port of a build, from its externs.p4. Raises TestgenError."""
    place = SOURCES / architecture / "externs.p4"
    found = CPU_PORT.search(place.read_text())
    if not found:
        raise TestgenError(f"{place.name} of {architecture} has no line 'const bit<9> CPU_PORT = ...;'")
    return found[1]


def as_v1model(text: str) -> str:
    """A case of the Tofino build for the other one: its stages' own names, and the CPU port. Raises TestgenError."""
    text = re.sub(rf"^(packet|expect) {cpu_port('tna')} ", rf"\1 {cpu_port('v1model')} ", text, flags=re.MULTILINE)
    return PLACE.sub(r"\1", text)


def statements(text: str) -> str:
    """A case without what was true only when it was made: times and traces."""
    lines = [line.strip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def sums() -> str:
    """Checksums of the program's sources and of the cases."""
    files = [*sorted(SOURCES.rglob("*.p4")), *sorted(CASES.glob("*.stf"))]
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}\n" for path in files)


def renew() -> None:
    """Raises TestgenError."""
    made = {}
    for build in BUILDS:
        with tempfile.TemporaryDirectory(prefix="testgen-") as scratch:
            for path in generate_own(build, Path(scratch)):
                text = statements(path.read_text())
                made[path.name] = text if build is BMV2 else as_v1model(text)
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
    limits = ("--target", "bmv2", "--arch", "v1model", "--max-tests", str(options.max_tests), "--port-ranges", "0:510")
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
    parser = argparse.ArgumentParser(prog="python -m accesspoint.checks.conformance.stf.testgen", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("renew", help=f"renew the cases of {SOURCES.name}")
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
