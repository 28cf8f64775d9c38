# SPDX-License-Identifier: Apache-2.0
"""ONOS' eight pipelines, as ONOS ships them compiled: set, read back, and in each table an entry written and read.

ONOS itself, a Java server, does not run here: the P4Info and the BMv2 JSON are its own, the client is not."""

from collections import Counter
from functools import partial

import grpc
from finsy.proto import p4i, p4r

from accesspoint.checks.conformance.fixture import in_order
from accesspoint.checks.foreign.case import Case, Failed, add
from accesspoint.checks.foreign.stand import P4RUNTIME, Stand
from accesspoint.checks.harness.p4runtime import Client, Program, delete, describe, details, insert

BASIC = "pipelines/basic/src/main/resources/p4c-out/bmv2"
FABRIC = "pipelines/fabric/impl/src/main/resources/p4c-out"
PIPELINES = {
    **{name: (BASIC, f"{name}_p4info.txt", f"{name}.json") for name in ("basic", "int")},
    **{
        name: (f"{FABRIC}/{name}/bmv2/default", "p4info.txt", "bmv2.json")
        for name in ("fabric", "fabric-bng", "fabric-full", "fabric-int", "fabric-spgw", "fabric-spgw-int")
    },
}


def run(stand: Stand, name: str) -> str:
    """Set the pipeline, and write and read an entry of each table that takes entries."""
    place, p4info, program = PIPELINES[name]
    folder = stand.folder("onos") / place
    pipeline = Program(folder / program, folder / p4info)
    made: Counter[str] = Counter()
    with stand.switch():
        client = Client(P4RUNTIME, pipeline, device_id=0)
        try:
            client.become_primary()
            client.push(program=pipeline)
            if client.pipeline().config.p4info != pipeline.p4info:
                raise Failed("another P4Info is read back than was set")
            for table in pipeline.p4info.tables:
                made[exchange(client, table)] += 1
        except grpc.RpcError as failure:
            raise Failed("; ".join(error.message for error in details(failure)) or describe(failure)) from None
        finally:
            client.close()
    return "tables: " + ", ".join(f"{count} {what}" for what, count in made.items())


def first_action(info: p4i.P4Info, table: p4i.Table) -> p4i.Action | None:
    """Return the first action that an entry may have."""
    allowed = [one.id for one in table.action_refs if one.scope != p4i.ActionRef.DEFAULT_ONLY]
    return next((one for one in info.actions if one.preamble.id in allowed), None)


def entry(table: p4i.Table, action: p4i.Action) -> p4r.TableEntry:
    """Return an entry of the table: each field and each parameter is 1."""
    made = p4r.TableEntry(table_id=table.preamble.id)
    for field in table.match_fields:
        match = made.match.add(field_id=field.id)
        kind = p4i.MatchField.MatchType.Name(field.match_type).lower()
        one = getattr(match, kind)
        if kind == "range":
            one.low, one.high = b"\x01", b"\x01"
            made.priority = 1
            continue
        one.value = b"\x01"
        if kind == "lpm":
            one.prefix_len = field.bitwidth
        if kind == "ternary":
            one.mask = b"\x01"
        if kind in ("ternary", "optional"):
            made.priority = 1
    call = made.action.action
    if table.implementation_id:
        weighted = made.action.action_profile_action_set.action_profile_actions.add(weight=1)
        call = weighted.action
    call.action_id = action.preamble.id
    for parameter in action.params:
        call.params.add(param_id=parameter.id, value=b"\x01")
    return made


def exchange(client: Client, table: p4i.Table) -> str:
    """Insert an entry, read it, and delete it. Raises Failed. Return the outcome in words."""
    action = first_action(client.program.p4info, table)
    if table.is_const_table or not table.match_fields or not action:
        return "without entries"
    wanted = entry(table, action)
    client.write(insert(wanted))
    found = client.read(table_entry=p4r.TableEntry(table_id=table.preamble.id))
    if [(one.match, one.action) for one in map(in_order, found)] != [(in_order(wanted).match, wanted.action)]:
        raise Failed(f"{table.preamble.name}: read back as {' '.join(str(found).split())}")
    client.write(delete(wanted))
    return "written and read"


for _name in PIPELINES:
    add(
        Case(
            f"onos-{_name}",
            "ONOS",
            f"pipeline {_name}: set, read back, an entry of each table",
            partial(run, name=_name),
            folder="onos",
        )
    )
