#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The stages of the P4 program in the order of `apply`, and what each does in the words of its file, for
docs/architecture.md: `tools/stages.py` renews them, `tools/stages.py --check` says whether they are fresh (exit code 1:
no)."""

import re
import sys
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "p4src"
PAGE = ROOT / "docs/architecture.md"
BLOCK = re.compile(r"(<!-- made by tools/stages\.py -->\n).*?(<!-- end -->)", re.S)
ARCHITECTURES = {"v1model": "v1model", "tna": "Tofino"}
APPLIED = re.compile(r"\b([A-Z]\w+)\.apply\(")


def files(architecture: str) -> dict[str, Path]:
    """Control -> the file of its stage."""
    found: dict[str, Path] = {}
    for folder in ("stages", architecture):
        for path in sorted((SOURCES / folder).glob("*.p4")):
            if path.name != "ap.p4":
                found |= dict.fromkeys(re.findall(r"^control (\w+)\(", path.read_text(), re.M), path)
    return found


def order(architecture: str) -> tuple[list[str], list[str]]:
    """The controls that ingress and egress apply."""
    known = files(architecture)
    text = (SOURCES / architecture / "ap.p4").read_text()
    ingress, egress = text.split("\ncontrol ApEgress(")
    return tuple([name for name in APPLIED.findall(part) if name in known] for part in (ingress, egress))  # type: ignore[return-value]


def words(path: Path) -> str:
    """The first sentence of a stage's head, without its name."""
    lines = [line.removeprefix("//").strip() for line in takewhile(is_comment, path.read_text().splitlines()[1:])]
    text = " ".join(lines[: lines.index("")] if "" in lines else lines)
    return re.split(r"\.(?: |$)|:$", text.partition(": ")[2])[0].replace("|", "\\|")


def is_comment(line: str) -> bool:
    return line.startswith("//")


def table() -> str:
    """Return the text between the marks of the page."""
    lines = []
    for architecture, name in ARCHITECTURES.items():
        for side, controls in zip(("ingress", "egress"), order(architecture), strict=True):
            lines += [f"- {name}, {side}: {' - '.join(f'`{control}`' for control in controls)}"]
    lines += ["", "| file | controls | function |", "| --- | --- | --- |"]
    rows: dict[Path, list[str]] = {}
    for architecture in ARCHITECTURES:
        known = files(architecture)
        for control in (control for side in order(architecture) for control in side):
            mine = rows.setdefault(known[control], [])
            mine += [control] if control not in mine else []
    for path, controls in rows.items():
        place = path.relative_to(ROOT)
        link = f"[{path.relative_to(SOURCES)}](../{place})"
        lines.append(f"| {link} | {', '.join(f'`{control}`' for control in controls)} | {words(path)} |")
    return "\n".join(lines) + "\n"


def made() -> str:
    """The page with the stages as they are now."""
    page, blocks = BLOCK.subn(lambda match: f"{match[1]}{table()}{match[2]}", PAGE.read_text())
    assert blocks == 1, f"{PAGE} has {blocks} places for the stages"
    return page


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        return int(made() != PAGE.read_text())
    PAGE.write_text(made())
    return 0


if __name__ == "__main__":
    sys.exit(main())
