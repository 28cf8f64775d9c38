# SPDX-License-Identifier: Apache-2.0
"""Section 9.1: entries of tables, what they match and what they do."""

from typing import Any

from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.bench import Bench, between, lpm, optional, ternary
from accesspoint.checks.conformance.client import binary, exact
from accesspoint.checks.conformance.suite import check, expect

INVALID, DENIED = rpc_code.INVALID_ARGUMENT, rpc_code.PERMISSION_DENIED
FULL, EXISTS, MISSING = rpc_code.RESOURCE_EXHAUSTED, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND
EXACT, LPM, TERNARY, RANGE, OPTIONAL, MIXED, CONSTANT, _, FIXED, KEYLESS, NARROW, PORT = range(1, 13)
MANY = 25


def exact_entry(bench: Bench, a: int, b: int = 0, value: int = 1, **fields: Any) -> p4r.TableEntry:
    return bench.entry("exact_table", [exact(1, a), exact(2, b)], ("count_and_say", value), **fields)


def say(bench: Bench, table: str, value: int, *match: p4r.FieldMatch, **fields: Any) -> p4r.TableEntry:
    return bench.entry(table, list(match), ("say", value), **fields)


def wrong(bench: Bench, table: str, match: list[p4r.FieldMatch], why: str, priority: int = 0) -> None:
    """An entry with that match is refused."""
    action = ("count_and_say", 1) if table == "exact_table" else ("say", 1)
    bench.refused("INSERT", bench.entry(table, match, action, priority=priority), INVALID, why=why)


@check("9.1", "EXACT: a packet hits the entry of its key and no other")
def exact_match(bench: Bench) -> None:
    bench.insert(exact_entry(bench, 1, 2, 12), exact_entry(bench, 2, 1, 21))
    found = {key: bench.ask(EXACT, *key).value for key in ((1, 2), (2, 1), (1, 1), (2, 2))}
    expect(found, {(1, 2): 12, (2, 1): 21, (1, 1): 0, (2, 2): 0}, "answers by key")


@check("9.1", "a table of 70 match fields and an action of 71 parameters")
def many_fields(bench: Bench) -> None:
    table = next(one for one in bench.program.p4info.tables if one.preamble.alias == "many_table")
    match = [exact(one.id, 3) for one in table.match_fields]
    expect(len(match), 70, "match fields")
    entry = bench.entry("many_table", match, ("sum", *([1] * 71)))
    bench.insert(entry)
    bench.found(bench.entry("many_table"), [entry], "the entry")
    expect([bench.ask(MANY, a).value for a in (3, 4)], [71, 0], "answers to 3 and 4")
    lacks = bench.entry("many_table", match[:-1], ("sum", *([1] * 71)))
    bench.refused("INSERT", lacks, INVALID, why="an entry without field 70")
    twice = bench.entry("many_table", [*match, match[-1]], ("sum", *([1] * 71)))
    bench.refused("INSERT", twice, INVALID, why="an entry with field 70 twice")


@check("9.1", "LPM: the longest prefix wins, in any order of insertion")
def longest_prefix(bench: Bench) -> None:
    bench.insert(
        say(bench, "lpm_table", 16, lpm(1, 0x0A010000, 16)), say(bench, "lpm_table", 32, lpm(1, 0x0A010203, 32))
    )
    bench.insert(say(bench, "lpm_table", 8, lpm(1, 0x0A000000, 8)), say(bench, "lpm_table", 9))
    bench.insert(say(bench, "lpm_table", 1, lpm(1, 0x80000000, 1)))
    keys = {0x0A010203: 32, 0x0A010204: 16, 0x0A020304: 8, 0x0B000000: 9, 0xFFFFFFFF: 1}
    expect({key: bench.ask(LPM, c=key).value for key in keys}, keys, "answers by key")


