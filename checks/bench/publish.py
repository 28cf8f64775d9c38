# SPDX-License-Identifier: Apache-2.0
"""Publish benchmarks: copy summaries of out/bench to docs/results/bench, with their samples, and write their tables.

On a machine with nothing else to do, in a checkout whose files are those of its commit:

    make bench
    .venv/bin/python -m accesspoint.checks.bench.publish
    git add docs/results

A page has the table of some parts of a component (a part is a module of checks/bench/COMPONENT) from the line
`<!-- bench: PART, PART -->` to the line `<!-- bench: end -->`. Parts that were not measured again stay as they were. A
table of parts without a summary is written by hand, and its head reports that nobody can compute its figures again.

A change of a row's text, goal or arithmetic, or of the code that was measured, takes `--recompute`: it makes rows and
tables of the published samples again. `--check` writes nothing and compares; `make audit` and `make test` run it.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from accesspoint.checks.bench import summary
from accesspoint.checks.bench.report import Row, figures, number, run
from accesspoint.checks.bench.summary import Record
from accesspoint.checks.conformance.report import cell
from accesspoint.experiments.runs.store import write
from accesspoint.experiments.verdict import audit
from accesspoint.experiments.verdict.audit import Audit
from accesspoint.topologies.requirements import ROOT, LabError

OUT = ROOT / "out/bench"
RESULTS = ROOT / "docs/results"
FOLDER = "bench"
REGION = re.compile(r"^<!-- bench: ([\w, ]+) -->\n((?:(?!<!-- bench: ).)*?)^<!-- bench: end -->$", re.M | re.S)
HEAD = re.compile(r"^\*\*(?:Not audited|Older code)\*\*: .*\n\n", re.M)
UNAUDITED = Audit(samples=False, commits={})


@dataclass(frozen=True)
class Component:
    """A folder of checks/bench, the page of its tables, and the parts of the code that it measures."""

    name: str
    page: str
    measured: tuple[str, ...]

    @property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """Parts of the code whose change makes figures old -> their paths."""
        return {part: audit.PARTS[part] for part in self.measured} | {"its benchmark": (f"checks/bench/{self.name}",)}

    def file(self, folder: Path) -> Path:
        return folder / f"{self.name}.json"

    def rows(self, file: Path, name: str, record: Record) -> list[Row]:
        """Make the rows of a part of a summary again, from its samples. Raises LabError."""
        try:
            return summary.rows(summary.find(self.name, name), record["raw"])
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise LabError(f"{file}: {name}: its samples make no rows: {type(error).__name__}: {error}") from None


COMPONENTS = (
    Component("switch", "speed.md", ("p4src", "switch")),
    Component("controller", "controller.md", ("p4src", "switch", "controller")),
    Component("hosts", "end-hosts.md", ("hosts",)),
)


def published(component: Component, results: Path) -> dict[str, Record]:
    """Read a published summary; empty where there is none. Raises LabError."""
    file = component.file(results / FOLDER)
    return summary.read(file) if file.exists() else {}


def accept(file: Path, records: Mapping[str, Record]) -> None:
    """Check the provenance of what is to be published. Raises LabError."""
    for name, record in records.items():
        commit = record["commit"]
        reasons = {
            "gone": f"commit {commit} is not in the history of this checkout",
            "dirty": f"files differed from {commit.removesuffix(audit.DIRTY)}: commit them",
            "there": "it was measured next to another build, of which there is no commit" if record["beside"] else "",
        }
        if why := record["raw"].get(summary.NOT_MEASURED):
            raise LabError(f"{file}: {name} was not measured: {why}")
        if reason := reasons[audit.state(commit)]:
            raise LabError(f"{file}: {name}: {reason}, and run `make bench` again")


def recompute(component: Component, file: Path, records: Mapping[str, Record]) -> dict[str, Record]:
    """Return records with their rows made again. Raises LabError."""
    return {
        name: record | {"rows": summary.as_json(component.rows(file, name, record))} for name, record in records.items()
    }


def differing(component: Component, file: Path, records: Mapping[str, Record]) -> list[str]:
    """Return the rows of each part that do not follow from its samples. Raises LabError."""
    found = []
    for name, record in records.items():
        made = summary.as_json(component.rows(file, name, record))
        for own, kept in zip_longest(made, record["rows"]):
            if own != kept:
                field = next(key for key in (own or {}) | (kept or {}) if (own or {}).get(key) != (kept or {}).get(key))
                was, makes = ("nothing" if row is None else json.dumps(row.get(field)) for row in (kept, own))
                found.append(f"{name}: {field} of {(own or kept)['name']} is {was}, its samples make {makes}")
    return found


def table(rows: Iterable[Row]) -> list[str]:
    """Return the lines of a table."""
    lines = ["| name | measured | value | goal | |", "| --- | --- | ---: | ---: | --- |"]
    for row in rows:
        value, goal = figures(row)
        between = f" ({number(min(row.rounds))} to {number(max(row.rounds))})" if row.rounds else ""
        verdict = f"**{row.verdict}**" if row.verdict in ("fail", "inconclusive") else row.verdict
        lines.append(f"| `{row.name}` | {cell(row.text)} | {value}{between} | {goal} | {verdict} |")
    return lines


def provenance(records: Mapping[str, Record]) -> list[str]:
    """Return a line for each commit and machine that took part: parts, commit, days, machine, load."""
    groups: dict[str, dict[str, Record]] = {}
    for name, record in records.items():
        groups.setdefault(json.dumps([record["commit"], record["machine"]]), {})[name] = record
    lines = []
    for group in groups.values():
        first, *_ = ordered = sorted(group.values(), key=lambda record: record["started"])
        days = " to ".join(dict.fromkeys(record["started"][:10] for record in (first, ordered[-1])))
        machine = first["machine"]
        where = f"{machine['processor']}, {machine['cores']} cores, {machine['memory']}, Linux {machine['kernel']}"
        load = f"load {first['load'][0]:.1f} at the start and {ordered[-1]['load'][1]:.1f} at the end"
        names = f"{', '.join(f'`{name}`' for name in group)}: " if len(groups) > 1 else ""
        lines += [f"{names}Commit {first['commit']}, {days}, on {where}; {load}.", ""]
    return lines


def region(component: Component, file: Path, records: Mapping[str, Record], known: bool = True) -> str:
    """Return the text between two marks. known: the history is here, and what is found in it is in the head."""
    commits = dict.fromkeys(record["commit"] for record in records.values())
    lines = audit.of_commits(commits, component.sources, samples=True).head() if known else []
    lines += provenance(records)
    rows = []
    for name, record in records.items():
        rows += component.rows(file, name, record)
        overview = getattr(summary.find(component.name, name), "overview", None)
        if overview and summary.NOT_MEASURED not in record["raw"]:
            heading, *others = overview(record["raw"])
            lines += [f"| {' | '.join(line)} |" for line in (heading, ["---"] * len(heading), *others)]
            lines += [""]
    samples = f"In brackets: least and most of the rounds. [Samples]({FOLDER}/{component.name}.json)."
    return "\n".join([*lines, *table(rows), "", samples]) + "\n"


def page(component: Component, text: str, file: Path, records: Mapping[str, Record], known: bool = True) -> str:
    """Return the text of a page with the tables of a component's records, those by hand with a head that they are not
    audited. Raises LabError."""
    placed: list[str] = []

    def made(match: re.Match[str]) -> str:
        names = [name.strip() for name in match[1].split(",")]
        placed.extend(names)
        own = {name: records[name] for name in names if name in records}
        if own and (missing := [name for name in names if name not in own]):
            raise LabError(
                f"{file}: no {', '.join(missing)}, of which {component.page} has one table: run `make bench`"
            )
        hand = "\n".join(UNAUDITED.head()) + "\n" + HEAD.sub("", match[2])
        return f"<!-- bench: {match[1]} -->\n{region(component, file, own, known) if own else hand}<!-- bench: end -->"

    result = REGION.sub(made, text)
    if missing := [name for name in records if name not in placed]:
        raise LabError(f"{component.page} has no table of {missing[0]}: add `<!-- bench: {missing[0]} -->`")
    return result


def publish(names: list[str], out: Path, results: Path) -> None:
    """Publish the summaries of a folder. Raises LabError, and then has written nothing."""
    chosen = [one for one in COMPONENTS if one.name in names or (not names and one.file(out).exists())]
    if not chosen:
        raise LabError(f"{out} has no summary: run `make bench`")
    renewed = {}
    for component in chosen:
        source = component.file(out)
        records = summary.read(source)
        accept(source, records)
        before = published(component, results)
        for name in records.keys() & before.keys():
            if records[name]["started"] < before[name]["started"]:
                raise LabError(f"{source}: {name} is older than what is published: run `make bench` again")
        renewed[component.name] = before | recompute(component, source, records)
    renew(renewed, results)


def renew(records: Mapping[str, Mapping[str, Record]], results: Path) -> None:
    """Write summaries and pages of components. Raises LabError, and then has written nothing."""
    texts = {}
    for component in (one for one in COMPONENTS if one.name in records):
        path = results / component.page
        file = component.file(results / FOLDER)
        texts[path] = page(component, path.read_text(), file, records[component.name])
    for component in (one for one in COMPONENTS if records.get(one.name)):
        file = component.file(results / FOLDER)
        file.parent.mkdir(exist_ok=True)
        summary.store(file, records[component.name])
        print(f"written: {file}")
    for path, text in texts.items():
        if path.read_text() != text:
            write(path, text)
            print(f"written: {path}")


def check(results: Path, strict: bool) -> int:
    """Print the counts, and each fault in a line. Return the exit code."""
    rows, problems = 0, []
    counts: dict[str, list[str]] = {"differ": [], "without samples": [], "commit not there": []}
    whole = audit.whole_history()
    for component in COMPONENTS:
        file, path = component.file(results / FOLDER), results / component.page
        records = published(component, results)
        rows += sum(len(record["rows"]) for record in records.values())
        others = differing(component, file, records)
        counts["differ"] += others
        problems += [f"{file}: {text}" for text in others[:1]]
        text = path.read_text()
        made = page(component, text, file, records, whole)
        if not whole:
            text, made = HEAD.sub("", text), HEAD.sub("", made)
        lines = zip_longest(text.splitlines(), made.splitlines(), fillvalue="nothing")
        problems += [f"{path} has `{old}`, its samples make `{new}`" for old, new in lines if old != new][:1]
        without = [match[1] for match in REGION.finditer(text) if not {*match[1].split(", ")} & records.keys()]
        counts["without samples"] += [f"{component.page}: {names}" for names in without]
        gone = [name for name, record in records.items() if audit.state(record["commit"]) != "there"] if whole else []
        counts["commit not there"] += [f"{component.page}: {name}" for name in gone]
    print(f"{rows} figures of benchmarks")
    for word, of in counts.items():
        print(f"  {word}: {len(of)}" + (f": {'; '.join(of)}" if of else ""))
    for word in ("without samples", "commit not there") if strict else ("commit not there",):
        problems += [f"{text}: {word}" for text in counts[word]]
    for text in problems:
        print(f"error: {text}")
    if problems:
        print("Tables are renewed by `python -m accesspoint.checks.bench.publish --recompute`; `--help` has more.")
    return int(bool(problems))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.checks.bench.publish",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [component.name for component in COMPONENTS]
    parser.add_argument("name", nargs="*", help=f"components, all that were measured by default: {', '.join(names)}")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the summaries, out/bench by default")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--recompute", action="store_true", help="of the published samples, without new ones")
    kinds.add_argument("--check", action="store_true", help="compare only: exit code 1, and the first that differs")
    parser.add_argument("--strict", action="store_true", help="with --check: allow no table without samples")
    options = parser.parse_args()
    if unknown := [name for name in options.name if name not in names]:
        raise LabError(f"there is no component {unknown[0]}; there are {', '.join(names)}")
    if options.check:
        sys.exit(check(RESULTS, options.strict))
    if options.recompute:
        if not audit.whole_history():
            raise LabError("the history is not here: fetch it with `git fetch --unshallow`")
        files = {one.name: (one, one.file(RESULTS / FOLDER)) for one in COMPONENTS}
        renew({n: recompute(one, file, published(one, RESULTS)) for n, (one, file) in files.items()}, RESULTS)
    else:
        publish(options.name, options.out, RESULTS)


if __name__ == "__main__":
    run(main)
