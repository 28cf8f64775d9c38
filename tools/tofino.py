#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resources of a Tofino 1 that the program takes, from p4c's own reports: `tools/tofino.py [DIR]` writes
docs/results/tofino.md; `tools/tofino.py DIR --pack FILE` writes the device's configuration for a P4Runtime server built
with PI.

`make p4` calls it with p4c-barefoot on PATH. DIR has the output of `tools/goldens.sh tofino DIR`. Nothing is estimated
here. Exit code 2: a report is missing, or has an unknown format.
"""

import json
import re
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out/tofino"
PAGE = ROOT / "docs/results/tofino.md"
PROGRAM = "ap_tna"
STAGES = 12

Report = dict[str, Any]

PER_STAGE = {
    "SRAM": 80,
    "map RAM": 48,
    "TCAM": 24,
    "hash bits": 416,
    "hash units": 6,
    "tables": 16,
    "gateways": 16,
    "meter and stateful ALUs": 4,
    "counter ALUs": 4,
    "instruction words": 32,
}
"""Resources of a stage of a Tofino 1."""


class ReportError(Exception):
    """A missing report: one line that names it and the fix."""


def read(directory: Path, name: str) -> Report:
    """A report of the back end."""
    path = directory / name
    try:
        report: Report = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        mend = f"compile the program into {directory}: tools/goldens.sh tofino DIR"
        raise ReportError(f"{path} is no report of p4c-barefoot ({type(error).__name__}); {mend}") from None
    return report


def stage_row(stage: Report) -> dict[str, int]:
    """Resources that one stage uses."""
    return {
        "SRAM": len(stage["rams"]["srams"]),
        "map RAM": len(stage["map_rams"]["maprams"]),
        "TCAM": len(stage["tcams"]["tcams"]),
        "hash bits": len(stage["hash_bits"]["bits"]),
        "hash units": len(stage["hash_distribution_units"]["units"]),
        "tables": len(stage["logical_tables"]["ids"]),
        "gateways": len(stage["gateways"]["gateways"]),
        "meter and stateful ALUs": len(stage["meter_alus"]["meters"]),
        "counter ALUs": len(stage["statistic_alus"]["stats"]),
        "instruction words": len(stage["vliw"]["instructions"]),
    }


def users(stages: list[Report]) -> dict[str, tuple[list[int], int, int]]:
    """Return the places of the program's parts: (stages, SRAM, TCAM) by table, with its counters and meters, and by
    register."""
    numbers: dict[str, set[int]] = {}
    blocks: Counter[tuple[str, str]] = Counter()
    for stage in stages:
        names = {own_name(logical["table_name"]) for logical in stage["logical_tables"]["ids"]}
        for kind, memories in (("SRAM", stage["rams"]["srams"]), ("TCAM", stage["tcams"]["tcams"])):
            for usage in (usage for memory in memories for usage in memory["usages"]):
                name = own_name(usage["used_by"])
                names.add(name)
                blocks[name, kind] += 1
        for name in names - {""}:
            numbers.setdefault(name, set()).add(stage["stage_number"])
    return {
        name: (sorted(where), blocks[name, "SRAM"], blocks[name, "TCAM"])
        for name, where in sorted(numbers.items(), key=lambda item: (min(item[1]), item[0]))
    }


def own_name(name: str) -> str:
    """The program's name of a table, counter, meter or register; "" for what the back end made itself."""
    name = re.sub(r"\$.*", "", name)
    if re.match(r"(tbl_|cond-)", name):
        return ""
    return re.sub(r"^(?:\w+\.)*?(?=\w+$)", "", name)


def containers(resources: Report, phv: Report) -> list[str]:
    """Lines of PHV containers in use, by width and kind."""
    used = Counter((one["container_type"], one["bit_width"]) for one in phv["containers"])
    lines = []
    for kind, title in (("normal", ""), ("tagalong", ", which only parser and deparser reach")):
        for group in resources["resources"]["phv_containers"][kind]:
            taken, there = used[kind, group["width"]], group["units"]
            lines.append(f"| {group['width']} bits{title} | {taken} | {there} | {taken / there:.0%} |")
    return lines


