# SPDX-License-Identifier: Apache-2.0
"""Section 9.1: entries of tables, what they match and what they do."""

from typing import Any

from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.fixture import Fixture, between, lpm, optional, ternary
from accesspoint.checks.conformance.suite import check, expect
from accesspoint.checks.harness.p4runtime import binary, exact

INVALID, DENIED = rpc_code.INVALID_ARGUMENT, rpc_code.PERMISSION_DENIED
FULL, EXISTS, MISSING = rpc_code.RESOURCE_EXHAUSTED, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND
EXACT, LPM, TERNARY, RANGE, OPTIONAL, MIXED, CONSTANT, _, FIXED, KEYLESS, NARROW, PORT = range(1, 13)
MANY = 25


def exact_entry(fixture: Fixture, a: int, b: int = 0, value: int = 1, **fields: Any) -> p4r.TableEntry:
    return fixture.entry("exact_table", [exact(1, a), exact(2, b)], ("count_and_say", value), **fields)


def say(fixture: Fixture, table: str, value: int, *match: p4r.FieldMatch, **fields: Any) -> p4r.TableEntry:
    return fixture.entry(table, list(match), ("say", value), **fields)


def wrong(fixture: Fixture, table: str, match: list[p4r.FieldMatch], why: str, priority: int = 0) -> None:
    """Check that an entry with that match is refused, and is not there."""
    action = ("count_and_say", 1) if table == "exact_table" else ("say", 1)
    fixture.refused("INSERT", fixture.entry(table, match, action, priority=priority), INVALID, why=why)
    fixture.found(fixture.entry(table), [], f"after {why}")


@check("9.1", "EXACT: a packet hits the entry of its key and no other")
def exact_match(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1, 2, 12), exact_entry(fixture, 2, 1, 21))
    found = {key: fixture.ask(EXACT, *key).value for key in ((1, 2), (2, 1), (1, 1), (2, 2))}
    expect(found, {(1, 2): 12, (2, 1): 21, (1, 1): 0, (2, 2): 0}, "answers by key")


@check("9.1", "a table of 70 match fields and an action of 71 parameters")
def many_fields(fixture: Fixture) -> None:
    table = next(one for one in fixture.program.p4info.tables if one.preamble.alias == "many_table")
    match = [exact(one.id, 3) for one in table.match_fields]
    expect(len(match), 70, "match fields")
    entry = fixture.entry("many_table", match, ("sum", *([1] * 71)))
    fixture.insert(entry)
    fixture.found(fixture.entry("many_table"), [entry], "the entry")
    expect([fixture.ask(MANY, a).value for a in (3, 4)], [71, 0], "answers to 3 and 4")
    lacks = fixture.entry("many_table", match[:-1], ("sum", *([1] * 71)))
    fixture.refused("INSERT", lacks, INVALID, why="an entry without field 70")
    twice = fixture.entry("many_table", [*match, match[-1]], ("sum", *([1] * 71)))
    fixture.refused("INSERT", twice, INVALID, why="an entry with field 70 twice")


@check("9.1", "LPM: the longest prefix wins, in any order of insertion")
def longest_prefix(fixture: Fixture) -> None:
    fixture.insert(
        say(fixture, "lpm_table", 16, lpm(1, 0x0A010000, 16)), say(fixture, "lpm_table", 32, lpm(1, 0x0A010203, 32))
    )
    fixture.insert(say(fixture, "lpm_table", 8, lpm(1, 0x0A000000, 8)), say(fixture, "lpm_table", 9))
    fixture.insert(say(fixture, "lpm_table", 1, lpm(1, 0x80000000, 1)))
    keys = {0x0A010203: 32, 0x0A010204: 16, 0x0A020304: 8, 0x0B000000: 9, 0xFFFFFFFF: 1}
    expect({key: fixture.ask(LPM, c=key).value for key in keys}, keys, "answers by key")


@check("9.1", "TERNARY: the highest priority wins, in any order of insertion")
def highest_priority(fixture: Fixture) -> None:
    table = "ternary_table"
    fixture.insert(say(fixture, table, 2, ternary(1, 0x50, 0xF0), exact(2, 1), priority=20))
    fixture.insert(say(fixture, table, 3, ternary(1, 0x55, 0xFF), exact(2, 1), priority=30))
    fixture.insert(say(fixture, table, 1, exact(2, 1), priority=10))
    expect([fixture.ask(TERNARY, 1, 0, c).value for c in (0x55, 0x54, 0x44)], [3, 2, 1], "answers of 0x55, 0x54, 0x44")
    expect(fixture.ask(TERNARY, 2, 0, 0x55).value, 7, "the default action's answer, for another exact key")