@check("9.1", "TERNARY: the highest priority wins, in any order of insertion")
def highest_priority(bench: Bench) -> None:
    table = "ternary_table"
    bench.insert(say(bench, table, 2, ternary(1, 0x50, 0xF0), exact(2, 1), priority=20))
    bench.insert(say(bench, table, 3, ternary(1, 0x55, 0xFF), exact(2, 1), priority=30))
    bench.insert(say(bench, table, 1, exact(2, 1), priority=10))
    expect([bench.ask(TERNARY, 1, 0, c).value for c in (0x55, 0x54, 0x44)], [3, 2, 1], "answers of 0x55, 0x54, 0x44")
    expect(bench.ask(TERNARY, 2, 0, 0x55).value, 7, "the default action's answer, for another exact key")


@check("9.1", "RANGE: both bounds belong to it")
def bounds(bench: Bench) -> None:
    bench.insert(say(bench, "range_table", 1, between(1, 1000, 2000), priority=1))
    bench.insert(say(bench, "range_table", 2, between(1, 1500, 1500), priority=2))
    keys = {999: 0, 1000: 1, 1500: 2, 1501: 1, 2000: 1, 2001: 0}
    expect({key: bench.ask(RANGE, b=key).value for key in keys}, keys, "answers by key")


@check("9.1", "OPTIONAL: a field that is left out matches everything")
def left_out(bench: Bench) -> None:
    table = "optional_table"
    bench.insert(
        say(bench, table, 1, optional(1, 5), optional(2, 6), priority=4),
        say(bench, table, 2, optional(1, 5), priority=3),
        say(bench, table, 3, optional(2, 6), priority=2),
        say(bench, table, 4, priority=1),
    )
    keys = {(6, 5): 1, (7, 5): 2, (6, 4): 3, (7, 4): 4}
    expect({key: bench.ask(OPTIONAL, *key).value for key in keys}, keys, "answers by key")


@check("9.1", "LPM, TERNARY and EXACT in one key: the priority decides")
def mixed(bench: Bench) -> None:
    bench.insert(
        say(bench, "mixed_table", 1, lpm(1, 0x0A000000, 8), exact(3, 1), priority=5),
        say(bench, "mixed_table", 2, lpm(1, 0x0A010000, 16), exact(3, 1), priority=4),
        say(bench, "mixed_table", 3, ternary(2, 1, 1), exact(3, 1), priority=6),
    )
    found = [bench.ask(MIXED, 1, b, c).value for b, c in ((0, 0x0A010000), (1, 0x0A010000), (0, 0x0B000000))]
    expect(found, [1, 3, 0], "answers")


@check("9.1", "INSERT of an entry that is there is ALREADY_EXISTS and changes nothing")
def insert_twice(bench: Bench) -> None:
    entry = exact_entry(bench, 1, 2, 12)
    bench.insert(entry)
    bench.refused("INSERT", exact_entry(bench, 1, 2, 13), EXISTS, why="an entry that is there")
    bench.found(bench.entry("exact_table"), [entry], "the entry")


@check("9.1", "MODIFY changes the action; of an entry that is not there it is NOT_FOUND")
def modify(bench: Bench) -> None:
    bench.refused("MODIFY", exact_entry(bench, 1), MISSING, why="an entry that is not there")
    bench.insert(exact_entry(bench, 1, value=5))
    bench.modify(exact_entry(bench, 1, value=6))
    expect(bench.ask(EXACT, 1).value, 6, "the modified entry's answer")


@check("9.1", "DELETE looks at the key alone; of an entry that is not there it is NOT_FOUND")
def delete(bench: Bench) -> None:
    bench.insert(exact_entry(bench, 1))
    nonsense = p4r.TableEntry(table_id=exact_entry(bench, 1).table_id, match=exact_entry(bench, 1).match)
    nonsense.action.action.action_id = 12345
    bench.delete(nonsense)
    expect(bench.ask(EXACT, 1).value, 0, "the answer after DELETE")
    bench.refused("DELETE", nonsense, MISSING, why="an entry that is not there")


