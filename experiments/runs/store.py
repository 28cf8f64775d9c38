# SPDX-License-Identifier: Apache-2.0
"""Results on disk: `out/NAME/quick` or `full`. A run's folder appears at once and complete, or not at all.

plan.json               what was asked for
runs/ID/samples.parquet every sample: time_s, quantity, source, value, span_s
runs/ID/all.parquet     the same where those are a digest
runs/ID/measures.json   the experiment's measures, taken at the run's end
runs/ID/run.json        arm, point, repeat, seed, parameters, commit, claims, versions, self-check
summary.json            every repeat's figures, medians with intervals, verdicts
"""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs.plan import Order, Plan
from accesspoint.topologies.requirements import LabError

PART = ".part-"  # what a folder's name begins with while it is written
ALL_SAMPLES = "all.parquet"  # in the folder of a run whose samples are a digest: those that it is of
LIVE = "live"  # in the folder of a run while it plays: a line for people who watch


@dataclass(frozen=True)
class Run:
    """A finished run. problems: empty when it is fit."""

    order: Order
    directory: Path
    facts: dict[str, Any]

    @property
    def fit(self) -> bool:
        return not self.facts["self_check"]["problems"]

    @property
    def problems(self) -> list[str]:
        return list(self.facts["self_check"]["problems"])

    @property
    def logs(self) -> Path:
        """Folder of the lab's logs."""
        return self.directory / "logs"

    def raw(self) -> Raw:
        return Raw(self.samples(), self.facts["seconds"], self.facts["scale"], self.order.point, self.order.arm)

    def samples(self) -> list[Sample]:
        return read_samples(self.directory / "samples.parquet")


class Store:
    """The results of one experiment in one form."""

    def __init__(self, out: Path, experiment: str, quick: bool) -> None:
        self.directory = out / experiment / ("quick" if quick else "full")
        self._runs = self.directory / "runs"

    def plan(self) -> Plan | None:
        """The plan of these results; None without results. Raises LabError."""
        file = self.directory / "plan.json"
        if not file.exists():
            return None
        try:
            return Plan.from_json(file.read_text())
        except (ValueError, TypeError, KeyError):
            raise LabError(f"{file} is damaged: remove {self.directory} and run again") from None

    def begin(self, plan: Plan) -> None:
        """Removes earlier results and keeps the plan of new ones."""
        for path in (self._runs, *self.directory.glob("*.flent.gz"), *self.directory.glob("*.svg")):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        for name in ("summary.json", "index.html", "machine.json"):
            (self.directory / name).unlink(missing_ok=True)
        self._runs.mkdir(parents=True, exist_ok=True)
        write(self.directory / "plan.json", plan.as_json())

    def write_machine(self) -> None:
        """Write the machine that the runs are made on."""
        from accesspoint.experiments.runs import provenance

        write(self.directory / "machine.json", json.dumps(provenance.machine(), indent=2) + "\n")

    def machine(self) -> dict[str, Any]:
        return dict(json.loads((self.directory / "machine.json").read_text()))

    def write_runner(self, facts: dict[str, Any]) -> None:
        """Write facts of the runner: how it made the runs."""
        write(self.directory / "runner.json", json.dumps(facts, indent=2) + "\n")

    def runner(self) -> dict[str, Any]:
        file = self.directory / "runner.json"
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def summary(self) -> dict[str, Any]:
        """Read the summary. Raises LabError."""
        try:
            return dict(json.loads((self.directory / "summary.json").read_text()))
        except (OSError, ValueError) as error:
            raise LabError(f"{self.directory}/summary.json cannot be read: {error}") from None

    def has_page(self) -> bool:
        return (self.directory / "index.html").exists() and (self.directory / "summary.json").exists()

    def part(self, order: Order) -> Path:
        """A new folder to make a run in: on the same file system as where it will be."""
        path = self._runs / f"{PART}{order.id}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def live(self, order: Order) -> str:
        """The line of a run that plays; empty when there is none."""
        try:
            return (self._runs / f"{PART}{order.id}" / LIVE).read_text().rstrip()
        except OSError:
            return ""

    def keep(self, order: Order, part: Path) -> Run:
        """Puts a finished run's folder in its place."""
        place = self._runs / order.id
        shutil.rmtree(place, ignore_errors=True)
        os.replace(part, place)
        return Run(order, place, json.loads((place / "run.json").read_text()))

    def unpack(self, order: Order, packed: bytes) -> Path:
        """The folder of a run that came over the network (`pack`), for `keep` or `keep_failure`. Raises LabError for
        what is no file of a run."""
        part = self.part(order).resolve()
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            # Python 3.11.2, Debian's, has no filters for tarfile yet.
            for member in archive:
                path = (part / member.name).resolve()
                content = archive.extractfile(member) if member.isfile() and path.is_relative_to(part) else None
                if content is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
                elif not member.isdir():
                    raise LabError(f"run {order.id}: its worker sent {member.name!r}, which is no file of a run")
        return part

    def keep_failure(self, order: Order, error: str) -> Run:
        """A run that could not be made, as one that is unfit, with what its part has in logs."""
        part = self._runs / f"{PART}{order.id}"
        part.mkdir(parents=True, exist_ok=True)
        write_samples([], part / "samples.parquet")
        facts = {"arm": order.arm, "point": dict(order.point), "repeat": order.repeat, "failed": True}
        write(part / "run.json", json.dumps(facts | {"self_check": {"problems": [error]}}, indent=2) + "\n")
        return self.keep(order, part)

    def discard_parts(self) -> None:
        """Removes what an interrupted run has left half done."""
        for path in self._runs.glob(f"{PART}*"):
            shutil.rmtree(path, ignore_errors=True)

    def find(self, order: Order) -> Run | None:
        """The finished run, if it is there and can be read."""
        place = self._runs / order.id
        try:
            return Run(order, place, json.loads((place / "run.json").read_text()))
        except (OSError, ValueError):
            return None

    def missing(self, plan: Plan) -> list[Order]:
        """Orders still to run: those without a run, and second attempts after unfit first ones."""
        single = plan.single
        return [order for first in plan.orders() if (order := self._next(first, single)) is not None]

    def _next(self, first: Order, single: bool) -> Order | None:
        run = self.find(first)
        if run is None or (single and run.facts.get("failed")):
            return first
        if run.fit or single:
            return None
        again = self.find(second(first))
        return second(first) if again is None or again.facts.get("failed") else None

    def runs(self, plan: Plan) -> list[Run]:
        """All finished runs, first attempts before second ones."""
        orders = plan.orders()
        there = {path.name for path in self._runs.glob("*")}  # few of so many have a second attempt
        found = [self.find(order) for order in [*orders, *map(second, orders)] if order.id in there]
        return [run for run in found if run]


