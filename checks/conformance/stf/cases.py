# SPDX-License-Identifier: Apache-2.0
"""The cases of a directory, and their programs: compiled already, or with the p4c on PATH."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from accesspoint.checks.conformance.suite import NotApplicable
from accesspoint.checks.harness.p4runtime import Program

COMPILER = "p4c-bm2-ss"
COMPILES = 120  # s; p4c on the largest program takes a second
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
ARCHITECTURES = re.compile(r"\b(?:[a-z0-9]*_model|v1model|psa|pna|tna|t2na)\.p4$")


class CasesError(Exception):
    """No case to run: one line with the fix."""


@dataclass(frozen=True)
class Case:
    """stf: the packets; program: the source or compiled JSON, without its suffix."""

    stf: Path
    program: Path

    @property
    def name(self) -> str:
        return self.stf.stem


def find(place: Path, program: Path | None = None) -> list[Case]:
    """All *.stf of a directory, or one of them. A case NAME.stf, or NAME_7.stf, is of the program NAME beside it, if no
    other is given. Raises CasesError."""
    files = sorted(place.glob("*.stf")) if place.is_dir() else [place] if place.is_file() else []
    if not files:
        raise CasesError(f"{place} holds no .stf file: name p4c's testdata/p4_16_samples, or a file")
    return [Case(stf, program.with_suffix("") if program else beside(stf)) for stf in files]


def beside(stf: Path) -> Path:
    own = stf.with_suffix("")
    if any(own.with_suffix(suffix).exists() for suffix in (".p4", ".json")):
        return own
    return own.with_name(re.sub(r"_\d+$", "", own.name))


def compiler_version() -> str:
    """Version of the p4c on PATH; empty if there is none."""
    if not shutil.which(COMPILER):
        return ""
    done = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, timeout=COMPILES)
    found = re.search(r"Version (\S+)", done.stdout + done.stderr)
    return found[1] if found else "of an unknown version"


def load(case: Case, directory: Path) -> Program:
    """The case's program; directory: where it is compiled to. Raises NotApplicable where there is none for v1model."""
    ready = named(case.program, ".json"), named(case.program, ".p4info.txtpb")
    if all(path.exists() for path in ready):
        return Program(*ready)
    source = named(case.program, ".p4")
    if not source.exists():
        raise NotApplicable(f"there is no {source.name} next to it")
    others = architectures(source) - {"v1model.p4"}
    if others:
        raise NotApplicable(f"the program is for {', '.join(sorted(others))}, not for v1model")
    if "v1model.p4" not in architectures(source):
        raise NotApplicable("the program includes no architecture")
    compiled = directory / "program.json", directory / "program.p4info.txtpb"
    options = ["--std", "p4-16", "-o", str(compiled[0]), "--p4runtime-files", str(compiled[1]), str(source)]
    try:
        done = subprocess.run([COMPILER, *options], capture_output=True, text=True, timeout=COMPILES)
    except FileNotFoundError:
        raise NotApplicable(f"{COMPILER} is not on PATH, and there is no {ready[0].name} next to it") from None
    except subprocess.TimeoutExpired:
        raise NotApplicable(f"{COMPILER} takes longer than {COMPILES} s") from None
    if done.returncode:
        raise NotApplicable(f"{COMPILER} refuses the program: {complaint(done.stderr)}")
    return Program(*compiled)


def named(program: Path, suffix: str) -> Path:
    return program.with_name(program.name + suffix)


def architectures(source: Path, seen: frozenset[Path] = frozenset()) -> set[str]:
    """The architecture files that a program includes, also through files beside it."""
    found = set()
    for name in INCLUDE.findall(source.read_text(errors="replace")):
        beside = source.parent / name
        if ARCHITECTURES.search(name):
            found.add(Path(name).name)
        elif beside.is_file() and beside not in seen:
            found |= architectures(beside, seen | {beside})
    return found


def complaint(said: str) -> str:
    """p4c's first error, without the place of its file."""
    lines = [line.strip() for line in said.splitlines() if "error" in line.lower()] or said.strip().splitlines()
    return re.sub(r"\S*/", "", lines[0]) if lines else "it says nothing"