@check("9.1", "the same match with another priority is another entry")
def priority_is_key(bench: Bench) -> None:
    low = say(bench, "ternary_table", 1, ternary(1, 1, 1), exact(2, 1), priority=1)
    high = say(bench, "ternary_table", 2, ternary(1, 1, 1), exact(2, 1), priority=2)
    bench.insert(low, high)
    expect(bench.ask(TERNARY, 1, 0, 1).value, 2, "the answer of both")
    bench.delete(high)
    expect(bench.ask(TERNARY, 1, 0, 1).value, 1, "the answer of the lower one")


@check("9.1", "a table with TERNARY, RANGE or OPTIONAL fields needs a priority")
def needs_priority(bench: Bench) -> None:
    wrong(bench, "ternary_table", [ternary(1, 1, 1), exact(2, 1)], "a ternary entry of priority 0")
    wrong(bench, "range_table", [between(1, 1, 2)], "a range entry of priority 0")
    wrong(bench, "optional_table", [optional(1, 1)], "an optional entry of priority 0")


@check("9.1", "a table without such fields takes none")
def takes_no_priority(bench: Bench) -> None:
    wrong(bench, "exact_table", [exact(1, 1), exact(2, 1)], "an exact entry with a priority", 5)
    wrong(bench, "lpm_table", [lpm(1, 0x80000000, 1)], "an lpm entry with a priority", 5)


@check("9.1", "a full table answers RESOURCE_EXHAUSTED, and takes as many as the P4Info says")
def full(bench: Bench) -> None:
    for number in range(4):
        bench.insert(exact_entry(bench, number))
    bench.refused("INSERT", exact_entry(bench, 4), FULL, why="a fifth entry in a table of four")
    bench.delete(exact_entry(bench, 0))
    bench.insert(exact_entry(bench, 4))


@check("9.1", "a table without a key has no entries")
def keyless(bench: Bench) -> None:
    bench.refused("INSERT", bench.entry("keyless_table", action=("say", 1)), INVALID, why="an entry without a key")


@check("9.1", "is_const cannot be written", since="1.4.0")
def is_const(bench: Bench) -> None:
    bench.refused("INSERT", exact_entry(bench, 1, is_const=True), INVALID, why="an entry with is_const")


@check("9.1", "metadata is kept and returned, and MODIFY replaces it")
def metadata(bench: Bench) -> None:
    bench.insert(exact_entry(bench, 1, metadata=b"\0first\xff"))
    bench.found(bench.entry("exact_table"), [exact_entry(bench, 1, metadata=b"\0first\xff")], "the entry")
    bench.modify(exact_entry(bench, 1, metadata=b"second"))
    bench.found(bench.entry("exact_table"), [exact_entry(bench, 1, metadata=b"second")], "the modified entry")


@check("9.1", "a table id that is unknown is refused")
def unknown_table(bench: Bench) -> None:
    entry = exact_entry(bench, 1)
    entry.table_id = 0x02FFFFFF
    bench.refused("INSERT", entry, INVALID, MISSING, why="an entry of an unknown table")


@check("9.1.1", "EXACT fields cannot be left out")
def exact_left_out(bench: Bench) -> None:
    wrong(bench, "exact_table", [exact(1, 1)], "an entry without an exact field")
    wrong(bench, "ternary_table", [ternary(1, 1, 1)], "a ternary entry without its exact field", 1)


@check("9.1.1", "unknown fields, fields twice and fields of another kind are refused")
def wrong_fields(bench: Bench) -> None:
    wrong(bench, "exact_table", [exact(1, 1), exact(2, 1), exact(7, 1)], "an entry with an unknown field")
    wrong(bench, "exact_table", [exact(1, 1), exact(1, 2), exact(2, 1)], "an entry with a field twice")
    wrong(bench, "exact_table", [ternary(1, 1, 1), exact(2, 1)], "an exact field given as ternary")
    wrong(bench, "exact_table", [p4r.FieldMatch(field_id=1), exact(2, 1)], "a field without a kind")


