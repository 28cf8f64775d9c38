# SPDX-License-Identifier: Apache-2.0
"""Sections 9.1.7 and 9.1.8: what belongs to an entry: its counter, its meter, its timeout."""

import time
from typing import Any

from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.checks.tables import CONSTANT, EXACT, exact_entry, say
from accesspoint.checks.conformance.fixture import Fixture
from accesspoint.checks.conformance.suite import NotApplicable, check, expect, fail
from accesspoint.checks.harness.p4runtime import exact

INVALID, MISSING = rpc_code.INVALID_ARGUMENT, rpc_code.NOT_FOUND
SECOND = 10**9  # ns
METER = {"cir": 1000, "cburst": 10, "pir": 2000, "pburst": 20}


def counter_of(fixture: Fixture, entry: p4r.TableEntry) -> p4r.CounterData:
    """The entry's direct counter."""
    key = p4r.TableEntry(table_id=entry.table_id, match=entry.match, priority=entry.priority)
    (found,) = fixture.read(p4r.DirectCounterEntry(table_entry=key))
    return found.data


@check("9.1.7", "a direct counter counts what hits its entry, in packets and bytes")
def counts(fixture: Fixture) -> None:
    first, second = exact_entry(fixture, 1), exact_entry(fixture, 2)
    fixture.insert(first, second)
    for _ in range(3):
        fixture.ask(EXACT, 1)
    found = counter_of(fixture, first)
    expect(found.packet_count, 3, "packets of the entry that was hit")
    if found.byte_count < 3 * 62:
        fail(f"{found.byte_count} bytes were counted of 3 frames of 62")
    expect(counter_of(fixture, second).packet_count, 0, "packets of the other entry")


@check("9.1.7", "counter_data starts a counter with INSERT, and MODIFY without it leaves it alone")
def counter_data(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1, counter_data={"packet_count": 100, "byte_count": 5000}))
    data = counter_of(fixture, exact_entry(fixture, 1))
    expect((data.packet_count, data.byte_count), (100, 5000), "packets and bytes after INSERT")
    fixture.modify(exact_entry(fixture, 1, value=2))
    expect(counter_of(fixture, exact_entry(fixture, 1)).packet_count, 100, "packets after MODIFY without counter_data")
    fixture.modify(exact_entry(fixture, 1, counter_data={"packet_count": 7}))
    expect(counter_of(fixture, exact_entry(fixture, 1)).packet_count, 7, "packets after MODIFY with counter_data")


@check("9.1.7", "counter_data and meter_config are read when they are asked for, and only then")
def read_with_entry(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1, meter_config=METER, counter_data={"packet_count": 5}))
    (plain,) = fixture.read(fixture.entry("exact_table"))
    expect(plain.HasField("counter_data") or plain.HasField("meter_config"), False, "direct resources unasked")
    (asked,) = fixture.read(fixture.entry("exact_table", counter_data={}, meter_config={}))
    expect(asked.counter_data.packet_count, 5, "packets")
    expect(asked.meter_config, p4r.MeterConfig(**METER), "the meter's config")


@check("9.1.7", "MODIFY without meter_config resets the meter")
def reset_meter(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1, meter_config=METER))
    fixture.modify(exact_entry(fixture, 1, value=2))
    (found,) = fixture.read(fixture.entry("exact_table", meter_config={}))
    expect(found.HasField("meter_config"), False, "meter_config is set in what is read")


@check("9.1.7", "direct resources of a table that has none are INVALID_ARGUMENT")
def no_resources(fixture: Fixture) -> None:
    entry = say(fixture, "fixed_default_table", 1, exact(1, 9), counter_data={"packet_count": 1})
    fixture.refused("INSERT", entry, INVALID, why="an entry with a counter that its table does not have")
    entry = say(fixture, "fixed_default_table", 1, exact(1, 9), meter_config=METER)
    fixture.refused("INSERT", entry, INVALID, why="an entry with a meter that its table does not have")


@check("9.3.1", "DirectCounterEntry is modified, neither inserted nor deleted; an unknown entry is NOT_FOUND")
def direct_counter_entry(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1))
    write = p4r.DirectCounterEntry(table_entry=exact_entry(fixture, 1), data={"packet_count": 9, "byte_count": 90})
    fixture.modify(write)
    expect(counter_of(fixture, exact_entry(fixture, 1)).byte_count, 90, "bytes that were written")
    for operation in ("INSERT", "DELETE"):
        fixture.refused(operation, write, INVALID, why="a direct counter")
    write.table_entry.CopyFrom(exact_entry(fixture, 2))
    fixture.refused("MODIFY", write, MISSING, why="the counter of an entry that is not there")


@check("9.3.1", "a DirectCounterEntry with a table alone reads the counters of all its entries")
def all_direct_counters(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1), exact_entry(fixture, 2, counter_data={"packet_count": 4}))
    found = fixture.read(p4r.DirectCounterEntry(table_entry={"table_id": exact_entry(fixture, 1).table_id}))
    expect(sorted(one.data.packet_count for one in found), [0, 4], "packets of the table's entries")


