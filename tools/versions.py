#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make versions`: a row in docs/results/versions.md for the p4c and the targets that are on PATH.

Compiles the program and runs the packet tests with it on every target that is there. Rows of other releases stay.

Exit code: 0 all passed, 1 a test failed, 2 nothing could be tried.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from accesspoint.topologies import targets
from accesspoint.topologies.requirements import LabError

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/results/versions.md"
GOLDENS = ("ap.json", "ap.p4info.txtpb")
HEADER = """# Releases of p4c and of the targets

`make versions` compiles the program with the p4c on PATH, runs the packet tests with what it emitted on each target
that is there, and keeps a row here. Its output is compared with the committed files, which p4c {golden} emitted.

| p4c | emits | target | passed | failed | skipped |
| --- | --- | --- | ---: | ---: | ---: |
"""


class VersionsError(Exception):
    """A missing tool: one line that names it and the fix."""


def compile_program() -> tuple[str, Path]:
    """The version of p4c, and the directory that it compiled into."""
    out = ROOT / "out/versions"
    done = subprocess.run([ROOT / "tools/goldens.sh", "compile", out], capture_output=True, text=True)
    if done.returncode != 0:
        raise VersionsError((done.stderr.strip().splitlines() or ["p4c failed"])[0].removeprefix("error: "))
    said = subprocess.run(["p4c-bm2-ss", "--version"], capture_output=True, text=True)
    match = re.search(r"Version (\S+)", said.stdout + said.stderr)
    if not match:
        raise VersionsError("p4c-bm2-ss --version says no version: is it p4c?")
    return match[1], out


def compared(directory: Path) -> str:
    """Compare the compiled files with the goldens, in words."""
    goldens = ROOT / "p4src/compiled"
    differing = [name for name in GOLDENS if (directory / name).read_bytes() != (goldens / name).read_bytes()]
    return f"another {' and '.join(differing)}" if differing else "the same files"


def packet_tests(target: str, program: Path) -> dict[str, int]:
    """Passed, failed and skipped packet tests."""
    result = ROOT / f"out/ptf/{target}.json"
    result.unlink(missing_ok=True)
    subprocess.run([sys.executable, ROOT / "ptf-tests/run.py", "--target", target, "--program", program], check=False)
    if not result.exists():
        raise VersionsError(f"the packet tests did not run on {target}")
    totals: dict[str, int] = json.loads(result.read_text())
    return totals


def merged(page: str, rows: list[str], golden: str) -> str:
    """The page with these rows in place of those for the same releases, newest releases first."""
    kept = {key(row): row for row in [*re.findall(r"^\| \d.*\|$", page, re.M), *rows]}
    ordered = sorted(kept.values(), key=order, reverse=True)
    return HEADER.format(golden=golden) + "\n".join(ordered) + "\n"


def key(row: str) -> tuple[str, str]:
    """Key of a row: the release of p4c and that of the target."""
    cells = [cell.strip() for cell in row.split("|")]
    return cells[1], cells[3]


def order(row: str) -> list[list[int]]:
    """Sort key of a row: release numbers are compared as numbers."""
    return [[int(number) for number in re.findall(r"\d+", name)] for name in key(row)]


def main() -> int:
    try:
        p4c, program = compile_program()
        emitted = compared(program)
        rows, failed = [], 0
        for name, target in targets.TARGETS.items():
            try:
                targets.find(name)
            except LabError as error:
                print(f"{name} is left out: {error}")
                continue
            totals = packet_tests(name, program)
            counts = " | ".join(str(totals[status]) for status in ("passed", "failed", "skipped"))
            rows.append(f"| {p4c} | {emitted} | {target.title} {target.version()} | {counts} |")
            failed += totals["failed"]
        if not rows:
            raise VersionsError("no target is there: build apswitch with `make switch`")
    except VersionsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    golden = (ROOT / "p4src/compiled/goldens.sha256").read_text().split()[2]
    PAGE.write_text(merged(PAGE.read_text() if PAGE.exists() else "", rows, golden))
    print("\n".join(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
