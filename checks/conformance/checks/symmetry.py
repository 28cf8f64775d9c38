# SPDX-License-Identifier: Apache-2.0
"""Section 8.2, "Read-Write Symmetry": each form in which an entity may be written is read as it was written.

It also is after a client has written back what it read.

A form that the specification leaves to the server, and the server refuses as UNIMPLEMENTED, is skipped.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.checks.digests import value_set
from accesspoint.checks.conformance.checks.externs_state import counter, meter, register
from accesspoint.checks.conformance.checks.profiles import call, entry, group, member, part, shot, with_members
from accesspoint.checks.conformance.checks.replication import groups, sessions
from accesspoint.checks.conformance.checks.tables import exact_entry, say
from accesspoint.checks.conformance.fixture import Fixture, between, entity, lpm, numbers, optional, ternary
from accesspoint.checks.conformance.suite import NotApplicable, check, fail
from accesspoint.checks.harness.p4runtime import binary, exact, name_of

METER = {"cir": 1000, "cburst": 10, "pir": 2000, "pburst": 20}
COUNT = {"packet_count": 5, "byte_count": 500}
Form = tuple[str, Any, Any]
"""Name, message to write, message that reads it."""


def wrapped(message: Any) -> Any:
    """The message as it is read: groups and sessions are inside an entry."""
    return next(iter(entity(message).values()))


def symmetric(fixture: Fixture, forms: Iterable[Form], operation: str = "INSERT") -> None:
    """Write, read, write back and read each form. Raises NotApplicable if the server implements none of them."""
    tried = 0
    for form, message, key in forms:
        code = fixture.outcome(operation, message)
        if code == rpc_code.UNIMPLEMENTED:
            continue
        if code != rpc_code.OK:
            fail(f"{operation} of {form} is refused: {name_of(code)}")
        tried += 1
        wanted = [wrapped(message)]
        fixture.found(key, wanted, form)
        (read,) = fixture.read(key)
        inner = read.WhichOneof("type") if isinstance(read, p4r.PacketReplicationEngineEntry) else None
        fixture.modify(getattr(read, inner) if inner else read)
        fixture.found(key, wanted, f"{form}, written back as it was read")
        if operation == "INSERT":
            fixture.delete(message)
    if not tried:
        raise NotApplicable("the server has none of these (UNIMPLEMENTED)")


def reads_entry(message: p4r.TableEntry) -> p4r.TableEntry:
    """The request for an entry with all that belongs to it."""
    key = p4r.TableEntry(table_id=message.table_id, match=message.match, priority=message.priority)
    key.is_default_action = message.is_default_action
    for name in ("counter_data", "meter_config"):
        if message.HasField(name):
            getattr(key, name).SetInParent()
    return key


def entries(messages: dict[str, p4r.TableEntry]) -> Iterator[Form]:
    return ((name, message, reads_entry(message)) for name, message in messages.items())


@check("8.2", "symmetry: table entries of every match kind, whole and with fields left out")
def match_forms(fixture: Fixture) -> None:
    ternaries = (ternary(1, 0x0A000000, 0xFF000000), exact(2, 7))
    mixed = (lpm(1, 0x0A000000, 8), ternary(2, 0x0800, 0x0F00), exact(3, 1))
    symmetric(
        fixture,
        entries(
            {
                "exact": exact_entry(fixture, 1, 2),
                "exact, 0": exact_entry(fixture, 0, 0),
                "LPM": say(fixture, "lpm_table", 1, lpm(1, 0x0A000000, 8)),
                "LPM of all bits": say(fixture, "lpm_table", 1, lpm(1, 1, 32)),
                "LPM left out": say(fixture, "lpm_table", 1),
                "ternary": say(fixture, "ternary_table", 1, *ternaries, priority=5),
                "ternary of one value": say(
                    fixture, "ternary_table", 1, ternary(1, 9, 2**32 - 1), exact(2, 7), priority=1
                ),
                "ternary left out": say(fixture, "ternary_table", 1, exact(2, 7), priority=2**31 - 1),
                "range": say(fixture, "range_table", 1, between(1, 1, 255), priority=2),
                "range of one value": say(fixture, "range_table", 1, between(1, 9, 9), priority=2),
                "range left out": say(fixture, "range_table", 1, priority=2),
                "optional": say(fixture, "optional_table", 1, optional(1, 3), optional(2, 4), priority=9),
                "optional left out": say(fixture, "optional_table", 1, optional(2, 4), priority=9),
                "several kinds": say(fixture, "mixed_table", 1, *mixed, priority=3),
                "several kinds, some left out": say(fixture, "mixed_table", 1, exact(3, 1), priority=3),
            }
        ),
    )


@check("8.2", "symmetry: table entries with each action, and with metadata, a timeout, a meter and a counter")
def entry_forms(fixture: Fixture) -> None:
    match = [lpm(1, 0x0A000000, 8)]
    symmetric(
        fixture,
        entries(
            {
                "no parameter": fixture.entry("lpm_table", match, ("NoAction",)),
                "two parameters": fixture.entry("lpm_table", match, ("say_both", 2**32 - 1, 0)),
                "parameters of 4 and 12 bits": fixture.entry("narrow_table", [exact(1, 0xFFF)], ("small", 15, 0x800)),
                "controller_metadata": exact_entry(fixture, 1, controller_metadata=2**64 - 1),
                "metadata": exact_entry(fixture, 1, metadata=b"note\0\xff"),
                "an idle timeout": exact_entry(fixture, 1, idle_timeout_ns=2**62),
                "a meter": exact_entry(fixture, 1, meter_config=METER),
                "a meter of rate 0": exact_entry(fixture, 1, meter_config={}),
                "a counter": exact_entry(fixture, 1, counter_data=COUNT),
                "all of them": exact_entry(
                    fixture, 1, metadata=b"x", idle_timeout_ns=2**62, meter_config=METER, counter_data=COUNT
                ),
            }
        ),
    )


@check("8.2", "symmetry: default entries with each action and metadata")
def default_forms(fixture: Fixture) -> None:
    symmetric(
        fixture,
        entries(
            {
                "one parameter": fixture.entry("ternary_table", action=("say", 8), is_default_action=True),
                "two parameters": fixture.entry("ternary_table", action=("say_both", 8, 9), is_default_action=True),
                "no parameter": fixture.entry("ternary_table", action=("NoAction",), is_default_action=True),
                "no key": fixture.entry("keyless_table", action=("say", 8), is_default_action=True),
                "metadata": fixture.entry("ternary_table", action=("say", 8), is_default_action=True, metadata=b"x"),
            }
        ),
        "MODIFY",
    )


def reads_member(message: p4r.ActionProfileMember) -> p4r.ActionProfileMember:
    return p4r.ActionProfileMember(action_profile_id=message.action_profile_id, member_id=message.member_id)


def reads_group(message: p4r.ActionProfileGroup) -> p4r.ActionProfileGroup:
    return p4r.ActionProfileGroup(action_profile_id=message.action_profile_id, group_id=message.group_id)


@check("8.2", "symmetry: members of profiles and selectors, and entries that name them")
def member_forms(fixture: Fixture) -> None:
    both = member(fixture, 2**32 - 1, 0)
    both.action.CopyFrom(call(fixture, 7, 255))
    members = {"a member": member(fixture, 1, 5, "profile"), "a selector's member of the highest id": both}
    symmetric(fixture, ((name, message, reads_member(message)) for name, message in members.items()))
    fixture.insert(member(fixture, 1, 5, "profile"))
    named = {"an entry with a member": entry(fixture, "profile_table", 1, action_profile_member_id=1)}
    symmetric(fixture, entries(named))


@check("8.2", "symmetry: groups with every weight, size and way to watch a port, and entries that name them")
def group_forms(fixture: Fixture) -> None:
    with_members(fixture)
    port = max(fixture.place.ports, default=0)
    forms = {
        "a group": group(fixture, 1, {1: 1, 2: 3}),
        "a group without members": group(fixture, 2, {}),
        "a group of the largest weight": group(fixture, 3, {1: 8}),
    }
    if port:
        forms["watch_port"] = group(fixture, 5, {1: 1, 2: 1}, watch_port=binary(port))
        forms["watch"] = group(fixture, 6, {1: 1, 2: 1}, watch=port)
    symmetric(fixture, ((name, message, reads_group(message)) for name, message in forms.items()))
    fixture.insert(group(fixture, 1, {1: 1}))
    symmetric(
        fixture, entries({"an entry with a group": entry(fixture, "selector_table", 1, action_profile_group_id=1)})
    )


@check("8.2", "symmetry: one-shot groups, also with the same action twice, watched ports, a mode and a size")
def one_shot_forms(fixture: Fixture) -> None:
    port = max(fixture.place.ports, default=0)
    forms = {
        "one action": shot(fixture, 1, part(fixture, 1)),
        "the same action twice": shot(fixture, 1, part(fixture, 1), part(fixture, 1), part(fixture, 2, 3)),
        "no action": shot(fixture, 1),
    }
    if port:
        forms["watch_port"] = shot(fixture, 1, part(fixture, 1, watch_port=binary(port)), part(fixture, 2))
        forms["watch"] = shot(fixture, 1, part(fixture, 1, watch=port))
    since_1_5 = ("action_selection_mode", "size_semantics") if numbers(fixture.version) >= (1, 5) else ()
    for name in since_1_5:
        for number in (1, 2):
            made = shot(fixture, 1, part(fixture, 1))
            setattr(made.action.action_profile_action_set, name, number)
            forms[f"{name} {number}"] = made
    symmetric(fixture, entries(forms))


def replica_forms(fixture: Fixture) -> dict[str, list[p4r.Replica]]:
    """Replicas in every form of their ports. A backup, and a port as bytes, are P4Runtime 1.5's and 1.4's."""
    home = fixture.home
    forms = {
        "egress_port": [p4r.Replica(egress_port=home, instance=1)],
        "egress_port, several": [p4r.Replica(egress_port=home, instance=one) for one in (0, 1, 2**16 - 1)],
        "no replica": [],
    }
    if fixture.replica(home).port:
        mixed = [p4r.Replica(egress_port=home, instance=1), p4r.Replica(port=binary(home), instance=2)]
        forms |= {"port": [p4r.Replica(port=binary(home), instance=1)], "both forms of a port": mixed}
    return forms


@check("8.2", "symmetry: multicast groups with every form of replica, and metadata")
def multicast_forms(fixture: Fixture) -> None:
    made = {
        name: p4r.MulticastGroupEntry(multicast_group_id=9, replicas=replicas)
        for name, replicas in replica_forms(fixture).items()
    }
    symmetric(fixture, ((name, message, groups(9)) for name, message in made.items()))


@check("8.2", "symmetry: clone sessions with every form of replica, a class of service and a length")
def session_forms(fixture: Fixture) -> None:
    forms = replica_forms(fixture)
    made = {name: p4r.CloneSessionEntry(session_id=9, replicas=replicas) for name, replicas in forms.items()}
    one = forms["egress_port"]
    made["class_of_service"] = p4r.CloneSessionEntry(session_id=9, replicas=one, class_of_service=1)
    made["packet_length_bytes"] = p4r.CloneSessionEntry(session_id=9, replicas=one, packet_length_bytes=100)
    symmetric(fixture, ((name, message, sessions(9)) for name, message in made.items()))


def reads_cell(message: Any) -> Any:
    """The request for a cell of a counter, meter or register."""
    key = type(message)(index=message.index)
    name = next(field.name for field in message.DESCRIPTOR.fields if field.name.endswith("_id"))
    setattr(key, name, getattr(message, name))
    return key


@check("8.2", "symmetry: cells of counters, meters and registers")
def cell_forms(fixture: Fixture) -> None:
    cells: dict[str, Callable[[], Any]] = {
        "a counter": lambda: counter(fixture, 1, packet_count=2**40, byte_count=2**50),
        "a counter of packets": lambda: counter(fixture, 7, "others", packet_count=3),
        "a meter": lambda: meter(fixture, 1, **METER),
        "a meter without a config": lambda: meter(fixture, 2),
        "a register": lambda: register(fixture, 1, b"\xff\xff\xff\xff"),
        "a register of 0": lambda: register(fixture, 7, b"\0"),
        "a signed register": lambda: register(fixture, 1, b"\x80", "levels"),
    }
    symmetric(fixture, ((name, make(), reads_cell(make())) for name, make in cells.items()), "MODIFY")


@check("8.2", "symmetry: the counter and the meter of an entry and of a default entry")
def direct_forms(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1))
    one = exact_entry(fixture, 1)
    key = p4r.TableEntry(table_id=one.table_id, match=one.match)
    default = p4r.TableEntry(table_id=one.table_id, is_default_action=True)
    forms: list[Form] = []
    for name, named in (("an entry", key), ("a default entry", default)):
        counter_key, meter_key = p4r.DirectCounterEntry(table_entry=named), p4r.DirectMeterEntry(table_entry=named)
        forms.append((f"the counter of {name}", p4r.DirectCounterEntry(table_entry=named, data=COUNT), counter_key))
        forms.append((f"the meter of {name}", p4r.DirectMeterEntry(table_entry=named, config=METER), meter_key))
        forms.append((f"the meter of {name}, without a config", meter_key, meter_key))
    symmetric(fixture, forms, "MODIFY")


@check("8.2", "symmetry: value sets, empty and full")
def value_set_forms(fixture: Fixture) -> None:
    sets = {"members": value_set(fixture, (0, 255)), "no member": value_set(fixture, ())}
    forms = ((name, one, p4r.ValueSetEntry(value_set_id=one.value_set_id)) for name, one in sets.items())
    symmetric(fixture, forms, "MODIFY")


@check("8.2", "symmetry: digests with each part of their config")
def digest_forms(fixture: Fixture) -> None:
    number = fixture.program.id("digests", "source_t")
    configs: dict[str, dict[str, int]] = {
        "an empty config": {},
        "max_timeout_ns": {"max_timeout_ns": 10**9},
        "max_list_size": {"max_list_size": 100},
        "ack_timeout_ns": {"ack_timeout_ns": 10**9},
        "all of them": {"max_timeout_ns": 1, "max_list_size": 1, "ack_timeout_ns": 1},
    }
    made = {name: p4r.DigestEntry(digest_id=number, config=config) for name, config in configs.items()}
    symmetric(fixture, ((name, one, p4r.DigestEntry(digest_id=number)) for name, one in made.items()))