def counted(plan: Plan, runs: Sequence[Run]) -> list[Run]:
    """Select the runs behind the figures: fit ones, and of a single repeat (Plan.single) all that were made."""
    single = plan.single
    return [run for run in runs if run.fit or (single and not run.facts.get("failed"))]


def second(order: Order) -> Order:
    """The second attempt at a run."""
    return replace(order, attempt=2)


def write(path: Path, text: str) -> None:
    """Write a file atomically: it holds its whole text, or is as it was before."""
    part = path.with_name(f"{PART}{path.name}")
    part.write_text(text)
    os.replace(part, path)


def pack(directory: Path) -> bytes:
    """A run's folder as a tar archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(directory.rglob("*")):
            archive.add(path, path.relative_to(directory), recursive=False)
    return packed.getvalue()


def write_samples(samples: Sequence[Sample], path: Path) -> None:
    """Write samples as Parquet: a row each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "time_s": pa.array([s.time for s in samples], pa.float64()),
            "quantity": pa.array([s.quantity for s in samples], pa.string()).dictionary_encode(),
            "source": pa.array([s.source for s in samples], pa.string()).dictionary_encode(),
            "value": pa.array([s.value for s in samples], pa.float64()),
            "span_s": pa.array([s.span for s in samples], pa.float32()),
        }
    )
    pq.write_table(table, path, compression="zstd")


def read_samples(path: Path) -> list[Sample]:
    import pyarrow.parquet as pq

    try:
        columns = pq.read_table(path, use_threads=False).to_pydict()
    except (OSError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise LabError(f"{path} is damaged ({why}): remove its folder, then `resume` makes the run again") from None
    rows = zip(*(columns[name] for name in ("time_s", "quantity", "value", "span_s", "source")), strict=True)
    return [Sample(*row) for row in rows]
