# SPDX-License-Identifier: Apache-2.0
"""JSON that has one meaning: what the standard library takes silently is a mistake here."""

import json
import math
from typing import Any

MAX_DIGITS = 400
"""Digits of an integer; no setting has more than 20."""


def loads(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises `ValueError` with one line, also for a name that stands twice in one
    object, of which the first value would be lost, for a number that is none, and for endless nesting."""
    try:
        return json.loads(
            text, object_pairs_hook=_distinct, parse_constant=_no_number, parse_float=_finite, parse_int=_bounded
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def reason(error: ValueError) -> str:
    """Return why a text is not JSON, with the line where that is known."""
    return f"line {error.lineno}: not JSON: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"duplicate name `{name}` in one object")
        found[name] = value
    return found


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"the number {word[:20]} is too large")
    return number


def _bounded(word: str) -> int:
    if len(word) > MAX_DIGITS:
        raise ValueError(f"a number has {len(word)} digits")
    return int(word)
