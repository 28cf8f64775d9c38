# SPDX-License-Identifier: Apache-2.0
"""Sections 9.3, 9.4, 9.7 and 9.9: counters, meters and registers with an index."""

from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.fixture import Fixture
from accesspoint.checks.conformance.suite import NotApplicable, check, expect, fail

INVALID, OUT_OF_RANGE = rpc_code.INVALID_ARGUMENT, rpc_code.OUT_OF_RANGE
COUNT, METER, WRITE, READ, COUNT_OTHER = 15, 16, 17, 18, 23
SIZE = 8
CONFIG = {"cir": 1000, "cburst": 10, "pir": 2000, "pburst": 20}


def counter(fixture: Fixture, index: int | None = None, name: str = "requests", **fields: int) -> p4r.CounterEntry:
    made = p4r.CounterEntry(counter_id=fixture.program.id("counters", name))
    if index is not None:
        made.index.index = index
    if fields:
        made.data.CopyFrom(p4r.CounterData(**fields))
    return made


def packets(fixture: Fixture) -> list[int]:
    """Packets of each cell of the counter."""
    found = fixture.read(counter(fixture))
    return [one.data.packet_count for one in sorted(found, key=lambda one: one.index.index)]


@check("9.3.2", "a counter counts packets and bytes by index")
def counts(fixture: Fixture) -> None:
    for index in (1, 3, 3):
        fixture.ask(COUNT, index)
    expect(packets(fixture), [0, 1, 0, 2, 0, 0, 0, 0], "packets by index")
    (found,) = fixture.read(counter(fixture, 3))
    if found.data.byte_count < 2 * 62:
        fail(f"{found.data.byte_count} bytes were counted of 2 frames of 62")


@check("9.3.2", "MODIFY sets a cell; without data it changes nothing; without an index it sets all")
def write_counter(fixture: Fixture) -> None:
    fixture.modify(counter(fixture, 2, packet_count=7, byte_count=70))
    fixture.modify(counter(fixture, 2))
    (found,) = fixture.read(counter(fixture, 2))
    expect((found.data.packet_count, found.data.byte_count), (7, 70), "packets and bytes that were written")
    fixture.ask(COUNT, 2)
    expect(packets(fixture)[2], 8, "packets after one more")
    fixture.modify(counter(fixture, packet_count=3))
    expect(packets(fixture), [3] * SIZE, "packets after a write without an index")


@check("9.3.2", "counter_id 0 reads all counters")
def all_counters(fixture: Fixture) -> None:
    fixture.ask(COUNT_OTHER, 5)
    found = fixture.read(p4r.CounterEntry())
    expect(len(found), 2 * SIZE, "cells of two counters that are read")
    other = fixture.program.id("counters", "others")
    hit = [one.index.index for one in found if one.counter_id == other and one.data.packet_count]
    expect(hit, [5], "indices of the other counter that counted")


@check("9.3.2", "an index that is negative is INVALID_ARGUMENT, one beyond the array OUT_OF_RANGE")
def counter_index(fixture: Fixture) -> None:
    fixture.refused("MODIFY", counter(fixture, -1, packet_count=1), INVALID, why="a counter with index -1")
    fixture.refused(
        "MODIFY", counter(fixture, SIZE, packet_count=1), OUT_OF_RANGE, why=f"a counter with index {SIZE} of {SIZE}"
    )


@check("9.3.2", "counters are neither inserted nor deleted")
def counter_operations(fixture: Fixture) -> None:
    for operation in ("INSERT", "DELETE"):
        fixture.refused(operation, counter(fixture, 1, packet_count=1), INVALID, why="a counter")


def meter(fixture: Fixture, index: int | None = None, **config: int) -> p4r.MeterEntry:
    made = p4r.MeterEntry(meter_id=fixture.program.id("meters", "rates"))
    if index is not None:
        made.index.index = index
    if config:
        made.config.CopyFrom(p4r.MeterConfig(**config))
    return made


@check("9.4.2", "a meter colours packets green, yellow and red, by its bursts")
def colours(fixture: Fixture) -> None:
    fixture.modify(meter(fixture, 1, cir=1, cburst=2, pir=1, pburst=5))
    found = [one.value for one in fixture.ask_all(METER, [(1, 0, 0)] * 12)]
    expect([*found[:2], max(found)], [0, 0, 2], f"first two and highest colour of 12 packets ({found})")
    expect(1 in found, True, f"some packets are yellow ({found})")
    expect([fixture.ask(METER, 2).value for _ in range(8)], [0] * 8, "colours of a meter without a config")


@check("9.4.2", "a meter's config is read as it was written, and taken back by MODIFY without one")
def meter_config(fixture: Fixture) -> None:
    fixture.modify(meter(fixture, 1, **CONFIG))
    fixture.found(meter(fixture, 1), [meter(fixture, 1, **CONFIG)], "the meter")
    fixture.modify(meter(fixture, 1))
    (found,) = fixture.read(meter(fixture, 1))
    expect(found.HasField("config"), False, "config is set after it was taken back")