@check("9.3.1", "constant entries have counters, too")
def constant_counter(fixture: Fixture) -> None:
    fixture.ask(CONSTANT, b=0x0800)
    found = fixture.read(p4r.DirectCounterEntry(table_entry={"table_id": fixture.entry("constant_table").table_id}))
    expect(sorted(one.data.packet_count for one in found), [0, 1], "packets of the two constant entries")


@check("9.4.1", "a direct meter colours what hits its entry, and its config is read as it was written")
def direct_meter(fixture: Fixture) -> None:
    slow = {"cir": 1, "cburst": 2, "pir": 1, "pburst": 4}
    fixture.insert(exact_entry(fixture, 1))
    fixture.modify(p4r.DirectMeterEntry(table_entry=exact_entry(fixture, 1), config=slow))
    key = p4r.TableEntry(table_id=exact_entry(fixture, 1).table_id, match=exact_entry(fixture, 1).match)
    (found,) = fixture.read(p4r.DirectMeterEntry(table_entry=key))
    expect(found.config, p4r.MeterConfig(**slow), "the config")
    colours = [one.hit - 1 for one in fixture.ask_all(EXACT, [(1, 0, 0)] * 10)]
    expect(
        (colours[0], max(colours)), (0, 2), f"first and highest colour of 10 packets in a burst of 2 and 4 ({colours})"
    )
    fixture.modify(p4r.DirectMeterEntry(table_entry=exact_entry(fixture, 1)))
    expect([fixture.ask(EXACT, 1).hit - 1 for _ in range(5)], [0] * 5, "colours after the config was taken back")


@check("9.4.1", "DirectMeterEntry is modified, neither inserted nor deleted; an unknown entry is NOT_FOUND")
def direct_meter_entry(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1))
    write = p4r.DirectMeterEntry(table_entry=exact_entry(fixture, 1), config=METER)
    for operation in ("INSERT", "DELETE"):
        fixture.refused(operation, write, INVALID, why="a direct meter")
    write.table_entry.CopyFrom(exact_entry(fixture, 2))
    fixture.refused("MODIFY", write, MISSING, why="the meter of an entry that is not there")


def default(fixture: Fixture, **fields: Any) -> p4r.TableEntry:
    """The default entry of the table with direct resources."""
    return fixture.entry("exact_table", is_default_action=True, **fields)


def missed(fixture: Fixture) -> p4r.CounterData:
    """The default entry's counter."""
    (found,) = fixture.read(p4r.DirectCounterEntry(table_entry=default(fixture)))
    expect((found.table_entry.is_default_action, list(found.table_entry.match)), (True, []), "the entry that is named")
    return found.data


@check("9.1.3", "the default entry has a direct counter: of the packets that miss")
def default_counter(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1))
    fixture.modify(counting(fixture))
    for a in (1, 2, 3):
        fixture.ask(EXACT, a)
    expect(missed(fixture).packet_count, 2, "packets of the default entry")
    expect(counter_of(fixture, exact_entry(fixture, 1)).packet_count, 1, "packets of the other entry")
    fixture.modify(p4r.DirectCounterEntry(table_entry=default(fixture), data={"packet_count": 70, "byte_count": 700}))
    expect(missed(fixture).byte_count, 700, "bytes that were written")
    fixture.modify(counting(fixture, counter_data={"packet_count": 7}))
    (found,) = fixture.read(default(fixture, counter_data={}))
    expect(found.counter_data.packet_count, 7, "packets that were written with the entry")
    found = fixture.read(p4r.DirectCounterEntry(table_entry={"table_id": default(fixture).table_id}))
    expect(len(found), 1, "counters that are read without is_default_action")


def counting(fixture: Fixture, **fields: Any) -> p4r.TableEntry:
    """The default entry with an action that uses the direct resources."""
    return fixture.entry("exact_table", action=("count_and_say", 9), is_default_action=True, **fields)


@check("9.1.3", "the default entry has a direct meter, which its reset takes back")
def default_meter(fixture: Fixture) -> None:
    slow = {"cir": 1, "cburst": 1, "pir": 1, "pburst": 1}
    fixture.modify(counting(fixture, meter_config=slow))
    (found,) = fixture.read(default(fixture, meter_config={}))
    expect(found.meter_config, p4r.MeterConfig(**slow), "the config")
    found = [one.hit for one in fixture.ask_all(EXACT, [(1, 0, 0)] * 6)]
    expect(max(found), 2, f"highest colour of 6 packets that miss ({found})")
    fixture.modify(default(fixture))
    (found,) = fixture.read(p4r.DirectMeterEntry(table_entry=default(fixture)))
    expect(found.HasField("config"), False, "config is set after the default entry was reset")
    expect([fixture.ask(EXACT, 1).hit for _ in range(4)], [0] * 4, "colours of packets that miss after the reset")


def colours(data: p4r.MeterCounterData) -> list[int]:
    return [one.packet_count for one in (data.green, data.yellow, data.red)]