@check("9.1", "RANGE: both bounds belong to it")
def bounds(fixture: Fixture) -> None:
    fixture.insert(say(fixture, "range_table", 1, between(1, 1000, 2000), priority=1))
    fixture.insert(say(fixture, "range_table", 2, between(1, 1500, 1500), priority=2))
    keys = {999: 0, 1000: 1, 1500: 2, 1501: 1, 2000: 1, 2001: 0}
    expect({key: fixture.ask(RANGE, b=key).value for key in keys}, keys, "answers by key")


@check("9.1", "OPTIONAL: a field that is left out matches everything")
def left_out(fixture: Fixture) -> None:
    table = "optional_table"
    fixture.insert(
        say(fixture, table, 1, optional(1, 5), optional(2, 6), priority=4),
        say(fixture, table, 2, optional(1, 5), priority=3),
        say(fixture, table, 3, optional(2, 6), priority=2),
        say(fixture, table, 4, priority=1),
    )
    keys = {(6, 5): 1, (7, 5): 2, (6, 4): 3, (7, 4): 4}
    expect({key: fixture.ask(OPTIONAL, *key).value for key in keys}, keys, "answers by key")


@check("9.1", "LPM, TERNARY and EXACT in one key: the priority decides")
def mixed(fixture: Fixture) -> None:
    fixture.insert(
        say(fixture, "mixed_table", 1, lpm(1, 0x0A000000, 8), exact(3, 1), priority=5),
        say(fixture, "mixed_table", 2, lpm(1, 0x0A010000, 16), exact(3, 1), priority=4),
        say(fixture, "mixed_table", 3, ternary(2, 1, 1), exact(3, 1), priority=6),
    )
    found = [fixture.ask(MIXED, 1, b, c).value for b, c in ((0, 0x0A010000), (1, 0x0A010000), (0, 0x0B000000))]
    expect(found, [1, 3, 0], "answers")


@check("9.1", "INSERT of an entry that is there is ALREADY_EXISTS and changes nothing")
def insert_twice(fixture: Fixture) -> None:
    entry = exact_entry(fixture, 1, 2, 12)
    fixture.insert(entry)
    fixture.refused("INSERT", exact_entry(fixture, 1, 2, 13), EXISTS, why="an entry that is there")
    fixture.found(fixture.entry("exact_table"), [entry], "the entry")


@check("9.1", "MODIFY changes the action; of an entry that is not there it is NOT_FOUND")
def modify(fixture: Fixture) -> None:
    fixture.refused("MODIFY", exact_entry(fixture, 1), MISSING, why="an entry that is not there")
    fixture.insert(exact_entry(fixture, 1, value=5))
    fixture.modify(exact_entry(fixture, 1, value=6))
    expect(fixture.ask(EXACT, 1).value, 6, "the modified entry's answer")


@check("9.1", "DELETE looks at the key alone; of an entry that is not there it is NOT_FOUND")
def delete(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1))
    nonsense = p4r.TableEntry(table_id=exact_entry(fixture, 1).table_id, match=exact_entry(fixture, 1).match)
    nonsense.action.action.action_id = 12345
    fixture.delete(nonsense)
    expect(fixture.ask(EXACT, 1).value, 0, "the answer after DELETE")
    fixture.refused("DELETE", nonsense, MISSING, why="an entry that is not there")


@check("9.1", "the same match with another priority is another entry")
def priority_is_key(fixture: Fixture) -> None:
    low = say(fixture, "ternary_table", 1, ternary(1, 1, 1), exact(2, 1), priority=1)
    high = say(fixture, "ternary_table", 2, ternary(1, 1, 1), exact(2, 1), priority=2)
    fixture.insert(low, high)
    expect(fixture.ask(TERNARY, 1, 0, 1).value, 2, "the answer of both")
    fixture.delete(high)
    expect(fixture.ask(TERNARY, 1, 0, 1).value, 1, "the answer of the lower one")


