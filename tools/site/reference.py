# SPDX-License-Identifier: Apache-2.0
"""The reference pages of the documentation's site, made from the code: REST, command lines, the P4 program, Python."""

import argparse
import asyncio
import importlib
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import finsy
import typer

ROOT = Path(__file__).resolve().parents[2]
APSWITCH = ROOT / "target/release/apswitch"
METHODS = ("get", "post", "put", "patch", "delete")
MATCHES = {2: "exact", 3: "LPM", 4: "ternary", 5: "range", 6: "optional"}  # p4.config.v1.MatchField.MatchType
CLASSES = (
    ("accesspoint.P4Switch", "accesspoint.topologies.mininet.p4_switch.P4Switch", ""),
    (
        "accesspoint.AccessPoint",
        "accesspoint.topologies.mininet.access_point.AccessPoint",
        "accesspoint.topologies.mininet.access_point.WithController",
    ),
    ("accesspoint.Bmv2AccessPoint", "accesspoint.topologies.mininet.access_point.Bmv2AccessPoint", ""),
    ("accesspoint.wifi.P4AP", "accesspoint.topologies.wifi.access_point.P4AP", ""),
    ("accesspoint.AccessPointTopo", "accesspoint.topologies.mininet.network.AccessPointTopo", ""),
    ("accesspoint.AccessPointLink", "accesspoint.topologies.mininet.nodes.ApLink", ""),
    ("accesspoint.EndHost", "accesspoint.topologies.mininet.nodes.EndHost", ""),
    ("accesspoint.Features", "accesspoint.topologies.features.Features", ""),
    ("accesspoint.LinkProfile", "accesspoint.topologies.links.profiles.LinkProfile", ""),
    ("accesspoint.link_profile", "accesspoint.topologies.links.profiles.link_profile", ""),
    ("accesspoint.Lab", "accesspoint.topologies.mininet.network.Lab", ""),
    ("accesspoint.contained", "accesspoint.topologies.namespaces.contain.run", ""),
    (
        "accesspoint.Client",
        "accesspoint.controller.client.transport.Transport",
        "accesspoint.controller.client.operations.Client",
    ),
    ("accesspoint.experiment.run", "accesspoint.experiment.run", ""),
    ("accesspoint.experiment.Experiment", "accesspoint.experiments.experiment.Experiment", ""),
    ("accesspoint.experiment.Arm", "accesspoint.experiments.experiment.Arm", ""),
    ("accesspoint.experiment.AccessPoint", "accesspoint.experiments.scenes.scene.AccessPoint", ""),
    ("accesspoint.experiment.Flow", "accesspoint.experiments.lab.stage.Flow", ""),
    ("accesspoint.experiment.Measure", "accesspoint.experiments.experiment.Measure", ""),
    ("accesspoint.experiment.Goal", "accesspoint.experiments.experiment.Goal", ""),
)


def pages() -> dict[str, str]:
    """Path below docs/ -> Markdown."""
    return {
        "reference/rest.md": rest(),
        "reference/commands.md": commands(),
        "reference/p4.md": p4(),
        "reference/python.md": python(),
    }


def rest() -> str:
    tool = importlib.import_module("tools.client")
    document: dict[str, Any] = asyncio.run(tool.document())
    text = [
        "# REST",
        "The REST API, operation by operation, generated from the controller's OpenAPI document, which "
        "the controller serves itself at `/openapi.json`; [the guide](../controller/api.md) explains paging, ETags "
        "and streams.",
    ]
    for path, operations in document["paths"].items():
        for method in (method for method in METHODS if method in operations):
            operation = operations[method]
            text += [
                f"## `{method.upper()} {path}`",
                operation.get("summary") or "",
                operation.get("description") or "",
            ]
            rows = [
                (f"`{one['name']}`", one["in"], tool.type_of(one.get("schema", {})), one.get("description", ""))
                for one in operation.get("parameters", [])
            ]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            rows += [("the body", "JSON", tool.type_of(body), "")] if body else []
            text += [table(("parameter", "in", "type", ""), rows)] if rows else []
            answers = [
                (code, tool.type_of(next(iter(answer.get("content", {"": {}}).values())).get("schema", {})),
                 answer.get("description", ""))
                for code, answer in operation["responses"].items()
            ]  # fmt: skip
            text += [table(("answer", "type", ""), answers)]
    text += ["## Models"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        properties = schema.get("properties", {})
        fields = [(f"`{key}`", tool.type_of(one), one.get("description", "")) for key, one in properties.items()]
        text += [f"### {name}", schema.get("description", ""), table(("field", "type", ""), fields) if fields else ""]
    return joined(text)


def commands() -> str:
    from accesspoint.controller.__main__ import controller
    from accesspoint.controller.apctl.__main__ import application
    from accesspoint.experiments.__main__ import arguments as experiments
    from accesspoint.topologies.lab import arguments as lab

    text = [
        "# Commands",
        "Options of every program, generated from the programs; each of "
        "them prints the same with `--help`. [apctl's guide](../controller/apctl.md) has examples.",
    ]
    service = typer.Typer()
    service.command()(controller)
    for name, command in (
        ("apctl", typer.main.get_command(application)),
        ("python -m accesspoint.controller", typer.main.get_command(service)),
    ):
        text += typed(name, command, 2)
    for parse, prog in (
        (lab, "python -m accesspoint.topologies.lab"),
        (experiments, "python -m accesspoint.experiments"),
    ):
        text += [f"## `{prog}`", "```text\n" + usage(parse) + "\n```"]
    for words in ((), ("explain",), ("trace",)):
        text += [f"## `{' '.join(('apswitch', *words))}`", f"```text\n{own_help(APSWITCH, *words)}\n```"]
    return joined(text)


def own_help(program: Path, *words: str) -> str:
    """Return the output of --help of a program that is built, or the command that builds it."""
    if not program.exists():
        return f"{program.name} is not built: make switch"
    return subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True).stdout.strip()