@check("9.1.1", "LPM: bits behind the prefix, no prefix and a long prefix are refused")
def wrong_lpm(bench: Bench) -> None:
    wrong(bench, "lpm_table", [lpm(1, 0x0A000001, 8)], "an lpm value with bits behind its prefix")
    wrong(bench, "lpm_table", [lpm(1, 0, 0)], "an lpm field of length 0 (don't care must be left out)")
    wrong(bench, "lpm_table", [lpm(1, 1, 33)], "a prefix of 33 bits in 32")
    wrong(bench, "lpm_table", [lpm(1, 0, -1)], "a prefix of -1 bits")


@check("9.1.1", "TERNARY: bits outside of the mask and a mask of zeros are refused")
def wrong_ternary(bench: Bench) -> None:
    wrong(bench, "ternary_table", [ternary(1, 3, 1), exact(2, 1)], "a value with bits outside of its mask", 1)
    wrong(bench, "ternary_table", [ternary(1, 0, 0), exact(2, 1)], "a mask of zeros (don't care must be left out)", 1)


@check("9.1.1", "RANGE: low above high, and the whole range, are refused")
def wrong_range(bench: Bench) -> None:
    wrong(bench, "range_table", [between(1, 2, 1)], "a range from 2 to 1", 1)
    wrong(bench, "range_table", [between(1, 0, 0xFFFF)], "the whole range (don't care must be left out)", 1)


@check("9.1.2", "INSERT needs an action")
def no_action(bench: Bench) -> None:
    bench.refused(
        "INSERT", bench.entry("exact_table", [exact(1, 1), exact(2, 1)]), INVALID, why="an entry without action"
    )


@check("9.1.2", "MODIFY without an action keeps it")
def keeps_action(bench: Bench) -> None:
    bench.insert(exact_entry(bench, 1, value=5))
    bench.modify(bench.entry("exact_table", [exact(1, 1), exact(2, 0)]))
    expect(bench.ask(EXACT, 1).value, 5, "the entry's answer")


@check("9.1.2", "an action that the table does not have is INVALID_ARGUMENT")
def foreign_action(bench: Bench) -> None:
    entry = bench.entry("exact_table", [exact(1, 1), exact(2, 1)], ("send_to", 1))
    bench.refused("INSERT", entry, INVALID, why="an entry with another table's action")
    entry.action.action.action_id = 0x01FFFFFF
    bench.refused("INSERT", entry, INVALID, why="an entry with an unknown action")


@check("9.1.2", "parameters that are missing, unknown or twice are INVALID_ARGUMENT")
def wrong_parameters(bench: Bench) -> None:
    match = [exact(1, 1)]
    bench.refused(
        "INSERT", bench.entry("narrow_table", match, ("small", 1)), INVALID, why="an entry with one of two parameters"
    )
    entry = bench.entry("narrow_table", match, ("small", 1, 2))
    entry.action.action.params.add(param_id=3, value=b"\1")
    bench.refused("INSERT", entry, INVALID, why="an entry with a parameter too many")
    entry = bench.entry("narrow_table", match, ("small", 1, 2))
    entry.action.action.params.add(param_id=1, value=b"\1")
    bench.refused("INSERT", entry, INVALID, why="an entry with a parameter twice")


@check("9.1.2", "an action that is for defaults only, or for entries only, is PERMISSION_DENIED elsewhere")
def scopes(bench: Bench) -> None:
    entry = bench.entry("exact_table", [exact(1, 1), exact(2, 1)], ("NoAction",))
    bench.refused("INSERT", entry, DENIED, why="an entry with an action for defaults only")
    default = bench.entry("lpm_table", action=("say_both", 1, 1), is_default_action=True)
    bench.refused("MODIFY", default, DENIED, why="a default entry with an action for entries only")


@check("9.1.2", "a member id is no action of a direct table, and an action none of an indirect one")
def wrong_kind_of_action(bench: Bench) -> None:
    entry = bench.entry("fixed_default_table", [exact(1, 1)], None)
    entry.action.action_profile_member_id = 1
    bench.refused("INSERT", entry, INVALID, why="an entry of a direct table with a member")
    entry = bench.entry("profile_table", [exact(1, 1)], ("say", 1))
    bench.refused("INSERT", entry, INVALID, why="an entry of an indirect table with an action")


