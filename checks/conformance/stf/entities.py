# SPDX-License-Identifier: Apache-2.0
"""P4Runtime entities of a case's statements, for a program's P4Info. Knows no server."""

from collections.abc import Callable
from typing import Any, NoReturn

from finsy.proto import p4i, p4r

from accesspoint.checks.conformance.stf.language import Add, Call, Command, SetDefault, Value
from accesspoint.checks.conformance.suite import fail
from accesspoint.checks.harness.p4runtime import Program, binary, update

RANKED = (p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.OPTIONAL)
Updates = list[p4r.Update]


def names_of(name: str) -> list[str]:
    """Return the names that a P4Info may have for a case's name: `extra[0].h` for `extra$0.h`, `data.$valid$` for
    `data.valid`."""
    found = [name]
    head, dollar, rest = name.partition("$")
    index = len(rest) - len(rest.lstrip("0123456789"))
    if dollar and index:
        found.append(f"{head}[{rest[:index]}]{rest[index:]}")
    if name.endswith("valid"):
        found.append(f"{name.removesuffix('valid')}$valid$")
    return [*found, f"{name}.$valid$"]


def choose(name: str, kind: str, objects: list[Any], name_of: Callable[[Any], str]) -> Any:
    """The object of that name: the whole one, or else the only one whose last parts it is. Raises Failed."""
    for wanted in names_of(name):
        whole = [one for one in objects if name_of(one) == wanted]
        found = whole or [one for one in objects if name_of(one).endswith(f".{wanted}")]
        if len(found) == 1:
            return found[0]
        if found:
            fail(f"{kind} {name} is ambiguous: {', '.join(map(name_of, found))}")
    return fail(f"the P4Info has no {kind} {name}; there are {', '.join(map(name_of, objects)) or 'none'}")


def full_name(one: Any) -> str:
    return str(one.preamble.name)


class Entities:
    """Updates of one case, and what later statements of it refer to."""

    def __init__(self, program: Program) -> None:
        self.p4info = program.p4info
        self.actions = {action.preamble.id: action for action in self.p4info.actions}
        self.entries: dict[str, p4r.TableEntry] = {}  # by the name behind `=`
        self.nodes: list[tuple[int, list[int]]] = []  # instance and ports, by the handle that creating it gave
        self.groups: dict[int, list[int]] = {}  # handles of each multicast group
        self.members = 0

    # Names

    def find(self, kind: str, name: str) -> Any:
        """kind: a field of P4Info. Raises Failed."""
        return choose(name, kind.rstrip("s"), list(getattr(self.p4info, kind)), full_name)

    def table(self, name: str) -> Any:
        return self.find("tables", name)

    # Entries

    def add(self, statement: Add) -> Updates:
        """The entry, behind the member of an action profile that it needs."""
        table = self.table(statement.table)
        entry = p4r.TableEntry(table_id=table.preamble.id)
        fields = list(table.match_fields)
        values = {choose(name, "field", fields, lambda one: one.name).id: v for name, v in statement.match}
        for one in fields:
            match = field_match(one, values.get(one.id))
            if match:
                entry.match.append(match)
        if any(one.match_type in RANKED for one in fields):
            entry.priority = statement.priority + 1  # 0 is none
        updates = self.act(entry, table, statement.call)
        if statement.name:
            self.entries[statement.name] = entry
        return [*updates, update("INSERT", table_entry=entry)]

    def set_default(self, statement: SetDefault) -> Updates:
        table = self.table(statement.table)
        entry = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
        updates = self.act(entry, table, statement.call)
        return [*updates, update("MODIFY", table_entry=entry)]

    def act(self, entry: p4r.TableEntry, table: Any, call: Call) -> Updates:
        """Gives the entry its action: by itself, or through the table's profile."""
        action = self.action(table, call)
        if not table.implementation_id:
            entry.action.action.CopyFrom(action)
            return []
        profile = next(one for one in self.p4info.action_profiles if one.preamble.id == table.implementation_id)
        if profile.with_selector:
            entry.action.action_profile_action_set.action_profile_actions.add(action=action, weight=1)
            return []
        self.members += 1
        entry.action.action_profile_member_id = self.members
        member = p4r.ActionProfileMember(action_profile_id=profile.preamble.id, member_id=self.members, action=action)
        return [update("INSERT", action_profile_member=member)]

    def action(self, table: Any, call: Call) -> p4r.Action:
        of_table = [self.actions[reference.id] for reference in table.action_refs]
        found = choose(call.action, "action", of_table, full_name)
        given = dict(call.params)
        action = p4r.Action(action_id=found.preamble.id)
        for param in found.params:
            if param.name not in given:
                fail(f"action {call.action} wants its parameter {param.name}")
            action.params.add(param_id=param.id, value=binary(given.pop(param.name)))
        if given:
            fail(f"action {call.action} has no parameter {', '.join(given)}")
        return action

    # Packet replication

    def replication(self, statement: Command) -> Updates:
        """Multicast groups and clone sessions."""
        word, (first, *rest) = statement.word, statement.numbers
        if word == "mc_node_create":
            self.nodes.append((first, rest))
            return []
        if word == "mc_node_update":
            self.nodes[self.node(first)] = self.nodes[self.node(first)][0], rest
            return [self.group("MODIFY", number) for number, nodes in self.groups.items() if first in nodes]
        if word == "mc_mgrp_create":
            self.groups[first] = []
            return [self.group("INSERT", first)]
        if word == "mc_node_associate":
            self.groups.setdefault(first, []).append(self.node(rest[0]))
            return [self.group("MODIFY", first)]
        session = p4r.CloneSessionEntry(session_id=first)
        if word == "mirroring_add":
            session.replicas.add(egress_port=rest[0])
        elif word == "mirroring_add_mc":
            session.replicas.extend(self.replicas(rest[0]))
        operation = "DELETE" if word == "mirroring_delete" else "INSERT"
        return [update(operation, packet_replication_engine_entry=wrapped(clone_session_entry=session))]

    def node(self, handle: int) -> int:
        if handle >= len(self.nodes):
            fail(f"node {handle} is not created: there are {len(self.nodes)}, from 0")
        return handle

    def replicas(self, group: int) -> list[p4r.Replica]:
        nodes = [self.nodes[handle] for handle in self.groups.get(group, [])]
        return [p4r.Replica(egress_port=port, instance=instance) for instance, ports in nodes for port in ports]

    def group(self, operation: str, number: int) -> p4r.Update:
        entry = p4r.MulticastGroupEntry(multicast_group_id=number, replicas=self.replicas(number))
        return update(operation, packet_replication_engine_entry=wrapped(multicast_group_entry=entry))

    # State

    def state(self, statement: Command) -> Updates:
        """Writes of counters, registers and meters."""
        word, numbers = statement.word, statement.numbers
        if word == "counter_write":
            cell = self.counter_cell(statement.name, numbers[0])
            cell.data.packet_count, cell.data.byte_count = numbers[1], numbers[2]
            return [update("MODIFY", counter_entry=cell)]
        if word in ("register_write", "register_reset"):
            register = p4r.RegisterEntry(register_id=self.find("registers", statement.name).preamble.id)
            register.data.bitstring = binary(numbers[1] if numbers else 0)
            if numbers:
                register.index.index = numbers[0]
            return [update("MODIFY", register_entry=register)]
        if len(statement.rates) != 2:
            fail(f"{word} wants two rates, the committed and the peak one")
        meter = p4r.MeterEntry(meter_id=self.find("meters", statement.name).preamble.id)
        if numbers:
            meter.index.index = numbers[0]
        (committed, burst), (peak, peak_burst) = statement.rates
        meter.config.cir, meter.config.cburst = round(committed * 1_000_000), burst
        meter.config.pir, meter.config.pburst = round(peak * 1_000_000), peak_burst
        return [update("MODIFY", meter_entry=meter)]

    def counter_cell(self, name: str, index: int) -> p4r.CounterEntry:
        entry = p4r.CounterEntry(counter_id=self.find("counters", name).preamble.id)
        entry.index.index = index
        return entry

    def direct_cell(self, entry_name: str) -> p4r.DirectCounterEntry:
        """Direct counter of the entry whose statement ends in `= NAME`."""
        if entry_name not in self.entries:
            fail(f"no entry is called {entry_name}")
        return p4r.DirectCounterEntry(table_entry=self.entries[entry_name])