@check("9.1", "a table with TERNARY, RANGE or OPTIONAL fields needs a priority")
def needs_priority(fixture: Fixture) -> None:
    wrong(fixture, "ternary_table", [ternary(1, 1, 1), exact(2, 1)], "a ternary entry of priority 0")
    wrong(fixture, "range_table", [between(1, 1, 2)], "a range entry of priority 0")
    wrong(fixture, "optional_table", [optional(1, 1)], "an optional entry of priority 0")
    wrong(fixture, "ternary_table", [ternary(1, 1, 1), exact(2, 1)], "a ternary entry of priority -1", -1)


@check("9.1", "a table without such fields takes none")
def takes_no_priority(fixture: Fixture) -> None:
    wrong(fixture, "exact_table", [exact(1, 1), exact(2, 1)], "an exact entry with a priority", 5)
    wrong(fixture, "lpm_table", [lpm(1, 0x80000000, 1)], "an lpm entry with a priority", 5)


@check("9.1", "a full table answers RESOURCE_EXHAUSTED, and takes as many as the P4Info says")
def full(fixture: Fixture) -> None:
    for number in range(4):
        fixture.insert(exact_entry(fixture, number))
    fixture.refused("INSERT", exact_entry(fixture, 4), FULL, why="a fifth entry in a table of four")
    fixture.delete(exact_entry(fixture, 0))
    fixture.insert(exact_entry(fixture, 4))


@check("9.1", "a table without a key has no entries")
def keyless(fixture: Fixture) -> None:
    fixture.refused("INSERT", fixture.entry("keyless_table", action=("say", 1)), INVALID, why="an entry without a key")


@check("9.1", "is_const cannot be written", since="1.4.0")
def is_const(fixture: Fixture) -> None:
    fixture.refused("INSERT", exact_entry(fixture, 1, is_const=True), INVALID, why="an entry with is_const")


@check("9.1", "metadata is kept and returned, and MODIFY replaces it")
def metadata(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1, metadata=b"\0first\xff"))
    fixture.found(fixture.entry("exact_table"), [exact_entry(fixture, 1, metadata=b"\0first\xff")], "the entry")
    fixture.modify(exact_entry(fixture, 1, metadata=b"second"))
    fixture.found(fixture.entry("exact_table"), [exact_entry(fixture, 1, metadata=b"second")], "the modified entry")


@check("9.1", "a table id that is unknown is refused")
def unknown_table(fixture: Fixture) -> None:
    entry = exact_entry(fixture, 1)
    entry.table_id = 0x02FFFFFF
    fixture.refused("INSERT", entry, INVALID, MISSING, why="an entry of an unknown table")


@check("9.1.1", "EXACT fields cannot be left out")
def exact_left_out(fixture: Fixture) -> None:
    wrong(fixture, "exact_table", [exact(1, 1)], "an entry without an exact field")
    wrong(fixture, "ternary_table", [ternary(1, 1, 1)], "a ternary entry without its exact field", 1)


@check("9.1.1", "unknown fields, fields twice and fields of another kind are refused")
def wrong_fields(fixture: Fixture) -> None:
    wrong(fixture, "exact_table", [exact(1, 1), exact(2, 1), exact(7, 1)], "an entry with an unknown field")
    wrong(fixture, "exact_table", [exact(1, 1), exact(1, 2), exact(2, 1)], "an entry with a field twice")
    wrong(fixture, "exact_table", [ternary(1, 1, 1), exact(2, 1)], "an exact field given as ternary")
    wrong(fixture, "exact_table", [p4r.FieldMatch(field_id=1), exact(2, 1)], "a field without a kind")


@check("9.1.1", "LPM: bits behind the prefix, no prefix and a long prefix are refused")
def wrong_lpm(fixture: Fixture) -> None:
    wrong(fixture, "lpm_table", [lpm(1, 0x0A000001, 8)], "an lpm value with bits behind its prefix")
    wrong(fixture, "lpm_table", [lpm(1, 0, 0)], "an lpm field of length 0 (don't care must be left out)")
    wrong(fixture, "lpm_table", [lpm(1, 1, 33)], "a prefix of 33 bits in 32")
    wrong(fixture, "lpm_table", [lpm(1, 0, -1)], "a prefix of -1 bits")


