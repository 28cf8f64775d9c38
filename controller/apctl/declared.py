# SPDX-License-Identifier: Apache-2.0
"""Access points declared in files: read, compared with the controller's, applied.

A file holds one access point, or `{"access_points": [...]}` as the controller's own; a folder all of its `*.json`.
Before anything is changed the controller checks all of it (`validate`), and each change is made only to what was
compared.
"""

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .. import strict_json
from ..client import ApiError, Client
from .settings import UsageError

EFFECT_SECONDS = 2.0
"""Seconds to wait until a change is in effect."""
DONE = {"add": "added", "change": "changed", "keep": "unchanged", "remove": "removed"}


@dataclass(frozen=True, slots=True)
class Step:
    """One access point: the change to make, and its description in lines."""

    name: str
    kind: Literal["add", "change", "keep", "remove"]
    body: Any
    etag: str | None
    lines: list[str]


def read(path: Path, stdin: str = "") -> dict[str, Any]:
    """Read access points from a file, every `*.json` of a folder, or standard input (`-`); raises `UsageError`."""
    found: dict[str, Any] = {}
    try:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        texts = [(file, stdin if str(file) == "-" else file.read_text(encoding="utf-8")) for file in files]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError(f"{getattr(error, 'filename', None) or path}: {reason.lower()}") from None
    for file, text in texts:
        for entry in _entries(file, text):
            if entry["name"] in found:
                raise UsageError(f"{file}: duplicate access point {entry['name']}")
            found[entry["name"]] = entry
    if not found:
        raise UsageError(f"{path}: no access point in it: a folder needs files NAME.json")
    return found


def _entries(file: Path, text: str) -> list[Any]:
    try:
        content = strict_json.loads(text)
    except ValueError as error:
        raise UsageError(f"{file}: {strict_json.reason(error)}") from None
    entries = content.get("access_points", [content]) if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and isinstance(e.get("name"), str) for e in entries
    ):
        raise UsageError(f'{file}: neither an access point with a `name` nor {{"access_points": [...]}}')
    return entries


def plan(client: Client, wanted: dict[str, Any], prune: bool) -> Iterator[Step]:
    """Return the steps to take; the controller has checked them. Raises `ApiError`."""
    there = {entry["name"] for entry in client.every(client.list_access_points)}
    for name, body in wanted.items():
        before, etag = None, None
        if name in there:
            before, etag = client.get_config(name), client.etag
            after = client.replace_config(name, body, validate=True)
        else:
            after = client.add_access_point(body, validate=True)
        kind: Literal["add", "change", "keep"] = "add" if before is None else "keep" if before == after else "change"
        yield Step(name, kind, body, etag, _difference(name, before, after))
    for name in sorted(there - wanted.keys()) if prune else ():
        before = client.get_config(name)
        yield Step(name, "remove", None, client.etag, _difference(name, before, None))


def _difference(name: str, before: Any, after: Any) -> list[str]:
    def lines(side: Any) -> list[str]:
        return [] if side is None else json.dumps(side, indent=2, sort_keys=True).splitlines()

    return [*difflib.unified_diff(lines(before), lines(after), f"{name} (is)", f"{name} (shall be)", lineterm="")]


def bring_about(client: Client, steps: Iterable[Step]) -> Iterator[tuple[Step, str]]:
    """Take the steps; yield each with a line. Raises `ApiError` at the first that is refused."""
    for step in steps:
        try:
            if step.kind == "add":
                client.add_access_point(step.body, wait=EFFECT_SECONDS)
            elif step.kind == "change":
                client.replace_config(step.name, step.body, if_match=step.etag, wait=EFFECT_SECONDS)
            elif step.kind == "remove":
                client.remove_access_point(step.name, if_match=step.etag)
        except ApiError as error:
            if error.status == 412:
                raise ApiError(412, f"{step.name}: it was changed meanwhile: apply again") from None
            raise
        yield step, f"{step.name} {DONE[step.kind]}"
