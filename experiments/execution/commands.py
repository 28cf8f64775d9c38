# SPDX-License-Identifier: Apache-2.0
"""Run the command line's commands for declared experiments."""

import argparse
import contextlib
import json
import math
import shutil
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as Grid

from accesspoint.experiments.execution.pool import LocalPool, Pool, cores, side_by_side
from accesspoint.experiments.experiment import Setting, Value
from accesspoint.experiments.runs import plan, registry
from accesspoint.experiments.runs.store import Store, counted
from accesspoint.experiments.verdict import summary
from accesspoint.topologies import lab_kinds, requirements, targets
from accesspoint.topologies.kernels.kernel import SIMULATED, VIRTUAL
from accesspoint.topologies.lab_kinds import WIRED
from accesspoint.topologies.links.profiles import ProfileError
from accesspoint.topologies.requirements import LabError

ALL = "all"  # in place of names: every experiment
MAX_SIDE_BY_SIDE = 256
OTHERS = 56  # characters of the list's other columns: a title has the rest of the line


def main(options: argparse.Namespace, console: Console) -> int:
    """Raises LabError, ProfileError and OSError with the line that the user gets."""
    commands = {
        "list": _list, "run": _run, "resume": _resume, "campaign": _campaign, "compare": _compare, "report": _report,
        "export": _export,
    }  # fmt: skip
    return commands[options.command](options, console)