@check("9.1.1", "TERNARY: bits outside of the mask and a mask of zeros are refused")
def wrong_ternary(fixture: Fixture) -> None:
    wrong(fixture, "ternary_table", [ternary(1, 3, 1), exact(2, 1)], "a value with bits outside of its mask", 1)
    wrong(fixture, "ternary_table", [ternary(1, 0, 0), exact(2, 1)], "a mask of zeros (don't care must be left out)", 1)


@check("9.1.1", "RANGE: low above high, and the whole range, are refused")
def wrong_range(fixture: Fixture) -> None:
    wrong(fixture, "range_table", [between(1, 2, 1)], "a range from 2 to 1", 1)
    wrong(fixture, "range_table", [between(1, 0, 0xFFFF)], "the whole range (don't care must be left out)", 1)


@check("9.1.2", "INSERT needs an action")
def no_action(fixture: Fixture) -> None:
    fixture.refused(
        "INSERT", fixture.entry("exact_table", [exact(1, 1), exact(2, 1)]), INVALID, why="an entry without action"
    )


@check("9.1.2", "MODIFY without an action keeps it")
def keeps_action(fixture: Fixture) -> None:
    bare = fixture.entry("exact_table", [exact(1, 1), exact(2, 0)])
    fixture.insert(exact_entry(fixture, 1, value=5))
    fixture.modify(bare)
    expect(fixture.ask(EXACT, 1).value, 5, "the entry's answer")
    fixture.modify(exact_entry(fixture, 1, value=6), bare)
    expect(fixture.ask(EXACT, 1).value, 6, "the answer of an action from the same batch")


@check("9.1.2", "an action that the table does not have is INVALID_ARGUMENT")
def foreign_action(fixture: Fixture) -> None:
    entry = fixture.entry("exact_table", [exact(1, 1), exact(2, 1)], ("send_to", 1))
    fixture.refused("INSERT", entry, INVALID, why="an entry with another table's action")
    entry.action.action.action_id = 0x01FFFFFF
    fixture.refused("INSERT", entry, INVALID, why="an entry with an unknown action")


@check("9.1.2", "parameters that are missing, unknown or twice are INVALID_ARGUMENT")
def wrong_parameters(fixture: Fixture) -> None:
    match = [exact(1, 1)]
    fixture.refused(
        "INSERT", fixture.entry("narrow_table", match, ("small", 1)), INVALID, why="an entry with one of two parameters"
    )
    entry = fixture.entry("narrow_table", match, ("small", 1, 2))
    entry.action.action.params.add(param_id=3, value=b"\1")
    fixture.refused("INSERT", entry, INVALID, why="an entry with a parameter too many")
    entry = fixture.entry("narrow_table", match, ("small", 1, 2))
    entry.action.action.params.add(param_id=1, value=b"\1")
    fixture.refused("INSERT", entry, INVALID, why="an entry with a parameter twice")


@check("9.1.2", "an action that is for defaults only, or for entries only, is PERMISSION_DENIED elsewhere")
def scopes(fixture: Fixture) -> None:
    entry = fixture.entry("exact_table", [exact(1, 1), exact(2, 1)], ("NoAction",))
    fixture.refused("INSERT", entry, DENIED, why="an entry with an action for defaults only")
    default = fixture.entry("lpm_table", action=("say_both", 1, 1), is_default_action=True)
    fixture.refused("MODIFY", default, DENIED, why="a default entry with an action for entries only")


@check("9.1.2", "a member id is no action of a direct table, and an action none of an indirect one")
def wrong_kind_of_action(fixture: Fixture) -> None:
    entry = fixture.entry("fixed_default_table", [exact(1, 1)], None)
    entry.action.action_profile_member_id = 1
    fixture.refused("INSERT", entry, INVALID, why="an entry of a direct table with a member")
    entry = fixture.entry("profile_table", [exact(1, 1)], ("say", 1))
    fixture.refused("INSERT", entry, INVALID, why="an entry of an indirect table with an action")
    entry = fixture.entry("profile_table", [exact(1, 1)], None)
    entry.action.action_profile_group_id = 1
    fixture.refused("INSERT", entry, INVALID, why="an entry of a table without a selector with a group")


