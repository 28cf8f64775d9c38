#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make differences`: apswitch against BMv2, packet by packet.

Both get the same programs, entries and generated packets over P4Runtime. apswitch takes the packets from pcap files;
BMv2, which drops what comes faster than it works, takes them from veths, a few at a time. What leaves through every
port and to the controller is compared byte for byte, then the counters. Writes docs/results/differences.md, and what
differs with its story to out/differences/.

Exit code: 0 no difference without a reason, 1 others, 2 the comparison could not be made.
"""

import argparse
import collections
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from accesspoint.checks.harness.p4runtime import Program, insert
from accesspoint.topologies import targets
from accesspoint.topologies.links import veth
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.requirements import LabError
from tools.differences.entries import as_tutorial, copies, make_entries, seen_keys, unique
from tools.differences.programs import CASES, CPU_PORT, PORTS, ROOT, Case, DifferencesError
from tools.differences.switches import TAGS, apswitch, number_of, numbered, on_apswitch, on_bmv2, write_pcap

PAGE = ROOT / "docs/results/differences.md"
OUT = ROOT / "out/differences"
SCOUTS = 400  # packets whose keys the entries are made from


@dataclass
class Verdict:
    """packets: sent; left: frames that left apswitch; differing: packet -> reason, empty if nobody knows one."""

    packets: int = 0
    left: int = 0
    entries: int = 0
    differing: dict[int, str] = field(default_factory=dict)
    cells: int = 0
    other: list[str] = field(default_factory=list)


def compare(case: Case, packets: int, seed: int, directory: Path) -> Verdict:
    """Rounds of packets, each with entries of its own."""
    program = Program(case.json, case.p4info)
    verdict = Verdict()
    for first in range(0, packets, case.round):
        rng = random.Random(seed + first)
        count = min(case.round, packets - first)
        frames = [(rng.choice(PORTS), numbered(case.packet(rng), first + index)) for index in range(count)]
        frames = [(port, frame) for port, frame in frames if frame[12:14] not in TAGS]
        scouts = frames[:SCOUTS]
        entries = make_entries(case, program, seen_keys(case, scouts, as_tutorial(program, []), directory), rng)
        # The actions of the first entries lead to other keys.
        keys = seen_keys(case, scouts, as_tutorial(program, unique(program, entries)), directory)
        entries = unique(program, entries + make_entries(case, program, keys, rng))
        updates = copies() + [insert(entry) for entry in entries]

        ours = on_apswitch(case, program, updates, frames, directory)
        theirs = on_bmv2(case, program, updates, frames, ours.outputs, directory)
        for one, we, they in zip(updates, ours.taken, theirs.taken, strict=True):
            if we != they:
                who = "apswitch" if we else "BMv2"
                verdict.other.append(f"{case.name}: only {who} takes {str(one)[:300]}")
        verdict.packets += len(frames)
        verdict.entries += sum(ours.taken)
        verdict.left += sum(counted.total() for counted in ours.outputs.values())
        by_number = {number_of(frame): (port, frame) for port, frame in frames}
        for number in ours.outputs.keys() | theirs.outputs.keys():
            mine, other = ours.outputs.get(number), theirs.outputs.get(number)
            if mine == other:
                continue
            if number is None or number not in by_number:
                verdict.other.append(f"{case.name}: frames without a mark differ: {difference(mine, other)}")
                continue
            port, frame = by_number[number]
            verdict.differing[number] = reason(case, frame, mine, other)
            if not verdict.differing[number]:
                tell(case, program, entries, port, frame, difference(mine, other), directory)
        for name, cells in ours.counters.items():
            verdict.cells += len(cells)
            if cells != theirs.counters[name] and not any(verdict.differing.values()):
                verdict.other.append(
                    f"{case.name}: counter {name} differs: {cells[:3]} and {theirs.counters[name][:3]}"
                )
    return verdict


def reason(case: Case, frame: bytes, mine: Any, other: Any) -> str:
    """Return the known reason for a difference between the two; empty: none is known."""
    for known in case.reasons:
        if known.concerns(frame) and known.without(mine) == known.without(other):
            return known.name
    return ""


def difference(mine: Any, other: Any) -> str:
    mine, other = mine or collections.Counter(), other or collections.Counter()
    show = lambda frames: [f"port {port}: {frame.hex()}" for port, frame in frames.elements()]  # noqa: E731
    return f"only apswitch {show(mine - other)}, only BMv2 {show(other - mine)}"


def tell(case: Case, program: Program, entries: list[Any], port: int, frame: bytes, how: str, directory: Path) -> None:
    """Keeps the packet's story by apswitch's reference."""
    OUT.mkdir(parents=True, exist_ok=True)
    written, pcap = directory / "entries.json", directory / "story.pcap"
    written.write_text(json.dumps(as_tutorial(program, entries)))
    write_pcap(pcap, [frame])
    command = [apswitch(), "explain", str(case.json), str(pcap), "--entries", str(written), "--port", str(port)]
    done = subprocess.run([*command, "--cpu-port", str(CPU_PORT)], capture_output=True, text=True)
    story = OUT / f"{case.name}-{number_of(frame)}.txt"
    story.write_text(f"{how}\n\n{frame.hex()}\n\n{done.stdout}{done.stderr}")


HEADER = """# apswitch and BMv2, packet by packet

