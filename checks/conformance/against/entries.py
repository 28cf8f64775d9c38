# SPDX-License-Identifier: Apache-2.0
"""Entries that a program's packets hit."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

from finsy.proto import p4r

from accesspoint.checks.conformance.against.programs import CPU_PORT, PORTS, Case, Frame
from accesspoint.checks.conformance.server import ServerError
from accesspoint.checks.conformance.stf.piped import FILE_HEADER, FRAME_HEADER
from accesspoint.checks.harness.p4runtime import Program, binary, update
from accesspoint.topologies import targets

MAX_ENTRIES = 24  # entries of a table


def explain(
    json_: Path, frames: list[bytes], entries: dict[str, Any], port: int, directory: Path, *options: str
) -> str:
    """Return what apswitch's reference says of frames that come by a port. Raises ServerError."""
    written, pcap = directory / "entries.json", directory / "frames.pcap"
    written.write_text(json.dumps(entries))
    records = (FRAME_HEADER.pack(0, index, len(frame), len(frame)) + frame for index, frame in enumerate(frames))
    pcap.write_bytes(FILE_HEADER + b"".join(records))
    command = [targets.find("apswitch").binary(), "explain", str(json_), str(pcap), "--entries", str(written), *options]
    done = subprocess.run([*command, "--port", str(port), "--cpu-port", str(CPU_PORT)], capture_output=True, text=True)
    if done.returncode != 0:
        raise ServerError(f"apswitch explain {json_}: {done.stderr.strip()}")
    return done.stdout


def seen_keys(case: Case, frames: list[Frame], entries: dict[str, Any], directory: Path) -> dict[str, list[list[int]]]:
    """Return the keys of every table that these frames meet."""
    keys: dict[str, list[list[int]]] = {}
    for port in PORTS:
        of_port = [frame for at, frame in frames if at == port]
        for line in explain(case.json, of_port, entries, port, directory, "--json").splitlines():
            for event in json.loads(line)["events"]:
                if event["event"] == "table":
                    keys.setdefault(event["name"], []).append([parse_value(value) for _, value in event["key"]])
    return keys


def parse_value(text: str) -> int:
    """5, 0x1f or 02:00:00:00:00:01."""
    return int(text.replace(":", ""), 16) if ":" in text else int(text, 0)


def make_entries(case: Case, program: Program, keys: dict[str, list[list[int]]], rng: random.Random) -> list[Any]:
    """Entries that such packets hit, as P4Runtime has them; each of a priority of its own."""
    entries = []
    actions = {action.preamble.id: action for action in program.p4info.actions}
    priorities = iter(rng.sample(range(1, 1 << 20), 4096))
    for table in program.p4info.tables:
        references = [a for a in table.action_refs if a.scope != a.DEFAULT_ONLY]
        if table.is_const_table or not table.match_fields or not references or table.implementation_id:
            continue
        seen = keys.get(table.preamble.name, [])
        for _ in range(min(table.size, MAX_ENTRIES)):
            values = rng.choice(seen) if seen else [rng.getrandbits(f.bitwidth) for f in table.match_fields]
            entry = p4r.TableEntry(table_id=table.preamble.id)
            ranked = False
            for match, value in zip(table.match_fields, values, strict=True):
                field = field_match(match, value & ((1 << match.bitwidth) - 1), rng)
                ranked |= match.match_type not in (match.EXACT, match.LPM)
                if field:
                    entry.match.append(field)
            if ranked:
                entry.priority = next(priorities)
            call = entry.action.action
            call.action_id = rng.choice(references).id
            for param in actions[call.action_id].params:
                chosen = case.value(param.name, rng)
                if chosen is None:
                    chosen = rng.choice([rng.randrange(5), rng.getrandbits(param.bitwidth)])
                call.params.add(param_id=param.id, value=binary(chosen % (1 << param.bitwidth)))
            entries.append(entry)
    return entries