@check("9.1.2", "an entry's action takes its parameters to where they belong")
def parameters(fixture: Fixture) -> None:
    fixture.insert(fixture.entry("narrow_table", [exact(1, 0x123)], ("small", 0xA, 0xBCD)))
    expect(fixture.ask(NARROW, b=0x123).value, 0xABCD, "the answer of parameters 0xA and 0xBCD")


@check("9.1.3", "the default entry is what the program says, and MODIFY changes it")
def default_entry(fixture: Fixture) -> None:
    expect(fixture.ask(TERNARY, 1).value, 7, "the answer of the program's default entry")
    fixture.modify(fixture.entry("ternary_table", action=("say_both", 8, 9), is_default_action=True))
    answer = fixture.ask(TERNARY, 1)
    expect((answer.value, answer.hit), (8, 9), "the answer of the modified default entry")


@check("9.1.3", "MODIFY without an action resets the default entry")
def reset_default(fixture: Fixture) -> None:
    fixture.modify(fixture.entry("ternary_table", action=("say", 8), is_default_action=True))
    fixture.modify(fixture.entry("ternary_table", is_default_action=True))
    expect(fixture.ask(TERNARY, 1).value, 7, "the answer of the default entry after its reset")


@check("9.1.3", "the default entry is neither inserted nor deleted")
def default_insert(fixture: Fixture) -> None:
    default = fixture.entry("ternary_table", action=("say", 8), is_default_action=True)
    fixture.refused("INSERT", default, INVALID, why="a default entry")
    fixture.refused("DELETE", default, INVALID, why="a default entry")


@check("9.1.3", "the default entry has neither match nor priority")
def default_match(fixture: Fixture) -> None:
    default = fixture.entry("lpm_table", [lpm(1, 0x80000000, 1)], ("say", 8), is_default_action=True)
    fixture.refused("MODIFY", default, INVALID, why="a default entry with a match")
    default = fixture.entry("ternary_table", action=("say", 8), is_default_action=True, priority=1)
    fixture.refused("MODIFY", default, INVALID, why="a default entry with a priority")


@check("9.1.3", "a constant default entry is PERMISSION_DENIED")
def constant_default(fixture: Fixture) -> None:
    default = fixture.entry("fixed_default_table", action=("say", 8), is_default_action=True)
    fixture.refused("MODIFY", default, DENIED, INVALID, why="a constant default entry")


@check("9.1.3", "a table without a key runs its default entry")
def keyless_default(fixture: Fixture) -> None:
    fixture.modify(fixture.entry("keyless_table", action=("say", 5), is_default_action=True))
    expect(fixture.ask(KEYLESS).value, 5, "the answer")


@check("9.1.3", "the default entry is read when it is asked for, and only then")
def default_read(fixture: Fixture) -> None:
    default = fixture.entry("ternary_table", action=("say", 8), is_default_action=True)
    fixture.modify(default)
    fixture.found(fixture.entry("ternary_table"), [], "entries of a table without entries")
    (found,) = fixture.read(fixture.entry("ternary_table", is_default_action=True))
    expect((found.is_default_action, found.action), (True, default.action), "the default entry")
    everywhere = {one.table_id for one in fixture.read(p4r.TableEntry(is_default_action=True))}
    expect(default.table_id in everywhere, True, "the default entry is read with those of all tables")


@check("9.1.4", "constant entries match in their order")
def constant_entries(fixture: Fixture) -> None:
    keys = {0x0800: 100, 0x8800: 200, 0x0801: 0}
    expect({key: fixture.ask(CONSTANT, b=key).value for key in keys}, keys, "answers by key")


@check("9.1.4", "constant entries are PERMISSION_DENIED, but for their direct resources")
def constant_table(fixture: Fixture) -> None:
    entries = fixture.read(fixture.entry("constant_table"))
    expect(len(entries), 2, "constant entries that are read")
    for operation in ("INSERT", "MODIFY", "DELETE"):
        entry = p4r.TableEntry(table_id=entries[0].table_id, match=entries[0].match, priority=entries[0].priority)
        entry.action.CopyFrom(entries[0].action)
        fixture.refused(operation, entry, DENIED, why="a constant entry")
    new = fixture.entry("constant_table", [ternary(1, 1, 1)], ("count_constant", 1), priority=1)
    fixture.refused("INSERT", new, DENIED, why="an entry into a constant table")
    entry.ClearField("action")
    entry.counter_data.packet_count = 5
    fixture.modify(entry)
    entry.ClearField("counter_data")
    (found,) = fixture.read(p4r.DirectCounterEntry(table_entry=entry))
    expect(found.data.packet_count, 5, "packets that were written to a constant entry")


