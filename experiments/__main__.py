# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.experiments COMMAND`: list, run, resume, compare, report and export experiments, here or as a
campaign on many machines."""

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from accesspoint.experiments.execution import commands
from accesspoint.experiments.runs import registry
from accesspoint.topologies import lab_kinds, requirements, targets
from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.lab import fail
from accesspoint.topologies.links.profiles import PROFILES, ProfileError
from accesspoint.topologies.requirements import LabError

FILES = "a file of your own, as ./mine.py, stands for its experiments"


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.experiments", description="Experiments on the access point."
    )
    commands_ = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        added = commands_.add_parser(name, help=text, description=text)
        added.add_argument("--out", type=_folder, default=_out(), help="where results are (default: out)")
        return added

    listing = command("list", "list experiments, and which have results")
    listing.add_argument("names", metavar="NAME", nargs="*", help=f"default: all there are; {FILES}")
    listing.add_argument("--wide", action="store_true", help="also papers, numbers of arms and points, whole titles")
    run = command("run", "run experiments, and report them")
    run.add_argument("names", metavar="NAME", nargs="+", help=f"as `list` shows them; `all` of those; {FILES}")
    _add_form(run)
    _add_changes(run)
    _add_side_by_side(run)
    run.add_argument("--fresh", action="store_true", help="drop what an interrupted run has left")
    seed = f"draw other scenarios, with results of their own, as NAME-seed-N; only for {', '.join(registry.drawing())}"
    run.add_argument("--seed", metavar="N", help=seed)
    own = run.add_argument_group(f"only for {', '.join(registry.on_own_links())}")
    own.add_argument("--profile", help=f"link profile: {', '.join(PROFILES)} (default: testbed)")
    own.add_argument("--down", metavar="RATE", help="rate of the downlink instead of the profile's, e.g. 8mbit")
    own.add_argument("--up", metavar="RATE", help="rate of the uplink, e.g. 600kbit")
    own.add_argument("--rtt", metavar="TIME", help="base round trip, e.g. 20ms")
    own.add_argument("--cc", help="TCP congestion control of every host (default: cubic)")
    lab_kinds.add_arguments(own)
    resume = command("resume", "continue interrupted runs")
    resume.add_argument("names", metavar="NAME", nargs="*", help=f"default: all that were interrupted; {FILES}")
    _add_form(resume)
    _add_side_by_side(resume)
    campaign = command("campaign", "many runs on the workers of a Dask cluster; continues after an interruption")
    campaign.add_argument("names", metavar="NAME", nargs="*", help=f"default: all there are; {FILES}")
    _add_form(campaign)
    _add_changes(campaign)
    campaign.add_argument(
        "--lab", default=lab_kinds.WIRED, choices=(lab_kinds.WIRED, lab_kinds.NS3), help="kind of lab"
    )
    campaign.add_argument("--workers", metavar="N", help="workers of this machine (default: one for each core)")
    campaign.add_argument("--scheduler", metavar="ADDRESS", help="of a cluster that is there: tcp://host:8786")
    campaign.add_argument("--fresh", action="store_true", help="drop earlier results")
    for name, text in (
        ("compare", "the paper, the plain access point and this one side by side, as a table"),
        ("report", "build the pages of results: out/index.html"),
    ):
        reader = command(name, text)
        reader.add_argument("names", metavar="NAME", nargs="*", help=f"default: all that have results; {FILES}")
        _add_form(reader)
        reader.add_argument(
            "--pages",
            type=Path,
            metavar="DIR",
            help="also write a table NAME.md each into DIR, and its data into DIR/summaries",
        )
    export = command("export", "results for other programs: figures as CSV, samples as Parquet, runs as Flent's files")
    export.add_argument("names", metavar="NAME", nargs="*", help=f"default: all that have results; {FILES}")
    _add_form(export)
    export.add_argument("--to", type=_folder, required=True, metavar="DIR", help="folder for the files")
    export.add_argument("--formats", default="csv,parquet,flent", metavar="A,B", help="default: csv,parquet,flent")
    return parser.parse_args(argv)


def _out() -> Path:
    """Return where results are: below the checkout, or below this folder where the code is no checkout."""
    root = requirements.ROOT
    return (root if (root / "Makefile").exists() else Path.cwd()) / "out"


def _folder(text: str) -> Path:
    """Return the folder as an absolute path: runs are made in another working directory."""
    return Path(text).absolute()


def _add_form(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="the quick form: shorter, fewer repeats and points")


def _add_side_by_side(parser: argparse.ArgumentParser) -> None:
    text = "runs at a time, of which heavy ones count more (default: 1; of several experiments, 7 on two cores)"
    parser.add_argument("--side-by-side", metavar="N", help=text)


def _add_changes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arms", metavar="A,B", help="only these arms, in this order of the experiment")
    parser.add_argument("--repeats", metavar="N", help="how often each arm runs at each point")
    parser.add_argument("--seconds", help="length of each run (default: the experiment's)")
    lab_kinds.add_clock(parser, "the experiment's own")
    parser.add_argument(
        "--target", default=targets.DEFAULT, help=f"switch: {', '.join(targets.TARGETS)} (default: apswitch)"
    )


def main(argv: list[str] | None = None) -> int:
    try:
        options = arguments(argv)
        if getattr(options, "lab", lab_kinds.WIRED) == lab_kinds.NS3:
            _in_ns3(options)
        return commands.main(options, Console())
    except (LabError, ProfileError, OSError) as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130


def _in_ns3(options: argparse.Namespace) -> None:
    """LAB=ns3 is a clock: the scenes are the same. Raises ProfileError."""
    if options.clock not in (None, kernel.SIMULATED):
        raise ProfileError(f"CLOCK={options.clock} is not of LAB={lab_kinds.NS3}, whose clock is its own: leave it out")
    options.lab, options.clock = lab_kinds.WIRED, kernel.SIMULATED


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