@check("9.1.2", "an entry's action takes its parameters to where they belong")
def parameters(bench: Bench) -> None:
    bench.insert(bench.entry("narrow_table", [exact(1, 0x123)], ("small", 0xA, 0xBCD)))
    expect(bench.ask(NARROW, b=0x123).value, 0xABCD, "the answer of parameters 0xA and 0xBCD")


@check("9.1.3", "the default entry is what the program says, and MODIFY changes it")
def default_entry(bench: Bench) -> None:
    expect(bench.ask(TERNARY, 1).value, 7, "the answer of the program's default entry")
    bench.modify(bench.entry("ternary_table", action=("say_both", 8, 9), is_default_action=True))
    answer = bench.ask(TERNARY, 1)
    expect((answer.value, answer.hit), (8, 9), "the answer of the modified default entry")


@check("9.1.3", "MODIFY without an action resets the default entry")
def reset_default(bench: Bench) -> None:
    bench.modify(bench.entry("ternary_table", action=("say", 8), is_default_action=True))
    bench.modify(bench.entry("ternary_table", is_default_action=True))
    expect(bench.ask(TERNARY, 1).value, 7, "the answer of the default entry after its reset")


@check("9.1.3", "the default entry is neither inserted nor deleted")
def default_insert(bench: Bench) -> None:
    default = bench.entry("ternary_table", action=("say", 8), is_default_action=True)
    bench.refused("INSERT", default, INVALID, why="a default entry")
    bench.refused("DELETE", default, INVALID, why="a default entry")


@check("9.1.3", "the default entry has neither match nor priority")
def default_match(bench: Bench) -> None:
    default = bench.entry("lpm_table", [lpm(1, 0x80000000, 1)], ("say", 8), is_default_action=True)
    bench.refused("MODIFY", default, INVALID, why="a default entry with a match")
    default = bench.entry("ternary_table", action=("say", 8), is_default_action=True, priority=1)
    bench.refused("MODIFY", default, INVALID, why="a default entry with a priority")


@check("9.1.3", "a constant default entry is PERMISSION_DENIED")
def constant_default(bench: Bench) -> None:
    default = bench.entry("fixed_default_table", action=("say", 8), is_default_action=True)
    bench.refused("MODIFY", default, DENIED, INVALID, why="a constant default entry")


@check("9.1.3", "a table without a key runs its default entry")
def keyless_default(bench: Bench) -> None:
    bench.modify(bench.entry("keyless_table", action=("say", 5), is_default_action=True))
    expect(bench.ask(KEYLESS).value, 5, "the answer")


@check("9.1.3", "the default entry is read when it is asked for, and only then")
def default_read(bench: Bench) -> None:
    default = bench.entry("ternary_table", action=("say", 8), is_default_action=True)
    bench.modify(default)
    bench.found(bench.entry("ternary_table"), [], "entries of a table without entries")
    (found,) = bench.read(bench.entry("ternary_table", is_default_action=True))
    expect((found.is_default_action, found.action), (True, default.action), "the default entry")


@check("9.1.4", "constant entries match in their order")
def constant_entries(bench: Bench) -> None:
    keys = {0x0800: 100, 0x8800: 200, 0x0801: 0}
    expect({key: bench.ask(CONSTANT, b=key).value for key in keys}, keys, "answers by key")


@check("9.1.4", "constant entries are PERMISSION_DENIED, but for their direct resources")
def constant_table(bench: Bench) -> None:
    entries = bench.read(bench.entry("constant_table"))
    expect(len(entries), 2, "constant entries that are read")
    for operation in ("INSERT", "MODIFY", "DELETE"):
        entry = p4r.TableEntry(table_id=entries[0].table_id, match=entries[0].match, priority=entries[0].priority)
        entry.action.CopyFrom(entries[0].action)
        bench.refused(operation, entry, DENIED, why="a constant entry")
    new = bench.entry("constant_table", [ternary(1, 1, 1)], ("count_constant", 1), priority=1)
    bench.refused("INSERT", new, DENIED, why="an entry into a constant table")
    entry.ClearField("action")
    entry.counter_data.packet_count = 5
    bench.modify(entry)


