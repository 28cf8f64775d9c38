# SPDX-License-Identifier: Apache-2.0
"""The comparison: rounds of generated packets, each with entries of its own, and the verdict on what leaves."""

import collections
import itertools
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from accesspoint.checks.conformance.against import page
from accesspoint.checks.conformance.against.entries import (
    as_tutorial,
    copies,
    explain,
    make_entries,
    seen_keys,
    unique,
)
from accesspoint.checks.conformance.against.programs import CASES, PORTS, Case, Frame
from accesspoint.checks.conformance.against.sides import (
    TAGS,
    Outputs,
    Side,
    number_of,
    numbered,
    pass_frames,
    settled_counters,
)
from accesspoint.checks.conformance.server import ServerError
from accesspoint.checks.conformance.stf import cases
from accesspoint.checks.conformance.suite import show
from accesspoint.checks.harness.p4runtime import Program, describe, insert
from accesspoint.topologies import targets

OUT = Path("out/conformance")
SCOUTS = 400  # packets whose keys the entries are made from


@dataclass
class Verdict:
    """packets: sent; left: frames that left the target; differing: packet -> reason, empty if nobody knows one.

    cells: of counters. other: differences that belong to no packet.
    """

    packets: int = 0
    left: int = 0
    entries: int = 0
    differing: dict[int, str] = field(default_factory=dict)
    cells: int = 0
    other: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Return whether something differs without a reason."""
        return bool(self.other) or "" in self.differing.values()


def compare(sides: Sequence[Side], case: Case, packets: int, seed: int) -> Verdict:
    """Run all rounds of a case. Raises ServerError, NotApplicable."""
    verdict = Verdict()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        program = cases.load(cases.Case(case.program, case.program), directory)
        for first in range(0, packets, case.round):
            count = min(case.round, packets - first)
            compare_round(sides, case, program, verdict, range(first, first + count), seed, directory)
    return verdict


def compare_round(
    sides: Sequence[Side], case: Case, program: Program, verdict: Verdict, numbers: range, seed: int, directory: Path
) -> None:
    """Send the packets of these numbers into both servers, which get the same entries, and add to the verdict."""
    rng = random.Random(seed + numbers.start)
    frames = [(rng.choice(PORTS), numbered(case.packet(rng), number)) for number in numbers]
    frames = [(port, frame) for port, frame in frames if frame[12:14] not in TAGS]
    scouts = frames[:SCOUTS]
    entries = make_entries(case, program, seen_keys(case, scouts, as_tutorial(program, []), directory), rng)
    # The actions of the first entries lead to other keys.
    keys = seen_keys(case, scouts, as_tutorial(program, unique(program, entries)), directory)
    entries = unique(program, entries + make_entries(case, program, keys, rng))
    updates = copies() + [insert(entry) for entry in entries]

    for side in sides:
        side.begin(program, updates)
    try:
        pass_frames(sides, case, frames)
        counters = settled_counters(sides, program)
    finally:
        for side in sides:
            side.end()
    one, other = sides
    for update, we, they in zip(updates, one.taken, other.taken, strict=True):
        if we != they:
            who = one if we else other
            verdict.other.append(f"{case.name}: only {who.server.name} takes {show(str(update))}")
    verdict.packets += len(frames)
    verdict.entries += sum(one.taken)
    verdict.left += sum(counted.total() for counted in one.outputs.values())
    differing, without_number = judge(case, frames, one.outputs, other.outputs)
    verdict.differing |= differing
    verdict.other += [f"{case.name}: frames without a mark differ: {how}" for how in without_number]
    sent = {number_of(frame): (port, frame) for port, frame in frames}
    for number in (number for number, reason in differing.items() if not reason):
        port, frame = sent[number]
        how = difference(one.outputs.get(number), other.outputs.get(number))
        story = explain(case.json, [frame], as_tutorial(program, entries), port, directory)
        stories(sides).mkdir(parents=True, exist_ok=True)
        (stories(sides) / f"{case.name}-{number}.txt").write_text(f"{how}\n\n{frame.hex()}\n\n{story}")
    for name, cells in counters[0].items():
        verdict.cells += len(cells)
        pairs = enumerate(itertools.zip_longest(cells, counters[1][name]))
        unlike = [f"cell {at}: {mine} and {its}" for at, (mine, its) in pairs if mine != its]
        if unlike and not any(verdict.differing.values()):
            verdict.other.append(f"{case.name}: counter {name} differs: {show('; '.join(unlike))}")


def stories(sides: Sequence[Side]) -> Path:
    """Return the folder of what differs without a reason."""
    return OUT / "-".join(["differences", *(side.server.name for side in sides)])


def judge(case: Case, frames: Sequence[Frame], one: Outputs, other: Outputs) -> tuple[dict[int, str], list[str]]:
    """Return the packets whose frames differ, each with the reason, and the differences of frames without a mark."""
    sent = {number_of(frame): frame for _, frame in frames}
    differing: dict[int, str] = {}
    others = []
    for number in one.keys() | other.keys():
        mine, its = one.get(number), other.get(number)
        if mine == its:
            continue
        if number is None or number not in sent:
            others.append(difference(mine, its))
            continue
        known = [r for r in case.reasons if r.concerns(sent[number]) and r.without(mine) == r.without(its)]
        differing[number] = known[0].name if known else ""
    return differing, others


def difference(mine: collections.Counter[Frame] | None, its: collections.Counter[Frame] | None) -> str:
    """Return what has left only the target, and what only the other server."""
    mine, its = mine or collections.Counter(), its or collections.Counter()
    first, second = (
        [f"port {port}: {frame.hex()}" for port, frame in frames.elements()] for frames in (mine - its, its - mine)
    )
    return f"only the target {first}, only the other {second}"


def run(target: str, against: str, names: Sequence[str], packets: int, seed: int, markdown: Path | None) -> int:
    """Compare two targets on the named programs, or all, and return the exit code.

    Raises ServerError, LabError, NotApplicable."""
    verdicts: dict[str, Verdict] = {}
    sides = [Side(target, 0), Side(against, 1)]
    shutil.rmtree(stories(sides), ignore_errors=True)
    with sides[0].server, sides[1].server:
        for case in CASES:
            if names and case.name not in names:
                continue
            try:
                v = verdicts[case.name] = compare(sides, case, packets, seed)
            except grpc.RpcError as failure:
                raise ServerError(f"{case.name}: {describe(failure)}: run again when the machine has time") from None
            without = sum(not reason for reason in v.differing.values())
            differ = f"{len(v.differing)} differ, {without} without a reason"
            print(f"{case.name}: {v.packets} packets, {v.left} frames, {differ}")
            for line in v.other:
                print(f"  {line}", file=sys.stderr)
            sys.stdout.flush()
    if markdown:
        path = markdown if markdown.name else Path("docs/results/differences.md")
        titles = [(one.name, one.title, one.version()) for one in map(targets.find, (target, against))]
        path.write_text(page.page(verdicts, titles, cases.compiler_version()))
    return int(any(v.failed for v in verdicts.values()))
