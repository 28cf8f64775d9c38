# SPDX-License-Identifier: Apache-2.0
"""Faults of a server under attack, the table, the summary and the page."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from accesspoint.checks.hostile.attack import Attack
from accesspoint.checks.hostile.measure import UNANSWERED, Result

MAX_MB = 512.0
MAX_MS = 100.0
MIN_CARRIED = 0.9
NOT_YET = ("", "", "", "not measured yet")
BEGIN, END = "<!-- hostile: begin -->", "<!-- hostile: end -->"


def faults(result: Result, speeds: bool = True) -> list[str]:
    """Return the faults in words. speeds: judge waits and packets too, which a busy machine spoils."""
    found = [result.died] if result.died else []
    if result.peak_mb >= MAX_MB:
        found.append(f"{result.peak_mb:.0f} MB of memory")
    if speeds and result.other_p99 >= MAX_MS:
        found.append(f"another client waited {milliseconds(result.other_p99)} (p99)")
    if speeds and result.carried is not None and result.carried < MIN_CARRIED:
        found.append(f"{result.carried:.2f} of the packets carried")
    if any(code == "attacker" for code, _, _ in result.refused):
        found.append("the attack itself failed")
    return found


def milliseconds(value: float) -> str:
    return "not answered" if value >= UNANSWERED else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def refusals(result: Result, most: int = 3) -> str:
    """Return the refusals in words: code, count, and the first text."""
    lines = [f"{code} x{count}{f': {text}' if text else ''}" for code, text, count in result.refused]
    more = f"; {len(lines) - most} other ways" if len(lines) > most else ""
    return "; ".join(lines[:most]) + more or "nothing"


def show(results: Iterable[Result], speeds: bool) -> None:
    """The table."""
    table = Table(title="Attacks", show_lines=True)
    for heading in ("attack", "peak, MB", "other client\np50, p99", "carried", "refused", ""):
        table.add_column(heading, justify="right" if heading in ("peak, MB", "carried") else "left", overflow="fold")
    for result in results:
        wrong = faults(result, speeds)
        table.add_row(
            f"{result.attack}\n[dim]{result.server}[/]",
            f"{result.peak_mb:.0f}",
            f"{milliseconds(result.other_p50)}, {milliseconds(result.other_p99)}",
            "" if result.carried is None else f"{result.carried:.3f}",
            refusals(result).replace("[", r"\["),
            "[red]fail: " + "; ".join(wrong).replace("[", r"\[") + "[/]" if wrong else "[green]pass[/]",
        )
    Console(width=None if Console().is_terminal else 160).print(table)


def summary(results: Iterable[Result]) -> dict[str, Any]:
    """{attack: figures}."""
    return {
        result.attack: {
            "server": result.server,
            "text": result.text,
            "peak_mb": round(result.peak_mb, 1),
            "calm_mb": round(result.calm_mb, 1),
            "other_read_ms_p50": round(result.other_p50, 2),
            "other_read_ms_p99": round(result.other_p99, 2),
            "calm_read_ms_p99": round(result.calm_p99, 2),
            "requests": result.requests,
            "carried": None if result.carried is None else round(result.carried, 4),
            "refused": [{"code": code, "said": said, "times": times} for code, said, times in result.refused],
            "seconds": round(result.seconds, 1),
            "faults": faults(result),
        }
        for result in results
    }


def write(path: Path, told: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Adds what a run found to what earlier ones have: of each attack that is known its newest figures."""
    earlier = json.loads(path.read_text()) if path.exists() else {}
    found = {name: value for name, value in (earlier | told).items() if name in set(known)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    return found


def page(path: Path, told: dict[str, Any], attacks: Mapping[str, Attack]) -> None:
    """Renew the table of docs/results/hostile.md, between the two marks: a row for each attack."""
    lines = [
        "| attack | effect | peak, MB | other client, p99 | carried | refused |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for attack in sorted(attacks.values(), key=lambda attack: (attack.server, attack.name)):
        cells = [f"`{attack.name}`", attack.text, *(figures(told[attack.name]) if attack.name in told else NOT_YET)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    table = f"{BEGIN}\n" + "\n".join(lines) + f"\n{END}"
    path.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: table, path.read_text(), flags=re.S))


def figures(found: dict[str, Any]) -> tuple[str, ...]:
    """Memory, wait, packets, and the commonest refusal with what did not hold."""
    said = [f"{one['code']}: {one['said']}" if one["said"] else one["code"] for one in found["refused"]]
    wrong = f" **{'; '.join(found['faults'])}**" if found["faults"] else ""
    carried = "" if found["carried"] is None else f"{found['carried']:.3f}"
    wait = milliseconds(found["other_read_ms_p99"])
    return f"{found['peak_mb']:.0f}", wait, carried, (said[0][:100] if said else "nothing") + wrong
