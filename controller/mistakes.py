# SPDX-License-Identifier: Apache-2.0
"""Mistakes in a configuration or a request, all at once in one line, with the nearest right name for a wrong one."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

MAX_SHOWN = 10
"""Mistakes that are listed; the others are counted."""


def one_line(error: ValidationError, model: Any = None) -> str:
    """Return the mistakes of a pydantic error, found in a value for this model."""
    return listed(error.errors(), model)


def listed(errors: Sequence[Any], model: Any = None) -> str:
    """Return mistakes in one line: the place of each, and the message.

    Args:
        errors: as pydantic has them.
        model: what the value should be, to name the nearest field; None: not known.
    """
    found: dict[str, str] = {}
    for mistake in errors:
        # The last part of a union's place is the type that was meant; the message has it, too.
        parts = [part for part in mistake["loc"] if not str(part).startswith(("constrained-", "literal["))]
        found.setdefault(".".join(map(str, parts)), _message(mistake, parts, model))
    lines = [f"{place}: {text}" if place else text for place, text in found.items()]
    more = f"; and {len(lines) - MAX_SHOWN} more" if len(lines) > MAX_SHOWN else ""
    return "; ".join(lines[:MAX_SHOWN]) + more


def _message(mistake: ErrorDetails, parts: Sequence[int | str], model: Any) -> str:
    if mistake["type"] == "json_invalid":
        return f"not JSON: {mistake['ctx']['error']}"
    if mistake["type"] != "extra_forbidden":
        return mistake["msg"].removeprefix("Value error, ")
    near = difflib.get_close_matches(str(parts[-1]), _fields(model, parts[:-1]), 1)
    return f"unknown field; did you mean `{near[0]}`?" if near else "unknown field"


def _fields(model: Any, parts: Sequence[int | str]) -> list[str]:
    """Return the fields that there are at a place."""
    models = [*_models(model)]
    for part in parts:
        fields = [one.model_fields[str(part)] for one in models if str(part) in one.model_fields]
        # Another part is an index, or the key of a dictionary.
        if fields:
            models = [inner for field in fields for inner in _models(field.annotation)]
    return [name for one in models for name in one.model_fields]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation, as in `dict[int, Gate] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
