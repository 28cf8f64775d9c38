# SPDX-License-Identifier: Apache-2.0
"""Runtime commands of BMv2's `simple_switch_CLI` as P4Runtime's entities, for scripts that have files of them.

    table_add ipv4_lpm ipv4_forward 10.0.0.1/24 => 00:00:00:00:00:01 2
    table_set_default ipv4_lpm drop

Known: table_add, table_set_default, mc_mgrp_create, mc_node_create, mc_node_associate, mirroring_add. Empty lines and
comments (`#`) are skipped. Of tables with ternary or range keys the last word is the priority: the smallest is first.
"""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any

from finsy import P4CloneSessionEntry, P4MulticastGroupEntry, P4Schema, P4TableAction, P4TableEntry, P4TableMatch
from finsy.proto import p4i

MAX_PRIORITY = (1 << 24) - 1
_KINDS = {"exact": "EXACT", "lpm": "LPM", "ternary": "TERNARY", "range": "RANGE", "optional": "OPTIONAL"}
_PRIORITISED = {"TERNARY", "RANGE", "OPTIONAL"}


class CommandError(ValueError):
    """A command that cannot be done: one line that names it."""


def p4info_of(program: dict[str, Any]) -> p4i.P4Info:
    """Return the P4Info of a program's tables and actions, from its BMv2 JSON. Tables with action profiles are left
    out, as are counters, meters and all else that no command here names."""
    info = p4i.P4Info(pkg_info=p4i.PkgInfo(arch="v1model"))
    types = {kind["name"]: {field[0]: field[1] for field in kind["fields"]} for kind in program["header_types"]}
    widths = {header["name"]: types[header["header_type"]] for header in program["headers"]}
    for action in {action["name"]: action for action in program["actions"]}.values():
        made = info.actions.add(preamble=_preamble(0x01, len(info.actions) + 1, action["name"]))
        for number, param in enumerate(action["runtime_data"], start=1):
            made.params.add(id=number, name=param["name"], bitwidth=param["bitwidth"])
    actions = {action.preamble.name: action.preamble.id for action in info.actions}
    for table in (table for pipeline in program["pipelines"] for table in pipeline["tables"]):
        if table["type"] != "simple":
            continue
        made = info.tables.add(preamble=_preamble(0x02, len(info.tables) + 1, table["name"]), size=table["max_size"])
        for number, key in enumerate(table["key"], start=1):
            header, field = key["target"]
            width = 1 if field == "$valid$" else widths[header][field]
            name = key.get("name") or f"{header}.{field}"
            made.match_fields.add(id=number, name=name, bitwidth=width, match_type=_KINDS[key["match_type"]])
        for name in dict.fromkeys(table["actions"]):
            made.action_refs.add(id=actions[name])
        default = table.get("default_entry", {})
        if default.get("action_const"):
            made.const_default_action_id = actions[table["actions"][table["action_ids"].index(default["action_id"])]]
        made.is_const_table = "entries" in table
    return info


def entities(lines: Iterable[str], schema: P4Schema) -> tuple[list[Any], list[Any]]:
    """Return the entities that commands insert, and those that they modify. Raises CommandError."""
    inserted: list[Any] = []
    modified: list[Any] = []
    groups: dict[int, list[tuple[int, int]]] = {}
    nodes: list[tuple[int, list[int]]] = []

    def table_add(name: str, action: str, *words: str) -> None:
        inserted.append(_entry(schema, name, action, [*words]))

    def table_set_default(name: str, action: str, *words: str) -> None:
        modified.append(P4TableEntry(name, action=_action(schema, action, [*words]), is_default_action=True))

    def mc_mgrp_create(group: str) -> None:
        groups[int(group, 0)] = []

    def mc_node_create(instance: str, *ports: str) -> None:
        nodes.append((int(instance, 0), [int(port, 0) for port in ports]))

    def mc_node_associate(group: str, node: str) -> None:
        instance, ports = nodes[int(node, 0)]
        groups[int(group, 0)] += [(port, instance) for port in ports]

    def mirroring_add(session: str, port: str) -> None:
        inserted.append(P4CloneSessionEntry(int(session, 0), replicas=[int(port, 0)]))

    known: dict[str, Callable[..., None]] = {
        "table_add": table_add,
        "table_set_default": table_set_default,
        "mc_mgrp_create": mc_mgrp_create,
        "mc_node_create": mc_node_create,
        "mc_node_associate": mc_node_associate,
        "mirroring_add": mirroring_add,
    }
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[0] not in known:
            raise CommandError(f"line {number}: '{words[0]}' is unknown: choose of {', '.join(known)}")
        try:
            known[words[0]](*words[1:])
        except TypeError:
            raise CommandError(f"line {number}: `{line.strip()}`: too few words, or too many") from None
        except (ValueError, KeyError, IndexError) as error:
            raise CommandError(f"line {number}: `{line.strip()}`: {error}") from None
    inserted += [P4MulticastGroupEntry(group, replicas=ports) for group, ports in groups.items()]
    return inserted, modified


def _entry(schema: P4Schema, name: str, action: str, words: list[str]) -> P4TableEntry:
    table = schema.tables[name]
    fields = list(table.match_fields)
    kinds = [p4i.MatchField.MatchType.Name(field.pbuf.match_type) for field in fields]
    at = words.index("=>")
    keys, values = words[:at], words[at + 1 :]
    if len(keys) != len(fields):
        raise ValueError(f"table {name} has {len(fields)} keys")
    priority = MAX_PRIORITY - int(values.pop(), 0) if _PRIORITISED.intersection(kinds) else 0
    match = {
        field.name: value
        for field, kind, key in zip(fields, kinds, keys, strict=True)
        if (value := _match(kind, key, field.bitwidth)) is not None
    }
    return P4TableEntry(name, match=P4TableMatch(match), action=_action(schema, action, values), priority=priority)


def _action(schema: P4Schema, name: str, values: list[str]) -> P4TableAction:
    params = list(schema.actions[name].params)
    if len(values) != len(params):
        raise ValueError(f"action {name} has {len(params)} parameters")
    return P4TableAction(name, **{param.name: number(value) for param, value in zip(params, values, strict=True)})


def _match(kind: str, key: str, width: int) -> Any:
    """Return a key as finsy takes it; None for one that matches all."""
    match kind:
        case "LPM":
            value, _, length = key.partition("/")
            prefix = int(length) if length else width
            return (number(value) >> (width - prefix) << (width - prefix), prefix) if prefix else None
        case "TERNARY":
            value, _, mask = key.partition("&&&")
            bits = number(mask) if mask else (1 << width) - 1
            return (number(value) & bits, bits) if bits else None
        case "RANGE":
            low, _, high = key.partition("->")
            return number(low), number(high)
        case _:
            return number(key)


def number(text: str) -> int:
    """Return the number that a MAC, IPv4 or IPv6 address, or a decimal or hexadecimal number, is. Raises ValueError."""
    octets = text.split(":")
    if len(octets) == 6 and all(len(octet) == 2 for octet in octets):
        return int("".join(octets), 16)
    if "." in text or ":" in text:
        return int(ipaddress.ip_address(text))
    return int(text, 0)


def _preamble(kind: int, number: int, name: str) -> p4i.Preamble:
    return p4i.Preamble(id=kind << 24 | number, name=name, alias=name.rpartition(".")[2])