`make differences` gives both the same programs, entries and generated packets over P4Runtime, and compares byte for
byte what leaves through every port and to the controller, then every counter. Entries are made from keys that the
packets have, so that they are hit. {versions}

| program | packets | frames that left | entries | counter cells | differ | with a reason | without |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""
NOT_COMPARED = """
## What is left out

The two are known to differ in this, and the packets keep away from it; every difference, with the why, is on
[v1model on the switch](../switch/v1model.md).

- Meters that are configured, times and queue depths: each has a clock of its own.
- What BMv2 does not survive: a failed `assert`, an index beyond a stack; built with `-DNDEBUG`, one beyond an array.
- What nobody promises: which of two entries with one priority hits, and what fields of invalid headers hold.
- Digests: BMv2 sends the last one of a packet. VLAN tags: the kernel takes them from what the test's sockets receive.
"""


def page(verdicts: dict[str, Verdict], versions: str) -> str:
    text = HEADER.format(versions=versions)
    reasons: collections.Counter[str] = collections.Counter()
    for name, v in verdicts.items():
        known = sum(1 for reason in v.differing.values() if reason)
        reasons.update(reason for reason in v.differing.values() if reason)
        row: list[str | int] = [
            name,
            v.packets,
            v.left,
            v.entries,
            v.cells,
            len(v.differing),
            known,
            len(v.differing) - known,
        ]
        text += f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else cell for cell in row)} |\n"
    if reasons:
        text += "\n| reason | packets |\n| --- | ---: |\n"
        text += "".join(f"| {reason} | {count:,} |\n" for reason, count in reasons.most_common())
    others = [line for v in verdicts.values() for line in v.other]
    if others:
        text += "\nBeside the packets:\n\n" + "".join(f"- {' '.join(line.split())}\n" for line in others[:20])
    return text + NOT_COMPARED


def run(packets: int, seed: int, names: list[str], write: bool) -> int:
    contain.own_network()
    shutil.rmtree(OUT, ignore_errors=True)
    verdicts = {}
    try:
        veth.make(PORTS)
        targets.find("bmv2").require()
        binary_version = targets.find("apswitch").version()
        made = subprocess.run(["p4c-bm2-ss", "--version"], capture_output=True, text=True)
        p4c = re.search(r"Version (\S+)", made.stdout + made.stderr)
        versions = f"apswitch {binary_version}, BMv2 {targets.find('bmv2').version()}"
        versions += f", programs by p4c {p4c[1]}." if p4c else "."
        for case in CASES:
            if names and case.name not in names:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                compiled = with_p4info(case, Path(scratch))
                verdicts[case.name] = compare(compiled, packets, seed, Path(scratch))
            v = verdicts[case.name]
            print(f"{case.name}: {v.packets} packets, {v.left} frames, {len(v.differing)} differ", flush=True)
    except (DifferencesError, LabError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = page(verdicts, versions)
    if write:
        PAGE.write_text(text)
    else:
        print(text)
    return int(any(v.other or "" in v.differing.values() for v in verdicts.values()))


def with_p4info(case: Case, directory: Path) -> Case:
    """Return the case with a P4Info next to its JSON: compiled where the repository holds none."""
    if case.p4info.exists():
        return case
    if not shutil.which("p4c-bm2-ss"):
        raise DifferencesError("p4c-bm2-ss is not on PATH: install p4c, it makes the P4Info of the test programs")
    source, compiled = case.json.with_suffix(".p4"), directory / case.json.name
    command = ["p4c-bm2-ss", "--std", "p4-16", "-o", str(compiled), "--p4runtime-files"]
    subprocess.run([*command, compiled.with_suffix(".p4info.txtpb"), source], check=True, capture_output=True)
    return replace(case, json=compiled)


def main() -> int:
    parser = argparse.ArgumentParser(description="apswitch against BMv2, packet by packet")
    parser.add_argument("--packets", type=int, default=20_000, help="for each program (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", action="append", default=[], choices=[case.name for case in CASES])
    parser.add_argument("--print", action="store_true", help=f"print the page instead of writing {PAGE.name}")
    options = parser.parse_args()
    return contain.run(lambda: run(options.packets, options.seed, options.program, not options.print))


if __name__ == "__main__":
    sys.exit(main())