def page(resources: Report, phv: Report, compiler: str) -> str:
    """The whole page; `compiler`: its release and commit. Raises `ReportError` when the program does not fit."""
    stages = resources["resources"]["mau"]["mau_stages"]
    if len(stages) > STAGES:
        raise ReportError(f"the program takes {len(stages)} stages, and a Tofino 1 has {STAGES}")
    rows = [stage_row(stage) for stage in stages]
    totals = {kind: sum(row[kind] for row in rows) for kind in PER_STAGE}
    shares = {kind: f"{totals[kind] / STAGES / size:.0%}" for kind, size in PER_STAGE.items()}
    states = {parser["gress"]: len(parser["states"]) for parser in resources["resources"]["parser"]["parsers"]}
    lines = [
        "# Resources of a Tofino 1",
        "",
        f"`make p4` compiled `p4src/tna/ap.p4` with p4c-barefoot {compiler}, and `tools/tofino.py`",
        "made this page of the compiler's own reports, `resources.json` and `phv.json`. It says that the program fits,",
        "not that it has run: neither the vendor's model nor hardware was there ([packet tests](ptf.md)).",
        "",
        f"**{len(stages)} of {STAGES} stages.** No packet is recirculated, resubmitted or bounced.",
        "",
        "| stage | " + " | ".join(PER_STAGE) + " |",
        "| ---: |" + " ---: |" * len(PER_STAGE),
    ]
    lines += [f"| {number} | " + " | ".join(str(row[kind]) for kind in PER_STAGE) + " |"
              for number, row in enumerate(rows)]  # fmt: skip
    lines += [
        "| a stage has | " + " | ".join(map(str, PER_STAGE.values())) + " |",
        "| all | " + " | ".join(str(totals[kind]) for kind in PER_STAGE) + " |",
        "| of the chip | " + " | ".join(shares.values()) + " |",
        "",
        "SRAM, map RAM and TCAM are blocks: 1024 words of 128 bits, 1024 of 11 bits, 512 of 44 bits.",
        f"Parser states: {states['ingress']} of 256 in ingress, {states['egress']} of 256 in egress.",
        "",
        "| PHV containers | used | of | |",
        "| --- | ---: | ---: | ---: |",
        *containers(resources, phv),
        "",
        "| of the program | stages | SRAM | TCAM |",
        "| --- | --- | ---: | ---: |",
    ]
    for name, (numbers, sram, tcam) in users(stages).items():
        lines.append(f"| `{name}` | {', '.join(map(str, numbers))} | {sram} | {tcam} |")
    return "\n".join(lines) + "\n"


def made(directory: Path) -> str:
    """The page for what was compiled into a directory."""
    compiler = read(directory, "manifest.json")["compiler_version"]
    logs = directory / "pipe/logs"
    return page(read(logs, "resources.json"), read(logs, "phv.json"), compiler)


def device_config(directory: Path) -> bytes:
    """PI's packing for Tofino: the program's name, its binary and its context, each after its length (32 bits, the
    lowest first)."""
    parts = [PROGRAM.encode()]
    for name in ("tofino.bin", "context.json"):
        path = directory / "pipe" / name
        try:
            parts.append(path.read_bytes())
        except OSError:
            raise ReportError(f"{path} is missing: run `make p4` with p4c-barefoot and bfas on PATH") from None
    return b"".join(struct.pack("<i", len(part)) + part for part in parts)


def main() -> int:
    words = sys.argv[1:]
    file = Path(words[2]) if len(words) == 3 and words[1] == "--pack" else None
    if len(words) > 1 and not file:
        print("usage: tools/tofino.py [DIR [--pack FILE]]", file=sys.stderr)
        return 2
    directory = Path(words[0]) if words else OUT
    try:
        if file:
            file.write_bytes(device_config(directory))
            print(f"{file} written")
            return 0
        PAGE.write_text(made(directory))
    except ReportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{PAGE.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