@check("9.4.3", "a direct meter counts packets by colour, which are read when they are asked for", since="1.4.0")
def direct_colours(fixture: Fixture) -> None:
    entry = exact_entry(fixture, 1, meter_config={"cir": 1, "cburst": 2, "pir": 1, "pburst": 4})
    fixture.insert(entry)
    key = p4r.TableEntry(table_id=entry.table_id, match=entry.match)
    asked = p4r.DirectMeterEntry(table_entry=key, counter_data={})
    if fixture.client.read_code(direct_meter_entry=asked) == rpc_code.UNIMPLEMENTED:
        raise NotApplicable("the server does not count by colour (UNIMPLEMENTED)")
    seen = [fixture.ask(EXACT, 1).hit - 1 for _ in range(8)]
    wanted = [seen.count(colour) for colour in range(3)]
    (found,) = fixture.read(asked)
    expect(colours(found.counter_data), wanted, "packets by colour")
    (found,) = fixture.read(fixture.entry("exact_table", meter_counter_data={}))
    expect(colours(found.meter_counter_data), wanted, "packets by colour, with the entry")
    (found,) = fixture.read(fixture.entry("exact_table"))
    expect(found.HasField("meter_counter_data"), False, "meter_counter_data unasked")
    (found,) = fixture.read(p4r.DirectMeterEntry(table_entry=key))
    expect(found.HasField("counter_data"), False, "counter_data unasked")
    entry.meter_counter_data.green.packet_count = 1
    fixture.refused("MODIFY", entry, INVALID, why="a count by colour other than 0")
    entry.meter_counter_data.Clear()
    entry.meter_counter_data.SetInParent()
    fixture.modify(entry)
    (found,) = fixture.read(asked)
    expect(colours(found.counter_data), [0, 0, 0], "packets by colour after MODIFY with empty counts")


@check("9.1.8", "an idle timeout is read as it was written, also beside what a target can time")
def timeout_is_kept(fixture: Fixture) -> None:
    entry = exact_entry(fixture, 1, idle_timeout_ns=3_000_000_001)
    fixture.insert(entry)
    fixture.found(fixture.entry("exact_table"), [entry], "the entry")


@check("9.1.8", "an entry that is not hit is told of, and told of again")
def idle(fixture: Fixture) -> None:
    entry = exact_entry(fixture, 1, idle_timeout_ns=SECOND // 10, metadata=b"note")
    fixture.insert(entry, exact_entry(fixture, 2))
    for _ in range(2):
        notification = fixture.message("idle_timeout_notification")
        (told,) = notification.table_entry
        expect((told.table_id, list(told.match)), (entry.table_id, list(entry.match)), "the entry that is told of")
        expect((told.idle_timeout_ns, told.metadata), (SECOND // 10, b"note"), "its timeout and metadata")
        expect(notification.timestamp > 0, True, "the notification has a timestamp")


@check("9.1.8", "an entry that is hit is not told of")
def busy(fixture: Fixture) -> None:
    kind = "idle_timeout_notification"
    for number, timeout in enumerate((1, 4, 16), start=1):  # s; the next if the machine was too slow for the last
        entry = exact_entry(fixture, number, idle_timeout_ns=timeout * SECOND)
        before = time.monotonic()
        end, longest = before + 1.5 * timeout, 0.0
        told: list[list[p4r.FieldMatch]] = []
        fixture.insert(entry)
        while before < end:
            begins = time.monotonic()
            fixture.ask(EXACT, number)
            while fixture.has(kind):  # the last try's entry is told of, too
                told += [list(one.match) for one in fixture.message(kind).table_entry]
            longest, before = max(longest, time.monotonic() - before), begins
            time.sleep(0.05)
        if longest < timeout:
            expect(list(entry.match) in told, False, "an entry that is hit is told of")
            return
    raise NotApplicable(f"the machine was too slow to keep the entry busy ({longest:.1f} s between two packets)")


@check("9.1.8", "time_since_last_hit is set when it is asked for, and only then")
def last_hit(fixture: Fixture) -> None:
    fixture.insert(exact_entry(fixture, 1, idle_timeout_ns=3600 * SECOND))
    fixture.ask(EXACT, 1)
    (plain,) = fixture.read(fixture.entry("exact_table"))
    expect(plain.HasField("time_since_last_hit"), False, "time_since_last_hit unasked")
    time.sleep(0.2)
    (asked,) = fixture.read(fixture.entry("exact_table", time_since_last_hit={}))
    expect(asked.HasField("time_since_last_hit"), True, "time_since_last_hit when it is asked for")
    elapsed = asked.time_since_last_hit.elapsed_ns
    if not SECOND // 10 < elapsed < 60 * SECOND:
        fail(f"{elapsed} ns since the last hit, which was 0.2 s ago")


@check("9.1.8", "a timeout where the table or the default entry has none is INVALID_ARGUMENT")
def no_timeout(fixture: Fixture) -> None:
    entry = say(fixture, "fixed_default_table", 1, exact(1, 9), idle_timeout_ns=SECOND)
    fixture.refused("INSERT", entry, INVALID, why="an entry with a timeout that its table does not support")
    default = fixture.entry("exact_table", action=("NoAction",), is_default_action=True, idle_timeout_ns=SECOND)
    fixture.refused("MODIFY", default, INVALID, why="a default entry with a timeout")
