# SPDX-License-Identifier: Apache-2.0
"""Programs that a primary sets: what no compiler emits, what is too large, and random mutations of good ones."""

import copy
import json
import time
from typing import Any

from finsy.proto import p4r

from accesspoint.checks.harness.p4runtime import Client
from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.intruder import ELECTION, Intruder, changed, graft, nodes, own, tree
from accesspoint.checks.hostile.tools import leave, mutate, together


def ingress(document: Any) -> Any:
    return next(pipeline for pipeline in document["pipelines"] if pipeline["name"] == "ingress")


def insist(target: Target, intruder: Intruder, *documents: Any, p4info: Any = None, keep: bool = False) -> None:
    """Sets these programs over and over. keep: with the entries, for programs that may well be taken."""
    action = "RECONCILE_AND_COMMIT" if keep else "VERIFY_AND_COMMIT"
    encoded = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in documents]
    while target.running():
        for document in encoded:
            if target.running():
                intruder.push(document, p4info, action)
        time.sleep(0.02)


@attack("switch")
def registers_that_no_memory_holds(target: Target) -> None:
    """A program with registers of 2048 bits in 2^24 cells, 4 GB each"""
    intruder = Intruder(target)
    document, p4info = tree(intruder.program), changed(intruder.program.p4info)
    for array in document["register_arrays"]:
        array["bitwidth"], array["size"] = 2048, 1 << 24
    for register in p4info.registers:
        register.type_spec.bitstring.bit.bitwidth, register.size = 2048, 1 << 24
    insist(target, intruder, document, p4info=p4info)


@attack("switch", short=True)
def tables_in_a_circle(target: Target) -> None:
    """A program whose last tables lead back to its first one, so that no packet ever leaves it"""
    intruder = Intruder(target)
    document = tree(intruder.program)
    pipeline = ingress(document)
    for table in pipeline["tables"]:
        table["next_tables"] = {
            key: pipeline["init_table"] if following is None else following
            for key, following in table["next_tables"].items()
        }
        table["base_default_next"] = table["base_default_next"] or pipeline["init_table"]
    insist(target, intruder, document)


@attack("switch")
def jumps_back(target: Target) -> None:
    """A program whose actions jump back to their own beginning"""
    intruder = Intruder(target)
    document = tree(intruder.program)
    jump = {"op": "_jump", "parameters": [{"type": "hexstr", "value": "0x0"}]}
    for action in document["actions"]:
        action["primitives"].append(jump)
    insist(target, intruder, document, keep=True)


@attack("switch", carries=False)
def parser_without_end(target: Target) -> None:
    """A program whose parser states all lead to the first one, without taking a byte"""
    intruder = Intruder(target)
    document = tree(intruder.program)
    for parser in document["parsers"]:
        for state in parser["parse_states"]:
            state["parser_ops"] = []
            for transition in state["transitions"]:
                transition["next_state"] = parser["init_state"]
    insist(target, intruder, document)


@attack("switch")
def copies_of_headers_of_another_shape(target: Target) -> None:
    """Programs that copy a header of fixed fields onto one with a varbit, and the other way round"""
    intruder = Intruder(target, own("variable"))
    documents = []
    for pair in (("list", "point"), ("point", "list"), ("options", "address"), ("address", "pair")):
        document = tree(intruder.program)
        parameters = [{"type": "header", "value": name} for name in pair]
        used = {action for table in ingress(document)["tables"] for action in table["action_ids"]}
        for action in document["actions"]:
            if action["id"] in used:
                action["primitives"].insert(0, {"op": "assign_header", "parameters": parameters})
        documents.append(document)
    insist(target, intruder, *documents)


@attack("switch")
def actions_of_a_shared_profile(target: Target) -> None:
    """A program with two tables that share a profile and have actions of one name with other parameters"""
    intruder = Intruder(target, own("profiles"))
    document = tree(intruder.program)
    number = max(action["id"] for action in document["actions"])
    for table in ingress(document)["tables"]:
        if table["type"] == "simple":
            continue
        for place, identity in enumerate(table["action_ids"]):
            twin = copy.deepcopy(next(action for action in document["actions"] if action["id"] == identity))
            number += 1
            twin["id"] = number
            twin["runtime_data"] = [{"name": f"p{n}", "bitwidth": 2048} for n in range(1 + place)]
            document["actions"].append(twin)
            table["action_ids"][place] = number
    insist(target, intruder, document)


@attack("switch")
def keys_without_end(target: Target) -> None:
    """A program with a key of 50,000 fields in a table, or of 100 in each"""
    intruder = Intruder(target)
    document, many = tree(intruder.program), tree(intruder.program)
    flows = next(table for table in ingress(document)["tables"] if table["name"].endswith("flows_ipv6"))
    flows["key"] = flows["key"] * 10_000
    for table in ingress(many)["tables"]:
        table["key"] = table["key"] * 100
    insist(target, intruder, document, many)


