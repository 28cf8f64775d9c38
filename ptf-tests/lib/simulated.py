# SPDX-License-Identifier: Apache-2.0
"""apswitch in virtual time as the network of modelled connections: its C library, by ctypes (docs/switch/library.md).

Ports 1 and 2 lead to stations, 3 and 4 to servers, each over a link with a rate and a limit. A link has credit for one
frame at a time, so that it can be blocked.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from finsy import P4Schema, P4TableAction, P4TableEntry, P4TableMatch
from finsy.proto import p4r

from accesspoint.checks.harness import simulated
from accesspoint.ptf_tests.lib.ports import PORTS
from accesspoint.ptf_tests.model.segments import FULL_FRAME, HOST, Way, address

if "APSWITCH" in os.environ:
    simulated.LIBRARY = Path(os.environ["APSWITCH"]).with_name("libapswitch_c.so")

RATES = {1: 80, 2: 80, 3: 8, 4: 8}  # Mb/s of what leaves the port
ROLES = {1: 1, 2: 1, 3: 2, 4: 2}
ACK_QUEUE = 7
FLOWS = 65536
INDICES_OF_A_CASE = 8
TCP = 6
UNTAGGED = {"outer_vid": 0, "inner_vid": 0}


class Program:
    """A compiled program, and the entries that every case needs."""

    def __init__(self, p4info: Path, device_config: bytes) -> None:
        self.schema = P4Schema(p4info)
        self.p4info = self.schema.p4info
        self.device_config = device_config
        self.flow_templates = {version: self._flow_template(version) for version in (4, 6)}

    def entry(self, table: str, match: dict[str, int], action: str, **parameters: int) -> p4r.Entity:
        """Return a table entry."""
        made = P4TableEntry(table, match=P4TableMatch(match), action=P4TableAction(action, **parameters))
        return made.encode(self.schema)

    def fixed_entries(self) -> list[p4r.Entity]:
        """Hosts behind their ports, roles, and ACKs that go first; they are filtered towards servers."""
        made = []
        for port in PORTS:
            mac = HOST + port
            made += [
                self.entry("learn", {"src_addr": mac, "ingress_port": port} | UNTAGGED, "known_source"),
                self.entry("forward", {"dst_addr": mac} | UNTAGGED, "forward_to", egress_port=port),
                self.entry("ingress_roles", {"ingress_port": port}, "set_ingress_role", role=ROLES[port]),
                self.entry("egress_roles", {"egress_port": port}, "set_egress_role", role=ROLES[port]),
                self.entry(
                    "ack_priority",
                    {"egress_port": port},
                    "prioritise",
                    queue=ACK_QUEUE,
                    filter=int(ROLES[port] == 2),
                ),
            ]
        return made

    def _flow_template(self, version: int) -> p4r.Entity:
        match = {"src_addr": 1, "dst_addr": 1, "protocol": TCP, "src_port": 1, "dst_port": 1}
        match |= {"ingress_port": 1, "egress_port": 1} | UNTAGGED
        return self.entry(
            f"flows_ipv{version}",
            match,
            f"set_flow_ipv{version}",
            flow_index=1,
            generation=1,
            flow_class=0,
            feedback=0,
            scalable_feedback=0,
        )

    def flow(self, way: Way, index: int = 0, generation: int = 0) -> p4r.Entity:
        """Return the entry of a flow."""
        entity = p4r.Entity()
        entity.CopyFrom(self.flow_templates[way.version])
        entry = entity.table_entry
        values = {1: address(way.source, way.version), 2: address(way.target, way.version)}
        values |= {4: number(way.source_port), 5: number(way.target_port), 6: number(way.source), 7: number(way.target)}
        for field in entry.match:
            if field.field_id in values:
                field.exact.value = values[field.field_id]
        entry.action.action.params[0].value = number(index)
        entry.action.action.params[1].value = number(generation)
        return entity


@cache
def number(value: int) -> bytes:
    """A number in its canonical form (P4Runtime 1.4, section 8.4)."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8))


class VirtualNetwork:
    """A switch with the program; each case has flow indices that no case before had."""

    def __init__(self, program: Program, limit: int) -> None:
        self.program = program
        words = [word for port in PORTS for word in ("-i", f"{port}@port{port}")]
        for port in PORTS:
            words += ["--link", f"{port}:rate={RATES[port]}mbit,limit={limit}"]
        self.switch = simulated.Simulated(*words, "--cpu-port", "510", "--priority-queues", "8")
        self.stream = self.switch.become_primary()
        self.blocked: set[int] = set()
        self.credit = dict.fromkeys(PORTS, 0)
        for port in PORTS:
            self.switch.allow(port, 0)
        self._load()

    def _load(self) -> None:
        self.switch.push(self.program)
        self._write(p4r.Update.INSERT, self.program.fixed_entries())
        self.first_index = 0
        for port in PORTS:
            self._allow(port)

    def next_case(self) -> None:
        """Begin a case."""
        self.first_index += INDICES_OF_A_CASE
        if self.first_index + INDICES_OF_A_CASE > FLOWS:
            self._load()

    def close(self) -> None:
        """End the switch."""
        self.switch.close()

    def _write(self, kind: p4r.Update.Type.ValueType, entities: list[p4r.Entity]) -> None:
        self.switch.write(*(p4r.Update(type=kind, entity=entity) for entity in entities))

    @property
    def now(self) -> int:
        """Return the switch's time."""
        return self.switch.now

    def wire_time(self, port: int) -> Callable[[int], int]:
        """Return the time of a frame on the port's wire, by its bytes."""
        return lambda size: size * 8 * 1000 // RATES[port]

    def bulk_time(self, port: int) -> int:
        """Return the time of a full frame on the port's wire."""
        return self.wire_time(port)(FULL_FRAME)

    def set_flows(self, gone: list[Way], learned: list[tuple[Way, int, int]]) -> None:
        """Delete and insert flows."""
        updates = [p4r.Update(type=p4r.Update.DELETE, entity=self.program.flow(way)) for way in gone]
        for way, index, generation in learned:
            entity = self.program.flow(way, self.first_index + index, generation)
            updates.append(p4r.Update(type=p4r.Update.INSERT, entity=entity))
        if updates:
            self.switch.write(*updates)

    def receive(self, port: int, frame: bytes) -> None:
        """A frame arrives at a port, now."""
        self.switch.receive(port, frame)

    def block(self, port: int) -> None:
        """Give the port's link no further credit."""
        self.blocked.add(port)

    def unblock(self, port: int) -> None:
        """Give it credit again."""
        if port in self.blocked:
            self.blocked.discard(port)
            self._allow(port)

    def _allow(self, port: int) -> None:
        if not self.credit[port]:
            self.credit[port] = 1
            self.switch.allow(port, 1)

    def advance(self, to: int) -> list[tuple[int, int, bytes]]:
        """Let time pass until a frame leaves, at most until `to`."""
        left = self._take()
        while not left and self.switch.now < to:
            self.switch.advance(min(to, self.switch.deadline))
            left = self._take()
        return left

    def _take(self) -> list[tuple[int, int, bytes]]:
        left = [(at, port, frame) for port, at, frame in self.switch.sent()]
        for _, port, _ in left:
            self.credit[port] = 0
            if port not in self.blocked:
                self._allow(port)
        return left
