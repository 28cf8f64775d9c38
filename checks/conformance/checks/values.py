# SPDX-License-Identifier: Apache-2.0
"""Section 8: how values are written, and that they are read as they were written."""

from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.fixture import Fixture, between, lpm, optional, ternary
from accesspoint.checks.conformance.suite import check, expect
from accesspoint.checks.harness.p4runtime import exact

OUT_OF_RANGE = (rpc_code.OUT_OF_RANGE, rpc_code.INVALID_ARGUMENT)  # 8.3 has the one, 9.1.1 and 9.1.2 the other


@check("8.3", "leading zeros are taken, and what is read has none")
def leading_zeros(fixture: Fixture) -> None:
    fixture.insert(
        fixture.entry("exact_table", [exact(1, b"\x00\x05"), exact(2, b"\x00\x00\x63")], ("count_and_say", b"\0\0\7"))
    )
    canonical = fixture.entry("exact_table", [exact(1, b"\x05"), exact(2, b"\x63")], ("count_and_say", b"\7"))
    fixture.found(fixture.entry("exact_table"), [canonical], "an entry with leading zeros")
    expect(fixture.ask(1, a=5, b=0x63).value, 7, "the entry's answer")


@check("8.3", "any number of leading zeros is taken")
def many_zeros(fixture: Fixture) -> None:
    fixture.insert(fixture.entry("exact_table", [exact(1, bytes(40) + b"\x05"), exact(2, 1)], ("count_and_say", 1)))
    expect(fixture.ask(1, a=5, b=1).value, 1, "the entry's answer")


@check("8.3", "entries that differ in leading zeros only are the same entry")
def same_entry(fixture: Fixture) -> None:
    fixture.insert(fixture.entry("exact_table", [exact(1, b"\x05"), exact(2, 1)], ("count_and_say", 1)))
    twice = fixture.entry("exact_table", [exact(1, b"\x00\x05"), exact(2, b"\0\1")], ("count_and_say", 1))
    fixture.refused("INSERT", twice, rpc_code.ALREADY_EXISTS, why="the same entry with leading zeros")
    fixture.delete(twice)
    fixture.found(fixture.entry("exact_table"), [], "after DELETE with leading zeros")


@check("8.3", "an empty string is no value")
def empty_string(fixture: Fixture) -> None:
    entry = fixture.entry("exact_table", [exact(1, b""), exact(2, 1)], ("count_and_say", 1))
    fixture.refused("INSERT", entry, *OUT_OF_RANGE, why="an entry whose key is an empty string")
    entry = fixture.entry("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_say", b""))
    fixture.refused("INSERT", entry, *OUT_OF_RANGE, why="an entry whose parameter is an empty string")


@check("8.3", "a key that needs more bits than the field has is refused")
def key_too_wide(fixture: Fixture) -> None:
    entry = fixture.entry("exact_table", [exact(1, 0x100), exact(2, 1)], ("count_and_say", 1))
    fixture.refused("INSERT", entry, *OUT_OF_RANGE, why="0x100 in bit<8>")
    entry = fixture.entry("narrow_table", [exact(1, 0x1063)], ("small", 1, 1))
    fixture.refused("INSERT", entry, *OUT_OF_RANGE, why="0x1063 in bit<12>")
    for table, match in (
        ("lpm_table", [lpm(1, 1 << 32, 1)]),
        ("ternary_table", [ternary(1, 1 << 32, 1 << 32), exact(2, 1)]),
        ("range_table", [between(1, 1, 1 << 16)]),
        ("optional_table", [optional(1, 1 << 16)]),
    ):
        entry = fixture.entry(table, match, ("say", 1), priority=int(table != "lpm_table"))
        fixture.refused("INSERT", entry, *OUT_OF_RANGE, why=f"a value that is a bit too wide for the {table}")


@check("8.3", "a parameter that needs more bits than the action has is refused")
def parameter_too_wide(fixture: Fixture) -> None:
    for values in ((0x10, 1), (1, 0x1000)):
        entry = fixture.entry("narrow_table", [exact(1, 1)], ("small", *values))
        fixture.refused("INSERT", entry, *OUT_OF_RANGE, why=f"parameters {values} of bit<4> and bit<12>")


@check("8.3", "the highest values of odd widths are taken")
def highest_values(fixture: Fixture) -> None:
    entry = fixture.entry("narrow_table", [exact(1, 0xFFF)], ("small", 0xF, 0xFFF))
    fixture.insert(entry)
    fixture.found(fixture.entry("narrow_table"), [entry], "the highest values")
    expect(fixture.ask(11, b=0xFFF).value, 0xFFFF, "the entry's answer")


@check("8.3", "zero is one byte of zero")
def zero(fixture: Fixture) -> None:
    entry = fixture.entry("narrow_table", [exact(1, b"\0")], ("small", b"\0", b"\0"))
    fixture.insert(fixture.entry("narrow_table", [exact(1, b"\0\0")], ("small", b"\0", b"\0\0")))
    fixture.found(fixture.entry("narrow_table"), [entry], "zeros")


@check("8.3", "signed register values are sign-extended, and read in the fewest bytes")
def signed(fixture: Fixture) -> None:
    levels = p4r.RegisterEntry(register_id=fixture.program.id("registers", "levels"), index={"index": 0})
    for written, wanted in ((b"\xff\x9d", b"\x9d"), (b"\0\x63", b"\x63"), (b"\0", b"\0")):
        fixture.modify(
            p4r.RegisterEntry(register_id=levels.register_id, index=levels.index, data={"bitstring": written})
        )
        expect(fixture.read(levels)[0].data.bitstring, wanted, f"int<8> after {written.hex()}")
    wrong = p4r.RegisterEntry(register_id=levels.register_id, index=levels.index, data={"bitstring": b"\0\x9d"})
    fixture.refused("MODIFY", wrong, rpc_code.OUT_OF_RANGE, rpc_code.INVALID_ARGUMENT, why="157 in int<8>")


@check("8.2", "each kind of entry is read as it was written")
def read_write_symmetry(fixture: Fixture) -> None:
    entries = [
        fixture.entry("exact_table", [exact(1, 1), exact(2, 2)], ("count_and_say", 3), metadata=b"note"),
        fixture.entry("lpm_table", [lpm(1, 0x0A000000, 8)], ("say_both", 4, 5)),
        fixture.entry("ternary_table", [ternary(1, 0x50, 0xF0), exact(2, 1)], ("say", 6), priority=10),
        fixture.entry("range_table", [between(1, 0, 9)], ("NoAction",), priority=1),
        fixture.entry("optional_table", [optional(1, 9)], ("say", 7), priority=11),
        fixture.entry("mixed_table", [lpm(1, 0xC0000000, 2), exact(3, 1)], ("say", 8), priority=12),
    ]
    fixture.insert(*entries)
    for entry in entries:
        fixture.found(p4r.TableEntry(table_id=entry.table_id), [entry], "an entry")


@check("8.1", "fields that are unset and fields of default value are the same")
def defaults(fixture: Fixture) -> None:
    entry = fixture.entry("exact_table", [exact(1, 1), exact(2, 2)], ("count_and_say", 3))
    zeros = p4r.TableEntry()
    zeros.CopyFrom(entry)
    zeros.priority, zeros.idle_timeout_ns, zeros.metadata = 0, 0, b""
    fixture.insert(zeros)
    fixture.found(fixture.entry("exact_table"), [entry], "an entry")
