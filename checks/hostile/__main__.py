# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.hostile`: attack each server, report the cost, and exit with 1 if one did not hold."""

import argparse
import os
import sys
import tempfile
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from accesspoint.checks.hostile import report
from accesspoint.checks.hostile.attack import Attack, load
from accesspoint.checks.hostile.measure import Result, measure
from accesspoint.checks.hostile.servers import HOSTS
from accesspoint.topologies import targets
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.requirements import ROOT, LabError

EXPLANATION = """\
Each attack meets a server of its own, in a network namespace that ends with this program, whatever ends it. Meanwhile
another client sends small requests, and packets cross the switch. A fault is: the server has ended or serves
no client afterwards, 512 MB of memory, a wait of the other client of 100 ms (99th percentile), or fewer than nine
tenths of the packets that are carried without the attack. Exit code: 0 all pass, 1 a fail, 2 the run could not be
made.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.checks.hostile",
        description="Attack each server of the project.",
        epilog=EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="attacks or servers by name or pattern ('gnmi-*'); repeated",
    )
    parser.add_argument("--short", action="store_true", help="a few attacks, briefly; waits and packets are not judged")
    parser.add_argument("--list", action="store_true", help="list the attacks and end")
    parser.add_argument("--seed", type=int, default=1, help="of random mutations (default: 1)")
    parser.add_argument("--out", type=Path, default=ROOT / "out/hostile", help="folder for summary.json and logs")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="also renew the table of this page, docs/results/hostile.md"
    )
    options = parser.parse_args()
    attacks = select(load(), options.only, options.short)
    if not attacks:
        parser.error(f"no attack is called {', '.join(options.only)}: --list shows them all")
    if options.list:
        for one in attacks:
            Console().print(f"{one.server:14} {one.name:40} {one.text}", highlight=False, markup=False, no_wrap=True)
        return 0
    try:
        needed(attacks)
        return contain.run(lambda: run(attacks, options))
    except (LabError, contain.NotPermitted) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def select(attacks: dict[str, Attack], only: list[str], short: bool) -> list[Attack]:
    """Select attacks by names or patterns of attacks and of servers, several in one word with commas."""
    patterns = [pattern.strip() for word in only for pattern in word.split(",")] or ["*"]
    named = [
        one
        for one in attacks.values()
        if any(fnmatch(name, pattern) for name in (one.name, one.server) for pattern in patterns)
    ]
    return [one for one in named if one.short or not short]


def needed(attacks: list[Attack]) -> None:
    """Raises LabError for what is missing."""
    if os.geteuid() != 0:
        raise LabError("making network namespaces needs root; run as root")
    servers = {one.server for one in attacks}
    if servers & {"switch", "access-point"}:
        targets.find("apswitch")
    if servers - {"switch", "rest", "access-point"} and not HOSTS.exists():
        raise LabError(f"{HOSTS} is missing; build it with: make hosts")


def run(attacks: list[Attack], options: argparse.Namespace) -> int:
    """Run attacks one after the other. Results are reported and written even when the run is stopped."""
    results: list[Result] = []
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        contain.own_network()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("", total=len(attacks))
            for attack in attacks:
                progress.update(task, description=attack.name)
                with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
                    results.append(one(attack, options, Path(directory)))
                wrong = report.faults(results[-1], speeds=not options.short)
                if wrong:
                    console.print(f"[red]fault[/] {attack.name}: {'; '.join(wrong)}", highlight=False)
                progress.advance(task)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        if results:
            report.show(results, speeds=not options.short)
            path = options.out / "summary.json"
            known = load()
            told = report.write(path, report.summary(results), known)
            print(f"written: {path}")
            if options.page:
                report.page(options.page, told, known)
    return int(any(report.faults(result, speeds=not options.short) for result in results))


def one(attack: Attack, options: argparse.Namespace, directory: Path) -> Result:
    """Run one attack; the logs of a server that did not hold are kept."""
    result = measure(attack, options.seed, directory, options.short)
    if report.faults(result, speeds=not options.short):
        kept = options.out / "logs" / attack.name
        kept.mkdir(parents=True, exist_ok=True)
        for log in directory.glob("*.log"):
            with suppress(OSError):
                (kept / log.name).write_bytes(log.read_bytes()[-1_000_000:])
    return result


if __name__ == "__main__":
    sys.exit(main())
