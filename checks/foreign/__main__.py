# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.foreign`: run the clients, report, and exit with 1 if one failed for no known cause."""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from accesspoint.checks.foreign import report
from accesspoint.checks.foreign.case import FAIL, FOLDERS, NOT_RUN, Case, Outcome, load, select
from accesspoint.topologies import targets
from accesspoint.topologies.namespaces.contain import end_with_parent
from accesspoint.topologies.requirements import ROOT, LabError

EXPLANATION = """\
Each client runs as its project has it, in network, process tree and /tmp of its own, with the target as
`simple_switch_grpc` first on PATH. A case without its checkout is not run. Exit code: 0 all that ran passed
or failed for a known cause, 1 another failure, 2 nothing could be run.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.checks.foreign",
        description="Run clients of other projects, unmodified, on a switch.",
        epilog=EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", choices=targets.TARGETS, default=targets.DEFAULT, help="default: %(default)s")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="cases by name, pattern or folder; pypi; repeated"
    )
    for name, source in FOLDERS.items():
        parser.add_argument(f"--{name}", type=Path, metavar="DIR", help=f"a checkout of {source}")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    parser.add_argument("--out", type=Path, default=ROOT / "out/foreign", help="folder for results and logs")
    parser.add_argument("--page", type=Path, metavar="FILE", help="also renew the table of this page")
    options = parser.parse_args()
    cases = load()
    chosen = select(cases, options.only)
    if not chosen:
        parser.error(f"no case is called {', '.join(options.only)}: --list shows them all")
    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.list:
        for one in chosen:
            console.print(
                f"{one.name:32} {one.folder or 'pypi':12} {one.task}", highlight=False, markup=False, no_wrap=True
            )
        return 0
    folders = {name: getattr(options, name.replace("-", "_")) for name in FOLDERS}
    given = {name: path.resolve() for name, path in folders.items() if path}
    if missing := [path for path in given.values() if not path.is_dir()]:
        parser.error(f"{missing[0]} is no folder")
    try:
        if os.geteuid() != 0:
            raise LabError("making network namespaces needs root; run as root")
        target = targets.find(options.target)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    outcomes = []
    for one in chosen:
        outcomes.append(run(one, options.target, given, options.out))
        report.tell(console, outcomes[-1])
    report.show(console, outcomes, cases, f"{target.title} {target.version()}")
    kept = report.keep(options.out / f"{target.name}.json", outcomes, f"{target.title} {target.version()}", cases)
    print(f"written: {kept}")
    if options.page:
        report.page(options.page, options.out, cases)
    return int(any(one.status == FAIL and target.name not in cases[one.name].known for one in outcomes))


def run(case: Case, target: str, folders: dict[str, Path], out: Path) -> Outcome:
    """Run a case in a process of its own, which is killed when it takes too long."""
    if case.folder and case.folder not in folders:
        return Outcome(case.name, NOT_RUN, f"no checkout of {FOLDERS[case.folder]} was given")
    log = out.resolve() / "logs" / f"{case.name}-{target}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    words = [case.name, target, str(log), json.dumps({name: str(path) for name, path in folders.items()})]
    words.append(str(case.seconds))
    process = subprocess.Popen(
        [sys.executable, "-m", "accesspoint.checks.foreign.isolated", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent,
    )
    try:
        said, errors = process.communicate(timeout=case.seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return Outcome(case.name, FAIL, f"it did not end within {case.seconds:g} s", case.seconds)
    lines = said.splitlines()
    if process.returncode or not lines:
        return Outcome(case.name, NOT_RUN, (errors.strip().splitlines() or ["it could not be run"])[-1])
    return Outcome(**json.loads(lines[-1]))


if __name__ == "__main__":
    sys.exit(main())