def wrapped(**inner: Any) -> p4r.PacketReplicationEngineEntry:
    return p4r.PacketReplicationEngineEntry(**inner)


def field_match(one: Any, value: Value | None) -> p4r.FieldMatch | None:
    """A field of a key as P4Runtime has it; None matches everything. Raises Failed."""
    everything = (1 << one.bitwidth) - 1
    kind = one.match_type
    match = p4r.FieldMatch(field_id=one.id)
    if kind == p4i.MatchField.EXACT:
        if value is not None and value.mask is not None and value.mask != (1 << value.digits) - 1:
            fail(f"field {one.name} is exact, so no digit of it can be '*'")
        match.exact.value = binary(value.value if value else 0)
        return match
    if value is None:
        return None
    # Decimal numbers say all bits, others those of their digits.
    mask = everything if value.mask is None else value.mask & everything
    if kind == p4i.MatchField.LPM:
        length = prefix_length(one, value)
        if not length:
            return None
        kept = everything >> (one.bitwidth - length) << (one.bitwidth - length)
        match.lpm.value, match.lpm.prefix_len = binary(value.value & kept), length
    elif kind == p4i.MatchField.TERNARY:
        if not mask:
            return None
        match.ternary.value, match.ternary.mask = binary(value.value & mask), binary(mask)
    elif kind == p4i.MatchField.RANGE:
        low, high = value.value, value.value if value.high is None else value.high
        if (low, high) == (0, everything):
            return None
        match.range.low, match.range.high = binary(low), binary(high)
    elif kind == p4i.MatchField.OPTIONAL:
        if value.mask == 0:
            return None
        match.optional.value = binary(value.value)
    else:
        unknown(one)
    return match


def prefix_length(one: Any, value: Value) -> int:
    """Bits of the prefix: as it is written, or those of the digits before the first '*'."""
    if value.length is not None:
        length = value.length
    elif value.mask is None:
        length = one.bitwidth
    else:
        length = value.mask.bit_count()
        if value.mask != ((1 << length) - 1) << (value.digits - length):
            fail(f"field {one.name} is a prefix, so '*' can only be at its end")
    if length > one.bitwidth:
        fail(f"field {one.name} has {one.bitwidth} bits, and its prefix {length}")
    return length


def unknown(one: Any) -> NoReturn:
    fail(f"field {one.name} has a match kind that cannot be written: {one.other_match_type or one.match_type}")