def _list(options: argparse.Namespace, console: Console) -> int:
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("experiment", no_wrap=True)
    grid.add_column(
        "title", no_wrap=not options.wide, max_width=None if options.wide else max(8, console.width - OTHERS)
    )
    for heading in ("paper", "arms", "points") if options.wide else ():
        grid.add_column(heading)
    for heading in ("quick", "full"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("results")
    wanted = registry.named(options.names) or registry.with_seeds(options.out)
    for name, experiment in ((name, registry.find(name)) for name in wanted):
        more = (experiment.paper, str(len(experiment.arms)), str(sum(1 for _ in experiment.points())))
        minutes = [f"{plan.seconds(_orders(name, quick)) / 60:.0f} min" for quick in (True, False)]
        grid.add_row(name, experiment.title, *(more if options.wide else ()), *minutes, _state(options.out, name))
    console.print(grid)
    for each in registry.broken():
        console.print(str(each), style="bold red", highlight=False, soft_wrap=True, markup=False)
    if options.names:
        return 0
    orders = [order for name in registry.together() for order in _orders(name, True)]
    alone, together = (plan.seconds(orders, number) / 60 for number in (1, side_by_side()))
    console.print(
        "Minutes are at most, of one run after the other. "
        f"All quick forms that `all` means: {alone:.0f}, or {together:.0f} with {side_by_side()} side by side.",
        highlight=False,
    )
    console.print(
        f"{', '.join(registry.on_own_links())}: on links of your own, once without --quick and --repeats.",
        highlight=False,
    )
    return 0


def _orders(name: str, quick: bool) -> list[plan.Order]:
    return plan.make(registry.find(name), quick).orders()


def _state(out: Path, name: str) -> str:
    """`quick, full: 12 to go`: forms that have results; `-`: none."""
    found = []
    for form, quick in (("quick", True), ("full", False)):
        kept = Store(out, name, quick)
        if made := kept.plan():
            left = len(kept.missing(made))
            found.append(f"{form}: {left} to go" if left else form)
    return ", ".join(found) or "-"


def _run(options: argparse.Namespace, console: Console) -> int:
    names = registry.together() if options.names == [ALL] else registry.named(options.names)
    if (seed := _whole(options.seed)) is not None:
        names = [registry.seeded(name, seed) for name in names]
    plans = []
    for name in names:
        made = _asked(name, options)
        kept = Store(options.out, name, options.quick)
        _refuse_unfinished(kept, options.fresh)
        plans.append((made, kept))
    pool = LocalPool(_places(options, [made for made, _ in plans]))
    _require([made for made, _ in plans])
    for made, kept in plans:
        kept.begin(made)
    return _make(plans, pool, options, console)


def _asked(name: str, options: argparse.Namespace) -> plan.Plan:
    arms = options.arms.split(",") if options.arms else None
    repeats, seconds = _whole(options.repeats), _number(options.seconds)
    setting = _setting(options)
    return plan.make(registry.find(name), options.quick, arms, repeats, seconds, options.target, options.clock, setting)


def _setting(options: argparse.Namespace) -> dict[str, Value]:
    """Return the given options of links of the user's own. Raises LabError."""
    if "profile" not in options:  # a campaign's links are the experiments' own
        return {}
    given = {name: getattr(options, name) for name in ("profile", "down", "up", "rtt", "cc", "wmediumd", "wpa2")}
    given["lab"] = options.lab if options.clock == SIMULATED else lab_kinds.choose(options).lab
    return {name: value for name, value in given.items() if value not in (None, False, WIRED)}


def _refuse_unfinished(kept: Store, fresh: bool) -> None:
    """Raises LabError when an interrupted run has left something that would be lost."""
    made = None if fresh else kept.plan()
    left = len(kept.missing(made)) if made else 0
    if made and left and any(kept.directory.glob("runs/*/run.json")):
        raise LabError(
            f"{kept.directory} has an interrupted run with {left} of {len(made.orders())} to go: "
            f"`resume {made.experiment}` continues, `run {made.experiment} --fresh` starts over"
        )


def _resume(options: argparse.Namespace, console: Console) -> int:
    work = []
    for name in registry.named(options.names) or registry.with_seeds(options.out):
        registry.find(name)
        forms = (True,) if options.quick else (False, True)
        for kept in (Store(options.out, name, quick) for quick in forms):
            made = kept.plan()
            if made and kept.missing(made):
                work.append((made, kept))
    if not work:
        raise LabError("nothing was interrupted: every run is there")
    _require([made for made, _ in work])
    # One form at a time: an experiment's two are told apart by its name.
    for form in [[one for one in work if one[0].quick == quick] for quick in (False, True)]:
        if form:
            _make(form, LocalPool(_places(options, [made for made, _ in form])), options, console)
    return 0


def _require(plans: list[plan.Plan]) -> None:
    for made in plans:
        if made.clock != SIMULATED:  # a simulation's switch is in our library
            requirements.check(str(made.setting.get("cc", "cubic")))
            targets.find(made.target).version()
        plan.require(made)


def _make(
    plans: list[tuple[plan.Plan, Store]],
    pool: Pool,
    options: argparse.Namespace,
    console: Console,
    careful: bool = False,
) -> int:
    from accesspoint.experiments.execution.execute import Execution
    from accesspoint.experiments.render import site

    for _, kept in plans:
        kept.write_machine()
    runs = sum(len(kept.missing(made)) for made, kept in plans)
    names = ", ".join(made.experiment for made, _ in plans)
    console.print(f"[bold]{names}[/]: {runs} runs", highlight=False)
    for made in (made for made, _ in plans if made.declared().under):
        console.print(Setting.of(made.setting, made.target).describe(), highlight=False)
    try:
        tally = Execution(plans, pool, console, careful).run()
    except KeyboardInterrupt:
        console.print("interrupted: finished runs are kept, `resume` continues from there", style="bold yellow")
        raise
    for made, kept in plans:
        kept.write_runner({"side_by_side": tally.side_by_side, "cores": tally.cpu})
        summary.write(made, kept)
        _show(kept, console)
    console.print(
        f"{tally.made} runs, {len(tally.unfit)} unfit, up to {tally.side_by_side} side by side; this runner took "
        f"{tally.cpu:.1%} of a core",
        highlight=False,
    )
    index = site.build([kept for _, kept in plans], options.out)
    console.print(f"report: {index}", highlight=False, soft_wrap=True)
    return 0


def _campaign(options: argparse.Namespace, console: Console) -> int:
    if options.scheduler and options.workers:
        raise ProfileError("--workers are of this machine: with --scheduler they are the cluster's own")
    work = []
    for name in registry.named(options.names) or registry.together():
        asked = _asked(name, options)
        work.append((asked, Store(options.out, name, options.quick)))
        if options.fresh or work[-1][1].plan() != asked:
            _refuse_unfinished(work[-1][1], options.fresh)
    if not options.scheduler:
        _require([asked for asked, _ in work])
    from accesspoint.experiments.execution import cluster  # not before `requirements.check`: it imports Mininet

    with contextlib.ExitStack() as stack:
        workers = _side_by_side(options.workers) if options.workers else cores()
        address = options.scheduler or stack.enter_context(cluster.local(workers))
        pool = cluster.ClusterPool(stack.enter_context(cluster.connect(address)), one_machine=not options.scheduler)
        for asked, kept in work:
            if options.fresh or kept.plan() != asked:
                kept.begin(asked)
        return _make(work, pool, options, console, careful=not options.scheduler)


def _compare(options: argparse.Namespace, console: Console) -> int:
    found = _with_results(options)
    for kept in found:
        _show(kept, console)
    _write_pages(found, options.pages)
    return 0


def _report(options: argparse.Namespace, console: Console) -> int:
    from accesspoint.experiments.render import site

    found = _with_results(options)
    index = site.build(found, options.out)
    _write_pages(found, options.pages)
    console.print(f"report: {index}", highlight=False, soft_wrap=True)
    return 0


def _export(options: argparse.Namespace, console: Console) -> int:
    from accesspoint.experiments.render.export import FORMATS, export

    formats = options.formats.split(",")
    for name in formats:
        if name not in FORMATS:
            raise ProfileError(f"format '{name}' is unknown: choose of {', '.join(FORMATS)}")
    for kept in _with_results(options):
        for path in export(kept, options.to, formats):
            console.print(str(path), highlight=False, soft_wrap=True, markup=False)
    return 0


def _write_pages(found: list[Store], directory: Path | None) -> None:
    if directory is None:
        return
    from accesspoint.experiments.render import figures
    from accesspoint.experiments.runs import archive, store
    from accesspoint.experiments.verdict import audit, pages

    for kept in found:
        made, planned = kept.summary(), kept.plan()
        assert planned
        name = planned.experiment
        runs = counted(planned, kept.runs(planned))
        if runs:
            made["raw"] = archive.keep(runs, name, directory, kept.directory)
        shutil.rmtree(pages.plots(directory, name), ignore_errors=True)
        pages.plots(directory, name).mkdir(parents=True)
        figures.write_all(planned.declared(), made, runs, pages.plots(directory, name))
        # For `accesspoint.experiments.verdict.judge`; indented, so that a change of one figure is a change of one line.
        (directory / "summaries").mkdir(exist_ok=True)
        store.write(directory / "summaries" / f"{name}.json", json.dumps(made, indent=1) + "\n")
    audit.keep(directory)
    for name, made in audit.summaries(directory).items():
        store.write(directory / f"{name}.md", pages.experiment_page(made, directory))


def _with_results(options: argparse.Namespace) -> list[Store]:
    """Return the stores of results: of the full form if it has any, unless the quick one is asked for."""
    found = []
    for name in registry.named(options.names) or registry.with_seeds(options.out):
        registry.find(name)
        for quick in (True,) if options.quick else (False, True):
            kept = Store(options.out, name, quick)
            made = kept.plan()
            # An experiment that was interrupted with others may be complete without a summary.
            if made and ((kept.directory / "summary.json").exists() or not kept.missing(made)):
                summary.write(made, kept)  # goals may have changed since
                found.append(kept)
                break
        else:
            if options.names:
                raise LabError(f"'{name}' has no results in {options.out}: `run {name}` makes some")
    if not found:
        raise LabError(f"there are no results in {options.out}: `run NAME` makes some")
    return found


def _show(kept: Store, console: Console) -> None:
    from accesspoint.experiments.verdict import compare

    compare.show(kept.summary(), console)


def _whole(text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        raise ProfileError(f"'{text}' is not a whole number")
    return None if text is None else int(text)


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise ProfileError(f"seconds '{text}' is not possible: give a number") from None


def _places(options: argparse.Namespace, plans: list[plan.Plan]) -> int:
    """Number of runs of a load of 1 at a time: the requested one; else one for one experiment, and for several the
    number that the machine carries. Runs in virtual time do not disturb each other: one for each core."""
    virtual = all(made.clock in (VIRTUAL, SIMULATED) for made in plans)
    if options.side_by_side is None:
        return side_by_side() if len(plans) > 1 or virtual else 1
    number = _side_by_side(options.side_by_side)
    return math.ceil(number * plan.PER_CORE) if virtual else number


def _side_by_side(text: str) -> int:
    number = _whole(text)
    if not number or number > MAX_SIDE_BY_SIDE:
        raise ProfileError(f"side-by-side '{text}' is not possible: give 1 to {MAX_SIDE_BY_SIDE}")
    return number
