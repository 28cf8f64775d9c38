#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renew the typed client (controller/client/models.py, operations.py) from the OpenAPI document: `make client`.

A test compares what it makes with the committed files. `--openapi` prints the document itself.
"""

import asyncio
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from accesspoint.controller.agent.local_backend import LocalBackend
from accesspoint.controller.api.app import create_app
from accesspoint.controller.api.service import Service
from accesspoint.controller.state.database import open_engine

ROOT = Path(__file__).resolve().parent.parent
HEAD = "# SPDX-License-Identifier: Apache-2.0\n"
WIDTH = 110


async def document() -> dict[str, Any]:
    """The OpenAPI document."""
    service = Service(open_engine("sqlite://"), LocalBackend(lambda name: None))
    return create_app(service).openapi()


def type_of(schema: dict[str, Any]) -> str:
    """A schema as a Python type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(type_of(part) for part in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"Literal[{', '.join(json.dumps(value) for value in values)}]"
    kind = schema.get("type", "")
    if kind == "array":
        return f"list[{type_of(schema.get('items', {}))}]"
    if kind == "object":
        of = schema.get("additionalProperties")
        return f"dict[str, {type_of(of if isinstance(of, dict) else {})}]"
    return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}.get(kind, "Any")


def docstring(text: str, indent: str) -> str:
    """The first paragraph, as a docstring."""
    words = " ".join(text.strip().split("\n\n")[0].split())
    quoted = f'"""{words}{" " if words.endswith(chr(34)) else ""}"""'
    return textwrap.fill(quoted, WIDTH, initial_indent=indent, subsequent_indent=indent) + "\n"


def models(found: dict[str, Any]) -> str:
    """Every schema as a TypedDict."""
    text = (
        HEAD + '"""Request and answer bodies of the API. Made by `make client`; not edited by hand."""\n\n'
        "from __future__ import annotations\n\nfrom typing import Any, Literal, NotRequired, TypedDict\n"
    )
    for name, schema in sorted(found["components"]["schemas"].items()):
        text += f"\n\nclass {name}(TypedDict):\n" + docstring(schema.get("description", name), "    ") + "\n"
        for field, value in schema.get("properties", {}).items():
            kind = type_of(value)
            text += f"    {field}: {kind if field in schema.get('required', []) else f'NotRequired[{kind}]'}\n"
    return text


def operation(path: str, method: str, what: dict[str, Any]) -> str:
    """One operation as a method."""
    places: dict[str, list[dict[str, Any]]] = {"path": [], "query": [], "header": []}
    for parameter in what.get("parameters", []):
        places[parameter["in"]].append(parameter)
    places["path"].sort(key=lambda entry: path.index(f"{{{entry['name']}}}"))
    arguments = ["self", *(f"{entry['name']}: {type_of(entry['schema'])}" for entry in places["path"])]
    body = what.get("requestBody")
    if body:
        arguments.append(f"body: models.{type_of(body['content']['application/json']['schema'])}")
    optional = [f"{entry['name']}: {_optional(type_of(entry['schema']))} = None" for entry in places["query"]]
    optional += [f"{_variable(entry['name'])}: str | None = None" for entry in places["header"]]
    if optional:
        arguments += ["*", *optional]
    answer = next(value for status, value in what["responses"].items() if status.startswith("2"))
    content = answer.get("content", {})
    stream = "text/event-stream" in content
    kind = "Iterator[tuple[str, Any]]" if stream else "None"
    if "application/json" in content:
        kind = type_of(content["application/json"]["schema"])
        kind = kind.replace("list[", "list[models.") if kind.startswith("list[") else f"models.{kind}"
    where = path
    for entry in places["path"]:
        where = where.replace(f"{{{entry['name']}}}", f"{{quote({entry['name']})}}")
    prefix = "f" if places["path"] else ""
    given = [f'"{method.upper()}"', f'{prefix}"{where}"']
    if places["query"]:
        pairs = ", ".join(f"{name!r}: {name}" for name in (entry["name"] for entry in places["query"]))
        given.append(f"query={{{pairs}}}")
    if body:
        given.append("body=body")
    if places["header"]:
        pairs = ", ".join(f"{name!r}: {_variable(name)}" for name in (entry["name"] for entry in places["header"]))
        given.append(f"headers={{{pairs}}}")
    if stream:
        call = f"return self.stream({', '.join(given[1:])})"
    elif kind == "None":
        call = f"self.call({', '.join(given)})"
    else:
        call = f"return cast({kind}, self.call({', '.join(given)}))"
    text = f"    def {what['operationId']}({', '.join(arguments)}) -> {kind}:\n"
    return text + docstring(what.get("description", what["summary"]), "        ") + f"        {call}\n"


def _optional(kind: str) -> str:
    return kind if kind.endswith("| None") else f"{kind} | None"


def _variable(header: str) -> str:
    return header.replace("-", "_").lower()


def operations(found: dict[str, Any]) -> str:
    """Every operation."""
    text = (
        HEAD + '"""Every operation of the API. Made by `make client`; not edited by hand."""\n\n'
        "from collections.abc import Iterator\nfrom typing import Any, Literal, cast\n\n"
        "from . import models\nfrom .transport import Transport, quote\n\n\n"
        "class Client(Transport):\n"
        '    """The API as methods; each raises `ApiError` for an answer that is an error."""\n'
    )
    for path, methods in found["paths"].items():
        for method, what in methods.items():
            text += "\n" + operation(path, method, what)
    return text


def formatted(text: str) -> str:
    """Format source as ruff does."""
    for command in (["format", "-q"], ["check", "-q", "--fix"], ["format", "-q"]):
        text = subprocess.run(
            [Path(sys.executable).parent / "ruff", *command, "--stdin-filename", "controller/client/made.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        ).stdout
    return text


def made() -> dict[Path, str]:
    """File -> its contents."""
    found = asyncio.run(document())
    folder = ROOT / "controller/client"
    return {
        folder / "models.py": formatted(models(found)),
        folder / "operations.py": formatted(operations(found)),
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["--openapi"]:
        print(json.dumps(asyncio.run(document()), indent=2))
    else:
        for file, contents in made().items():
            file.write_text(contents)