@check("9.4.3", "a meter counts packets by colour; an empty counter_data takes the counts back", since="1.4.0")
def meter_colours(fixture: Fixture) -> None:
    asked = meter(fixture, 1)
    asked.counter_data.SetInParent()
    if fixture.client.read_code(meter_entry=asked) == rpc_code.UNIMPLEMENTED:
        raise NotApplicable("the server does not count by colour (UNIMPLEMENTED)")
    fixture.modify(meter(fixture, 1, cir=1, cburst=2, pir=1, pburst=4))
    seen = [one.value for one in fixture.ask_all(METER, [(1, 0, 0)] * 8)]
    (found,) = fixture.read(asked)
    counts = found.counter_data
    by_colour = [one.packet_count for one in (counts.green, counts.yellow, counts.red)]
    expect(by_colour, [seen.count(colour) for colour in range(3)], "packets by colour")
    if counts.red.byte_count < counts.red.packet_count * 62:
        fail(f"{counts.red.byte_count} bytes were counted of {counts.red.packet_count} red frames of 62")
    (found,) = fixture.read(meter(fixture, 1))
    expect(found.HasField("counter_data"), False, "counter_data unasked")
    wrong = meter(fixture, 1, **CONFIG)
    wrong.counter_data.red.packet_count = 1
    fixture.refused("MODIFY", wrong, INVALID, why="a count by colour other than 0")
    everything = meter(fixture, **CONFIG)
    everything.counter_data.SetInParent()
    fixture.modify(everything)
    (found,) = fixture.read(asked)
    expect(found.counter_data.red.packet_count, 0, "red packets after MODIFY of all cells with empty counts")


@check("9.4.2", "without an index all cells are written and read")
def all_meters(fixture: Fixture) -> None:
    fixture.modify(meter(fixture, **CONFIG))
    found = fixture.read(meter(fixture))
    expect([one.config for one in found], [p4r.MeterConfig(**CONFIG)] * SIZE, "configs of all cells")
    expect(len(fixture.read(p4r.MeterEntry())), SIZE, "cells that meter_id 0 reads")


@check("9.4.2", "a config that is none, a wrong index, INSERT and DELETE are refused")
def meter_errors(fixture: Fixture) -> None:
    fixture.refused("MODIFY", meter(fixture, 1, **CONFIG, eburst=5), INVALID, why="a trTCM meter with eburst")
    fixture.refused("MODIFY", meter(fixture, -1, **CONFIG), INVALID, why="a meter with index -1")
    fixture.refused("MODIFY", meter(fixture, SIZE, **CONFIG), OUT_OF_RANGE, why=f"a meter with index {SIZE} of {SIZE}")
    for operation in ("INSERT", "DELETE"):
        fixture.refused(operation, meter(fixture, 1, **CONFIG), INVALID, why="a meter")


def register(fixture: Fixture, index: int | None = None, value: bytes = b"", name: str = "cells") -> p4r.RegisterEntry:
    made = p4r.RegisterEntry(register_id=fixture.program.id("registers", name))
    if index is not None:
        made.index.index = index
    if value:
        made.data.bitstring = value
    return made


@check("9.7", "a register is read as packets wrote it, and packets read what was written")
def both_ways(fixture: Fixture) -> None:
    fixture.ask(WRITE, 3, 0, 0xDEADBEEF)
    (found,) = fixture.read(register(fixture, 3))
    expect(found.data.bitstring, b"\xde\xad\xbe\xef", "what a packet wrote")
    fixture.modify(register(fixture, 4, b"\x12\x34"))
    expect(fixture.ask(READ, 4).value, 0x1234, "what a packet reads")


@check("9.7", "without an index all cells are written and read")
def all_registers(fixture: Fixture) -> None:
    fixture.modify(register(fixture, None, b"\x07"))
    expect([one.data.bitstring for one in fixture.read(register(fixture))], [b"\x07"] * SIZE, "all cells")
    expect(len(fixture.read(p4r.RegisterEntry())), SIZE + 2, "cells that register_id 0 reads")


@check("9.7", "a signed register is read as packets wrote it")
def signed_register(fixture: Fixture) -> None:
    fixture.ask(WRITE, 0)
    (found,) = fixture.read(register(fixture, 1, name="levels"))
    expect(found.data.bitstring, b"\xfe", "-2 in int<8>")


@check("9.7", "a wrong index, another kind of data, INSERT and DELETE are refused")
def register_errors(fixture: Fixture) -> None:
    fixture.refused("MODIFY", register(fixture, -1, b"\1"), INVALID, why="a register with index -1")
    fixture.refused(
        "MODIFY", register(fixture, SIZE, b"\1"), OUT_OF_RANGE, why=f"a register with index {SIZE} of {SIZE}"
    )
    wrong = register(fixture, 1)
    wrong.data.bool = True
    fixture.refused("MODIFY", wrong, INVALID, why="a bool in a bit<32> register")
    wide = register(fixture, 1, b"\1\0\0\0\0")
    fixture.refused("MODIFY", wide, OUT_OF_RANGE, INVALID, why="33 bits in a bit<32> register")
    for operation in ("INSERT", "DELETE"):
        fixture.refused(operation, register(fixture, 1, b"\1"), INVALID, why="a register")


@check("9.9", "an extern that the program does not have is refused")
def unknown_extern(fixture: Fixture) -> None:
    entry = p4r.ExternEntry(extern_type_id=0x81, extern_id=0x81000001)
    codes = (rpc_code.INVALID_ARGUMENT, rpc_code.NOT_FOUND, rpc_code.UNIMPLEMENTED)
    fixture.refused("INSERT", entry, *codes, why="an unknown extern")
