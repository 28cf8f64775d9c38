# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.controller.law try my_law.py`: a law of one's own in simulation, before any switch has it."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from ..config import Ncr, one_line
from . import BROKEN, LAWS, chosen, own, trial

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@application.callback()
def laws() -> None:
    """Laws of feedback."""


@application.command("list")
def list_() -> None:
    """List the laws with the parameters that each has of its own."""
    for law in LAWS.values():
        print(law.name)
        for name, one in law.parameters.items():
            print(f"    {name:20s} {one.default:g} ({one.least:g} to {one.most:g}): {one.help}")
    for line in BROKEN:
        print(f"error: {line}", file=sys.stderr)
    raise typer.Exit(2 if BROKEN else 0)


@application.command("try")
def try_(
    file: Annotated[Path, typer.Argument(help="Python file with a subclass of accesspoint.controller.law.Law.")],
    beside: Annotated[str, typer.Option(help="Laws to compare with, parted by commas.")] = "pi2",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of a parameter of the law's own; several.")
    ] = None,
    only: Annotated[str, typer.Option(help="Only scenarios with this in their names.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the chance that a packet is marked.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder of the picture, LAW.svg.")] = Path("out/law"),
) -> None:
    """Run a law over the scenarios: TCP-like senders through one port, in simulation.

    Prints for each scenario, after five seconds, the part of the link that was used, the queue's delay, the mean device
    term and Jain's index of the senders; and draws the queue over time.
    """
    try:
        found = own.of_file(file, LAWS)
        LAWS.update(found)
        given = Ncr(law=next(iter(found)), own=_values(set_ or []))
        compared = [Ncr(law=name).law for name in beside.split(",") if name]
        tried = [chosen(given.law, given.own), *(LAWS[name] for name in [*found, *compared][1:])]
        print(trial.HEAD, flush=True)
        runs = []
        for run in trial.runs(tried, given, only, seed):
            print(run, flush=True)
            runs.append(run)
        if not runs:
            raise own.LawError(f"no scenario has '{only}' in its name")
        trial.draw(runs, out / f"{given.law}.svg")
        print(f"drawn: {out / given.law}.svg")
    except ValidationError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        raise typer.Exit(2) from None
    except own.LawError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def _values(given: list[str]) -> dict[str, float]:
    """Return what `--set` says. Raises LawError."""
    values = {}
    for word in given:
        name, equals, value = word.partition("=")
        try:
            values[name] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise own.LawError(f"--set {word}: give NAME=NUMBER")
    return values


if __name__ == "__main__":
    application()
