# SPDX-License-Identifier: Apache-2.0
"""Every small mistake of a few kinds in a compiled program (BMv2 JSON): its name, and the program with it.

A name is made of the source's words and no line number, so that it outlives changes elsewhere. Not made: what the
compiler adds and no source says (jumps, masks of shifts, zeroes that the target sets anyway).
"""

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

Place = tuple[str | int, ...]  # from the program's root
Mutation = tuple[str, Place, Any]  # name, the place that changes, what stands there then

NEIGHBOURS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "and": "or", "or": "and", "+": "-", "-": "+"}
ZERO = {"type": "hexstr", "value": "0x0"}
INDEXED = {"register_read": 2, "register_write": 1, "count": 1, "execute_meter": 1}  # primitive -> which parameter


def mutants(program: dict[str, Any]) -> Iterator[tuple[str, Callable[[], str]]]:
    """Names, each once, and what makes the mutant's JSON."""
    seen: Counter[str] = Counter()
    for name, place, value in (*conditions(program), *primitives(program), *tables(program), *parser(program)):
        seen[name] += 1
        number = f" #{seen[name]}" if seen[name] > 1 else ""
        yield name + number, partial(changed, program, place, value)


def changed(program: dict[str, Any], place: Place, value: Any) -> str:
    """The program with another value at a place."""
    mutant = copy.deepcopy(program)
    where: Any = mutant
    for step in place[:-1]:
        where = where[step]
    where[place[-1]] = value
    return json.dumps(mutant)


def source(thing: dict[str, Any]) -> str:
    """The file, below p4src, and the words of what was compiled."""
    info = thing.get("source_info", {})
    name = Path(info.get("filename", "?"))
    return f"{name.stem}: {' '.join(info.get('source_fragment', '?').split())}"


def conditions(program: dict[str, Any]) -> Iterator[Mutation]:
    """Conditions turned round; comparisons and connectives in them exchanged for their neighbours."""
    for number, pipeline in enumerate(program["pipelines"]):
        for index, node in enumerate(pipeline["conditionals"]):
            place: Place = ("pipelines", number, "conditionals", index)
            yield (
                f"not: {source(node)}",
                place,
                node | {"true_next": node["false_next"], "false_next": node["true_next"]},
            )
            yield from operators(node["expression"], (*place, "expression"), source(node))


def operators(expression: Any, place: Place, words: str) -> Iterator[Mutation]:
    """Each operator that has a neighbour, in an expression and those within."""
    if not isinstance(expression, dict):
        return
    if expression.get("op") in NEIGHBOURS:
        other = NEIGHBOURS[expression["op"]]
        yield f"{expression['op']} -> {other}: {words}", (*place, "op"), other
    for part, inner in expression.items():
        yield from operators(inner, (*place, part), words)


def primitives(program: dict[str, Any]) -> Iterator[Mutation]:
    """Statements left out; operators in them; registers, counters and meters with the index 0."""
    scalar = next(kind for kind in program["header_types"] if kind["name"] == "scalars_0")["fields"][0][0]
    field = {"type": "field", "value": ["scalars", scalar]}
    nothing = {"op": "assign", "parameters": [field, field]}
    for number, action in enumerate(program["actions"]):
        for index, primitive in enumerate(action["primitives"]):
            place: Place = ("actions", number, "primitives", index)
            words = source(primitive)
            if primitive["op"] in ("_jump", "_jump_if_zero") or words.startswith("?"):
                continue
            if primitive["op"] == "assign" and words.endswith("..."):  # the constant's definition
                target = primitive["parameters"][0]["value"][-1]
                words = f"{action['name'].split('.')[-1]}: {target}"
            if not sets_nothing(primitive):
                yield f"without: {words}", place, nothing
            for at, parameter in enumerate(primitive["parameters"]):
                yield from operators(parameter, (*place, "parameters", at), words)
            if primitive["op"] in INDEXED:
                yield f"index 0: {words}", (*place, "parameters", INDEXED[primitive["op"]]), ZERO


def sets_nothing(primitive: dict[str, Any]) -> bool:
    """Return whether a primitive sets a variable to zero, which it is already, or sets a variable of the compiler's."""
    if primitive["op"] != "assign":
        return False
    target, value = primitive["parameters"]
    zero = value["type"] == "hexstr" and int(value["value"], 16) == 0
    return zero or str(target["value"][-1]).startswith("tmp")


def tables(program: dict[str, Any]) -> Iterator[Mutation]:
    """Keys that read zero, constant entries left out, and default actions exchanged."""
    for number, pipeline in enumerate(program["pipelines"]):
        for index, table in enumerate(pipeline["tables"]):
            place: Place = ("pipelines", number, "tables", index)
            short = table["name"].split(".")[-1]
            for at, key in enumerate(table["key"]):
                yield f"key: {short}.{key['name']}", (*place, "key", at, "mask"), "0x0"
            entries = table.get("entries", [])
            for at, found in enumerate(entries):
                yield f"without: {source(found)}", (*place, "entries"), entries[:at] + entries[at + 1 :]
            default = table.get("default_entry", {})
            for other in table["action_ids"] if table["key"] else ():
                action = program["actions"][other]
                if other != default["action_id"] and not action["runtime_data"]:
                    name = action["name"].split(".")[-1]
                    yield (
                        f"default: {short} {name}",
                        (*place, "default_entry"),
                        default | {"action_id": other, "action_data": []},
                    )


def parser(program: dict[str, Any]) -> Iterator[Mutation]:
    """Transitions that are not taken, and headers and fields that are not set."""
    for index, state in enumerate(program["parsers"][0]["parse_states"]):
        place: Place = ("parsers", 0, "parse_states", index)
        name = state["name"].removeprefix("FrameParser_")
        *cases, default = state["transitions"]
        for at, case in enumerate(cases):
            to = str(case["next_state"]).removeprefix("FrameParser_")
            rest = [*cases[:at], *cases[at + 1 :], default]
            yield f"parser: {name}: {case['value']} to {to}", (*place, "transitions"), rest
        for at, operation in enumerate(state["parser_ops"]):
            if name == "start":
                continue  # all zeroes
            words = " ".join(str(one["value"]) for one in operation["parameters"])
            rest = state["parser_ops"][:at] + state["parser_ops"][at + 1 :]
            yield f"parser: {name}: without {operation['op']} {words}", (*place, "parser_ops"), rest