def typed(name: str, command: Any, level: int) -> list[str]:
    text = [f"{'#' * level} `{name}`", (command.help or "").strip()]
    rows = []
    for one in command.params:
        names = f"`{one.name}`" if one.param_type_name == "argument" else f"`{', '.join(one.opts)}`"
        rows.append((names, "needed" if one.required else "", getattr(one, "help", "") or ""))
    text += [table(("", "", "description"), rows)] if rows else []
    for own, child in getattr(command, "commands", {}).items():
        text += typed(f"{name} {own}", child, min(level + 1, 4))
    return text


def usage(parse: Any) -> str:
    """Return the output of --help of a program with argparse, its subcommands' too."""
    found: list[argparse.ArgumentParser] = []
    original = argparse.ArgumentParser.parse_args

    def keep(self: argparse.ArgumentParser, *_: Any, **__: Any) -> Any:
        found.append(self)
        raise StopIteration

    argparse.ArgumentParser.parse_args = keep  # type: ignore[method-assign]
    try:
        parse([])
    except StopIteration:
        pass
    finally:
        argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]
    parsers = [found[0]]
    for action in found[0]._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers += action.choices.values()
    return "\n\n".join(parser.format_help().strip() for parser in parsers)


def p4() -> str:
    schema = finsy.P4Schema(ROOT / "p4src/compiled/ap.p4info.txtpb")
    text = [
        "# The P4 program",
        "P4Runtime objects of the program, generated from `p4src/compiled/ap.p4info.txtpb`; "
        "[the glossary](../naming.md) describes them, [architecture](../architecture.md) has their order.",
        "## Tables",
    ]
    for one in sorted(schema.tables, key=lambda one: one.id):
        keys = [
            (f"`{f.name}`", f"{f.bitwidth} bits", MATCHES.get(int(f.match_type or 0), "")) for f in one.match_fields
        ]
        actions = [
            (f"`{action.alias}`", ", ".join(f"`{p.name}` ({p.bitwidth} bits)" for p in action.params))
            for action in one.actions
        ]
        text += [f"### `{one.alias}`", f"Id `0x{one.id:08X}`, {one.size} entries."]
        text += [table(("key", "width", "match"), keys), table(("action", "parameters"), actions)]
    for title, objects in (
        ("Counters", schema.counters),
        ("Meters", schema.meters),
        ("Direct counters", schema.direct_counters),
        ("Direct meters", schema.direct_meters),
        ("Registers", schema.registers),
    ):
        rows = [(f"`{one.alias}`", f"`0x{one.id:08X}`", str(getattr(one, "size", ""))) for one in objects]
        text += [f"## {title}", table(("name", "id", "cells"), rows)] if rows else []
    digests = [(f"`{one.alias}`", f"`0x{one.id:08X}`") for one in schema.digests]
    return joined([*text, "## Digests", table(("name", "id"), digests)])


def python() -> str:
    text = [
        "# Python",
        "Classes and functions of the library, generated from its docstrings; "
        "[the guide](../library.md) begins with an example. Everything is imported from `accesspoint`.",
    ]
    for public, path, more in CLASSES:
        text += [f"## {public.partition('.')[2]}", f"`{public}`", directive(path)]
        text += [directive(more)] if more else []
    return joined(text)


def directive(path: str) -> str:
    options = {
        "show_root_heading": "false",
        "show_root_toc_entry": "false",
        "heading_level": "3",
        "show_bases": "false",
    }
    lines = "".join(f"        {key}: {value}\n" for key, value in options.items())
    return f"::: {path}\n    options:\n{lines}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(' '.join(str(cell).split()).replace('|', chr(92) + '|') for cell in cells)} |"

    head = list(head)
    return "\n".join([line(head), line("---" for _ in head), *(line(row) for row in rows)])


def joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