@check("9.1.4", "constant entries are read with match, action and priority")
def constant_read(bench: Bench) -> None:
    found = {one.match[0].ternary.value: one for one in bench.read(bench.entry("constant_table"))}
    expect(set(found), {b"\x08\0", b"\x80\0"}, "values of the constant entries")
    first, second = found[b"\x08\0"], found[b"\x80\0"]
    expect(first.match[0].ternary.mask, b"\xff\xff", "the first entry's mask")
    expect(first.action.action.params[0].value, binary(100), "the first entry's parameter")
    expect(first.priority > second.priority > 0, True, "the first entry has the higher priority")


@check("9.1.4", "constant entries are read with is_const, others without", since="1.4.0")
def is_const_read(bench: Bench) -> None:
    bench.insert(exact_entry(bench, 1))
    found = [one.is_const for table in ("constant_table", "exact_table") for one in bench.read(bench.entry(table))]
    expect(found, [True, True, False], "is_const of two constant entries and another one")


@check("9.1.5", "initial entries are there, can be read, modified and deleted", "initial")
def initial_entries(bench: Bench) -> None:
    expect([bench.ask(0, a).value for a in (1, 2, 3)], [11, 22, 0], "answers of keys 1, 2, 3")
    expect(len(bench.read(bench.entry("initial_table"))), 2, "initial entries that are read")
    bench.modify(say(bench, "initial_table", 12, exact(1, 1)))
    bench.delete(say(bench, "initial_table", 0, exact(1, 2)))
    expect([bench.ask(0, a).value for a in (1, 2)], [12, 0], "answers after MODIFY and DELETE")
    bench.insert(say(bench, "initial_table", 33, exact(1, 3)))
    expect(bench.ask(0, 3).value, 33, "the answer of an entry beside them")


@check("9.1.6", "table_id, priority, action, metadata and match select what is read")
def filters(bench: Bench) -> None:
    one = say(bench, "ternary_table", 1, ternary(1, 1, 1), exact(2, 1), priority=1, metadata=b"one")
    two = say(bench, "ternary_table", 2, ternary(1, 1, 1), exact(2, 1), priority=2)
    three = bench.entry("ternary_table", [exact(2, 2)], ("say_both", 1, 1), priority=2)
    bench.insert(one, two, three)
    table = one.table_id
    bench.found(p4r.TableEntry(table_id=table), [one, two, three], "by table_id")
    bench.found(p4r.TableEntry(table_id=table, priority=2), [two, three], "by priority")
    bench.found(p4r.TableEntry(table_id=table, metadata=b"one"), [one], "by metadata")
    bench.found(p4r.TableEntry(table_id=table, match=two.match, priority=2), [two], "by match and priority")
    by_action = p4r.TableEntry(table_id=table)
    by_action.action.action.action_id = three.action.action.action_id
    bench.found(by_action, [three], "by action")


@check("9.1.6", "table_id 0 reads the entries of all tables")
def all_tables(bench: Bench) -> None:
    entry = exact_entry(bench, 1)
    bench.insert(entry)
    found = {one.table_id for one in bench.read(p4r.TableEntry())}
    names = ("exact_table", "constant_table")
    expect(found, {bench.program.id("tables", name) for name in names}, "tables whose entries are read")


@check("9.1", "an entry decides where a packet leaves", ports=2)
def egress_port(bench: Bench) -> None:
    other = list(bench.place.ports)[1]
    bench.insert(bench.entry("port_table", [exact(1, 1)], ("send_to", other)))
    (answer,) = bench.answers(1, PORT, 1)
    expect(answer.port, other, "the port that the packet leaves through")