def field_match(match: Any, value: int, rng: random.Random) -> Any:
    """Mostly one that the value hits; None matches everything."""
    width = match.bitwidth
    made = p4r.FieldMatch(field_id=match.id)
    if match.match_type == match.EXACT:
        made.exact.value = binary(value)
    elif match.match_type == match.LPM:
        length = rng.randint(0, width)
        if not length:
            return None
        made.lpm.value, made.lpm.prefix_len = binary(value >> (width - length) << (width - length)), length
    elif match.match_type == match.TERNARY:
        mask = rng.choice([0, (1 << width) - 1, rng.getrandbits(width)])
        if not mask:
            return None
        made.ternary.value, made.ternary.mask = binary(value & mask), binary(mask)
    elif match.match_type == match.RANGE:
        low, high = rng.randint(0, value), rng.randint(value, (1 << width) - 1)
        if (low, high) == (0, (1 << width) - 1):
            return None
        made.range.low, made.range.high = binary(low), binary(high)
    else:
        if rng.random() < 0.5:
            return None
        made.optional.value = binary(value)
    return made


def as_tutorial(program: Program, entries: list[Any]) -> dict[str, Any]:
    """The entries in the form that `apswitch explain` reads."""
    tables = {table.preamble.id: table for table in program.p4info.tables}
    actions = {action.preamble.id: action for action in program.p4info.actions}
    result = []
    for entry in entries:
        table, call = tables[entry.table_id], entry.action.action
        names = {f.id: f.name for f in table.match_fields}
        action = actions[call.action_id]
        params = {p.id: p.name for p in action.params}
        match: dict[str, Any] = {}
        for f in entry.match:
            kind = f.WhichOneof("field_match_type")
            made = getattr(f, kind)
            width = next(m.bitwidth for m in table.match_fields if m.id == f.field_id)
            match[names[f.field_id]] = as_match(kind, made, width)
        result.append(
            {
                "table": table.preamble.name,
                "match": match,
                "priority": entry.priority,
                "action_name": action.preamble.name,
                "action_params": {params[p.param_id]: as_hex(p.value) for p in call.params},
            }
        )
    copies = replicas()
    return {
        "table_entries": result,
        "multicast_group_entries": [{"multicast_group_id": n, "replicas": r} for n, r in copies.items()],
        "clone_session_entries": [{"clone_session_id": n, "replicas": r} for n, r in copies.items()],
    }


def as_match(kind: str, made: Any, width: int) -> Any:
    """p4c's JSON calls optional fields ternary."""
    return {
        "exact": lambda: as_hex(made.value),
        "optional": lambda: [as_hex(made.value), hex((1 << width) - 1)],
        "lpm": lambda: [as_hex(made.value), made.prefix_len],
        "ternary": lambda: [as_hex(made.value), as_hex(made.mask)],
        "range": lambda: [as_hex(made.low), as_hex(made.high)],
    }[kind]()


def as_hex(value: bytes) -> str:
    return f"0x{int.from_bytes(value, 'big'):x}"


def replicas() -> dict[int, list[dict[str, int]]]:
    """Replicas of the multicast groups and of the clone sessions."""
    both = [{"egress_port": 1, "instance": 1}, {"egress_port": 3, "instance": 2}]
    return {1: both, 2: [{"egress_port": 2, "instance": 5}], 7: [{"egress_port": CPU_PORT, "instance": 1}]}


def copies() -> list[Any]:
    """Updates of P4Runtime that write the replicas."""
    updates = []
    for number, ports in replicas().items():
        made = [p4r.Replica(egress_port=r["egress_port"], instance=r["instance"]) for r in ports]
        groups = p4r.PacketReplicationEngineEntry()
        groups.multicast_group_entry.multicast_group_id = number
        groups.multicast_group_entry.replicas.extend(made)
        sessions = p4r.PacketReplicationEngineEntry()
        sessions.clone_session_entry.session_id = number
        sessions.clone_session_entry.replicas.extend(made)
        updates += [update("INSERT", packet_replication_engine_entry=e) for e in (groups, sessions)]
    return updates


def unique(program: Program, entries: list[Any]) -> list[Any]:
    """Each key once, and no more than a table holds."""
    room = {table.preamble.id: min(table.size, MAX_ENTRIES) for table in program.p4info.tables}
    first: dict[Any, Any] = {}
    for entry in entries:
        key = (entry.table_id, tuple(sorted(field.SerializeToString() for field in entry.match)))
        if key not in first and room[entry.table_id]:
            room[entry.table_id] -= 1
            first[key] = entry
    return list(first.values())
