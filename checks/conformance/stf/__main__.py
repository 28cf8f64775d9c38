# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.conformance.stf`: the command line, and the run of all cases."""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from accesspoint.checks.conformance.report import STYLES, cell
from accesspoint.checks.conformance.server import ServerError
from accesspoint.checks.conformance.stf import cases, language
from accesspoint.checks.conformance.stf.run import run
from accesspoint.checks.conformance.suite import FAIL, NOT_APPLICABLE, PASS, Failed, NotApplicable, show
from accesspoint.topologies import targets
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.requirements import ROOT, LabError

EXPLANATION = """\
A case is a file in p4c's simple test format (STF): entries, packets, and what leaves. Its program is compiled with the
p4c-bm2-ss on PATH, or is next to it, compiled (NAME.json and NAME.p4info.txtpb). Each case gets a switch of its own,
on pcap files as ports, and its pipeline, entries, multicast groups and clone sessions over P4Runtime.

Every case is in the table: pass; fail, with what was seen instead; n/a, with the reason why it cannot be run here, as a
program for another architecture than v1model. Exit code: 0 no case failed, 1 at least one did, 2 nothing could be run.
"""
PAGE = """# p4c's packet cases on {name}

`make conformance STF=DIRECTORY` runs the cases in p4c's simple test format over P4Runtime
([the conformance suite](../conformance.md#p4cs-packet-cases)). {version}: {totals}.

| case | result | reason |
| --- | --- | --- |
"""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a case. seconds: its duration."""

    name: str
    status: str
    reason: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.checks.conformance.stf",
        description="Does a switch do with packets what cases in p4c's simple test format expect?",
        epilog=EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("place", type=Path, metavar="DIRECTORY", help="of *.stf, or one such file")
    parser.add_argument("--target", choices=targets.TARGETS, default=targets.DEFAULT, help="default: %(default)s")
    parser.add_argument("--program", type=Path, metavar="FILE.json", help="of all cases, with its .p4info.txtpb")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name contains it")
    parser.add_argument("--wait", type=float, default=5.0, metavar="S", help="for what must come (default: 5 s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="cases at once (default: cores)")
    parser.add_argument(
        "--markdown", nargs="?", const=Path(), type=Path, metavar="FILE",
        help="also a page (default: docs/results/stf-TARGET.md)",
    )  # fmt: skip
    parser.add_argument("-v", "--verbose", action="store_true", help="report each case when it is done")
    options = parser.parse_args()
    # Nothing of it outlives it; without the privilege the switches end with what started them, unless it is killed.
    return contain.run(lambda: run_all(options)) if os.geteuid() == 0 else run_all(options)


def run_all(options: argparse.Namespace) -> int:
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        target = targets.find(options.target)
        found = [case for case in cases.find(options.place, options.program) if options.only in case.name]
        if not found:
            raise cases.CasesError(f"no case of {options.place} has '{options.only}' in its name")
        compiler = cases.compiler_version()
        version = f"{target.title} {target.version()}{f', p4c {compiler}' if compiler else ''}"
    except (cases.CasesError, LabError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    outcomes = ask_all(found, target, options, console)
    tell(console, outcomes, options.verbose, version)
    if options.markdown:
        path = options.markdown if options.markdown.name else ROOT / f"docs/results/stf-{target.name}.md"
        path.write_text(page(outcomes, target.title, version))
    return int(any(one.status == FAIL for one in outcomes))


def ask_all(
    found: list[cases.Case], target: targets.Target, options: argparse.Namespace, console: Console
) -> list[Outcome]:
    """The outcomes in the order of the cases."""
    outcomes: dict[cases.Case, Outcome] = {}
    columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn())
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        ThreadPoolExecutor(max(1, options.jobs)) as pool,
    ):
        task = progress.add_task("", total=len(found))
        try:
            asked = {pool.submit(ask, case, target, options.wait): case for case in found}
            for done in as_completed(asked):
                outcome = outcomes[asked[done]] = done.result()
                progress.update(task, advance=1, description=outcome.name[:40])
                if options.verbose:
                    line = f"{outcome.status:5} {outcome.name} ({outcome.seconds:.2f} s) {outcome.reason}"
                    progress.console.print(line, highlight=False, markup=False)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [outcomes[case] for case in found]


def ask(case: cases.Case, target: targets.Target, wait: float) -> Outcome:
    """Run a case and return its outcome, even when the switch fails."""
    begin = time.monotonic()
    status, reason = PASS, ""
    try:
        with tempfile.TemporaryDirectory(prefix="stf-") as scratch:
            program = cases.load(case, Path(scratch))
            statements = language.parse(case.stf.read_text(errors="replace"), case.stf.name)
            run(target, program, statements, Path(scratch), wait)
    except NotApplicable as why:
        status, reason = NOT_APPLICABLE, str(why)
    except (Failed, ServerError, LabError, language.StfError, OSError) as why:
        status, reason = FAIL, str(why)
    # Where the directory is, is nobody's business who reads the page.
    reason = reason.replace(f"{case.program.parent}/", "")
    return Outcome(case.name, status, show(reason), time.monotonic() - begin)


def totals(outcomes: list[Outcome]) -> str:
    count = Counter(one.status for one in outcomes)
    return f"{count[PASS]} passed, {count[FAIL]} failed, {count[NOT_APPLICABLE]} not applicable"


def tell(console: Console, outcomes: list[Outcome], all_of_them: bool, heading: str) -> None:
    """Prints the table, without `all_of_them` of those that did not pass, and the totals."""
    rows = Table(title_justify="left", show_lines=False, expand=False)
    for name in ("case", "result", "reason"):
        rows.add_column(name, no_wrap=name == "result", overflow="fold")
    for one in outcomes:
        if all_of_them or console.is_terminal or one.status != PASS:
            rows.add_row(Text(one.name), Text(one.status, style=STYLES[one.status]), Text(one.reason))
    if rows.row_count:
        console.print(rows)
    console.print(f"[bold]{heading}[/bold]: {totals(outcomes)}", highlight=False)


def page(outcomes: list[Outcome], name: str, version: str) -> str:
    """The result in Markdown."""
    text = PAGE.format(name=name, version=version, totals=totals(outcomes))
    for one in outcomes:
        result = one.status if one.status == PASS else f"**{one.status}**"
        text += f"| {cell(one.name)} | {result} | {cell(one.reason)} |\n"
    return text


if __name__ == "__main__":
    sys.exit(main())