@check("9.1.4", "constant entries are read with match, action and priority")
def constant_read(fixture: Fixture) -> None:
    found = {one.match[0].ternary.value: one for one in fixture.read(fixture.entry("constant_table"))}
    expect(set(found), {b"\x08\0", b"\x80\0"}, "values of the constant entries")
    first, second = found[b"\x08\0"], found[b"\x80\0"]
    expect(first.match[0].ternary.mask, b"\xff\xff", "the first entry's mask")
    expect(first.action.action.params[0].value, binary(100), "the first entry's parameter")
    expect(first.priority > second.priority > 0, True, "the first entry has the higher priority")


@check("9.1.4", "constant entries are read with is_const, others without", since="1.4.0")
def is_const_read(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1))
    found = [one.is_const for table in ("constant_table", "exact_table") for one in fixture.read(fixture.entry(table))]
    expect(found, [True, True, False], "is_const of two constant entries and another one")


@check("9.1.5", "initial entries are there, can be read, modified and deleted", "initial")
def initial_entries(fixture: Fixture) -> None:
    expect([fixture.ask(0, a).value for a in (1, 2, 3)], [11, 22, 0], "answers of keys 1, 2, 3")
    expect(len(fixture.read(fixture.entry("initial_table"))), 2, "initial entries that are read")
    fixture.modify(say(fixture, "initial_table", 12, exact(1, 1)))
    fixture.delete(say(fixture, "initial_table", 0, exact(1, 2)))
    expect([fixture.ask(0, a).value for a in (1, 2)], [12, 0], "answers after MODIFY and DELETE")
    fixture.insert(say(fixture, "initial_table", 33, exact(1, 3)))
    expect(fixture.ask(0, 3).value, 33, "the answer of an entry in addition to them")
    fixture.load("initial")
    expect([fixture.ask(0, a).value for a in (1, 2, 3)], [11, 22, 0], "answers after VERIFY_AND_COMMIT")


@check("9.1.6", "table_id, priority, action, metadata and match select what is read")
def filters(fixture: Fixture) -> None:
    one = say(fixture, "ternary_table", 1, ternary(1, 1, 1), exact(2, 1), priority=1, metadata=b"one")
    two = say(fixture, "ternary_table", 2, ternary(1, 1, 1), exact(2, 1), priority=2)
    three = fixture.entry("ternary_table", [exact(2, 2)], ("say_both", 1, 1), priority=2)
    fixture.insert(one, two, three)
    table = one.table_id
    fixture.found(p4r.TableEntry(table_id=table), [one, two, three], "by table_id")
    fixture.found(p4r.TableEntry(table_id=table, priority=2), [two, three], "by priority")
    fixture.found(p4r.TableEntry(table_id=table, metadata=b"one"), [one], "by metadata")
    fixture.found(p4r.TableEntry(table_id=table, match=two.match, priority=2), [two], "by match and priority")
    fixture.found(p4r.TableEntry(table_id=table, match=two.match), [one, two], "by match")
    fixture.found(p4r.TableEntry(table_id=table, match=three.match, priority=1), [], "by what no entry has")
    by_action = p4r.TableEntry(table_id=table)
    by_action.action.action.action_id = three.action.action.action_id
    fixture.found(by_action, [three], "by action")


@check("9.1.6", "table_id 0 reads the entries of all tables")
def all_tables(fixture: Fixture) -> None:
    entry = exact_entry(fixture, 1)
    fixture.insert(entry)
    found = {one.table_id for one in fixture.read(p4r.TableEntry())}
    names = ("exact_table", "constant_table")
    expect(found, {fixture.program.id("tables", name) for name in names}, "tables whose entries are read")


@check("9.1", "an entry decides where a packet leaves", ports=2)
def egress_port(fixture: Fixture) -> None:
    other = list(fixture.place.ports)[1]
    fixture.insert(fixture.entry("port_table", [exact(1, 1)], ("send_to", other)))
    (answer,) = fixture.answers(1, PORT, 1)
    expect(answer.port, other, "the port that the packet leaves through")
