# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime client that makes itself primary, and programs with something wrong in them."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4i, p4r

from accesspoint.checks.bench.switch.program import SERVER_MAC, STATION_MAC, STATION_PORT, UPLINK_PORT
from accesspoint.checks.harness.p4runtime import Client, Program, describe, details, exact, insert
from accesspoint.checks.hostile.attack import Target
from accesspoint.topologies.requirements import ROOT

ELECTION = 1 << 40  # above everybody's
PROGRAMS = ROOT / "switch/testdata/programs"


def access_point() -> Program:
    """The program that the switch runs."""
    return Program(ROOT / "p4src/compiled/ap.json", ROOT / "p4src/compiled/ap.p4info.txtpb")


def own(name: str) -> Program:
    """One of the switch's own test programs; those without a P4Info get one that names the architecture alone."""
    p4info = PROGRAMS / f"{name}.p4info.txtpb"
    program = Program(PROGRAMS / f"{name}.json", p4info if p4info.exists() else Path("/dev/null"))
    program.p4info.pkg_info.arch = "v1model"
    return program


class Intruder:
    """An unwanted primary. Refusals are reported, not raised."""

    def __init__(self, target: Target, program: Program | None = None) -> None:
        self.target = target
        self.program = program or access_point()
        self.client = Client(target.address, self.program, wait=target.left()).become_primary(ELECTION)

    def push(self, document: Any = None, p4info: Any = None, action: str = "VERIFY_AND_COMMIT") -> bool:
        """Sets a pipeline. document: JSON as bytes or as a tree; without it the program's own. Whether it was taken."""
        config = self.program.device_config if document is None else document
        config = config if isinstance(config, bytes) else json.dumps(config).encode()
        self.client.wait = self.target.left()
        try:
            self.client.push(action, p4_device_config=config, p4info=p4info or self.program.p4info)
        except grpc.RpcError as failure:
            self.target.refused(failure.code().name, failure.details())
            return False
        self.target.refused("OK")
        return True

    def write(self, *updates: p4r.Update, tell: bool = True) -> bool:
        """Write updates, and return whether the switch accepted all of them."""
        self.client.wait = self.target.left()
        try:
            self.client.write(*updates)
        except grpc.RpcError as failure:
            if tell:
                self.tell(failure)
            return False
        return True

    def tell(self, failure: grpc.RpcError) -> None:
        """Report the first update's error, or that of the call."""
        text = describe(failure).partition(": ")[2]
        self.target.refused(failure.code().name, next((e.message for e in details(failure) if e.canonical_code), text))

    def let_through(self) -> None:
        """Insert the entries of the access point's program that the steady packets need."""
        entry = self.program.entry
        station, server = (int(mac.replace(":", ""), 16) for mac in (STATION_MAC, SERVER_MAC))
        entries = [
            entry("ingress_roles", [exact(1, STATION_PORT)], ("set_ingress_role", 1)),
            entry("ingress_roles", [exact(1, UPLINK_PORT)], ("set_ingress_role", 2)),
            entry("egress_roles", [exact(1, UPLINK_PORT)], ("set_egress_role", 2)),
            entry("learn", [exact(1, station), exact(2, STATION_PORT), exact(3, 0), exact(4, 0)], ("known_source",)),
            entry("forward", [exact(1, server), exact(2, 0), exact(3, 0)], ("forward_to", UPLINK_PORT)),
        ]
        self.write(*map(insert, entries))


def tree(program: Program) -> Any:
    """A program's JSON, to be changed."""
    return json.loads(program.device_config)


def changed(p4info: Any) -> Any:
    """A copy of a P4Info, to be changed."""
    copied = p4i.P4Info()
    copied.CopyFrom(p4info)
    return copied


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values of a tree."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from nodes(inner, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def graft(document: Any, paths: list[tuple[Any, ...]], source: Any) -> Any:
    """The tree with some values changed: another value of the tree, a number at the edge, nothing, twice as much."""
    document = copy.deepcopy(document)
    for _ in range(source.choice((1, 1, 2, 4))):
        path = source.choice(paths)
        try:
            parent, key = at(document, path[:-1]), path[-1]
            old = parent[key]
            match source.randrange(6):
                case 0:
                    parent[key] = copy.deepcopy(at(document, source.choice(paths)))
                case 1 if isinstance(old, int):
                    parent[key] = source.choice((0, 1, -1, old + 1, old - 1, 2**31, 2**32 - 1, 2**63, 1 << 20))
                case 1 | 2 if isinstance(old, str):
                    twins = [one for one in paths[:: max(1, len(paths) // 500)] if isinstance(at(document, one), str)]
                    parent[key] = at(document, source.choice(twins)) if twins else ""
                case 3 if isinstance(old, list) and old:
                    parent[key] = old * 2
                case 4 if isinstance(old, list) and old:
                    parent[key] = old[1:]
                case _:
                    del parent[key]
        except (KeyError, IndexError, TypeError):
            continue
    return document