@attack("switch")
def json_without_bottom(target: Target) -> None:
    """JSON nested a million deep, and an expression 20,000 deep"""
    intruder = Intruder(target)
    document = tree(intruder.program)
    place = ingress(document)["conditionals"][0]["expression"]
    text = json.dumps(place)
    deep = '{"type":"expression","value":{"op":"not","left":null,"right":' * 20_000 + text + "}}" * 20_000
    expression = json.dumps(document).replace(text, deep, 1).encode()
    insist(target, intruder, b"[" * 1_000_000, b'{"a":' * 500_000, expression)


@attack("switch", seconds=6)
def json_of_60_mb(target: Target) -> None:
    """Programs of 60 MB of JSON: numbers that nobody asks for, and 400,000 actions"""
    intruder = Intruder(target)
    document = tree(intruder.program)
    numbers = json.dumps(document | {"more": [0] * 20_000_000}).encode()
    action = {"id": 1000, "name": "a", "runtime_data": [], "primitives": []}
    document["actions"] += [action | {"id": 1000 + number} for number in range(400_000)]
    insist(target, intruder, numbers, document, keep=True)


@attack("switch", seconds=8)
def programs_that_take_long_to_translate(target: Target) -> None:
    """A program with 100,000 assignments in an action, and one with 20,000 conditions in a row"""
    intruder = Intruder(target)
    long, wide = tree(intruder.program), tree(intruder.program)
    action = next(one for one in long["actions"] if any(part["op"] == "assign" for part in one["primitives"]))
    assign = next(part for part in action["primitives"] if part["op"] == "assign")
    assign.pop("source_info")
    action["primitives"] += [assign] * 100_000
    pipeline = ingress(wide)
    condition = pipeline["conditionals"][0] | {"source_info": None}
    row = [
        condition | {"name": f"more{n}", "id": 5000 + n, "true_next": f"more{n + 1}", "false_next": f"more{n + 1}"}
        for n in range(20_000)
    ]
    row[-1] |= {"true_next": pipeline["init_table"], "false_next": pipeline["init_table"]}
    pipeline["conditionals"] += row
    pipeline["init_table"] = "more0"
    insist(target, intruder, long, wide, keep=True)


@attack("switch", seconds=5)
def programs_set_over_and_over(target: Target) -> None:
    """The same program set again as fast as it is taken, with all that was written to it, while others read"""
    intruder = Intruder(target)
    while target.running():
        for action in ("VERIFY", "VERIFY_AND_SAVE", "RECONCILE_AND_COMMIT"):
            if target.running():
                intruder.push(action=action)


@attack("switch", seconds=5, short=True)
def programs_begun_and_left(target: Target) -> None:
    """A good program to be verified or saved, by a primary that cancels each request when others have begun"""
    intruder = Intruder(target)
    requests = [
        p4r.SetForwardingPipelineConfigRequest(
            device_id=1,
            election_id=p4r.Uint128(high=ELECTION >> 64, low=ELECTION & (1 << 64) - 1),
            action=action,
            config=p4r.ForwardingPipelineConfig(
                p4info=intruder.program.p4info, p4_device_config=intruder.program.device_config
            ),
        ).SerializeToString()
        for action in ("VERIFY", "VERIFY_AND_SAVE")
    ]
    leave(target, "/p4.v1.P4Runtime/SetForwardingPipelineConfig", requests)


@attack("switch", seconds=8, short=True, carries=False)
def program_mutations(target: Target) -> None:
    """Random mutations of good programs' JSON, with packets through those that are taken"""
    intruder = Intruder(target)
    programs = [own("features"), intruder.program, own("variable"), own("stacks")]
    documents = [(tree(program), program.p4info) for program in programs]
    paths = [[path for path in nodes(document) if path and "source_info" not in path] for document, _ in documents]
    while target.running():
        number = target.random.randrange(len(documents))
        document, p4info = documents[number]
        if intruder.push(graft(document, paths[number], target.random), p4info):
            time.sleep(0.02)  # some packets


@attack("switch", carries=False)
def program_bytes(target: Target) -> None:
    """Random mutations of a good program's bytes"""
    intruder = Intruder(target)
    while target.running():
        intruder.push(mutate(intruder.program.device_config, target.random))


@attack("switch", seconds=5)
def programs_of_20_clients(target: Target) -> None:
    """20 clients that each set a program, of which one is the primary"""
    program = Intruder(target)
    config = program.program.device_config + b" " * (4 << 20)

    def one(number: int) -> None:
        other = Intruder.__new__(Intruder)
        other.target, other.program = target, program.program
        other.client = Client(target.address, program.program, election_id=number + 1)
        while target.running():
            other.push(config, action="VERIFY")

    together(*[lambda number=number: one(number) for number in range(20)])
