# SPDX-License-Identifier: Apache-2.0
"""Sections 9.6 and 9.8: value sets and digests."""

from collections.abc import Iterable

from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.fixture import Fixture
from accesspoint.checks.conformance.suite import check, expect, fail
from accesspoint.checks.harness.p4runtime import binary, exact

INVALID, EXISTS, MISSING = rpc_code.INVALID_ARGUMENT, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND
DIGEST, IN_SET = 19, 22  # requests
LONG = 10**12  # ns
SIZE = 4  # of the value set


def value_set(fixture: Fixture, values: Iterable[int], name: str = "members") -> p4r.ValueSetEntry:
    members = [p4r.ValueSetMember(match=[exact(1, value)]) for value in values]
    return p4r.ValueSetEntry(value_set_id=fixture.program.id("value_sets", name), members=members)


@check("9.6", "a select follows its value set, which starts empty")
def select_in_set(fixture: Fixture) -> None:
    expect([fixture.ask(IN_SET, value).value for value in (1, 2)], [0, 0], "whether 1 and 2 are in the empty set")
    fixture.modify(value_set(fixture, (2, 3)))
    found = [fixture.ask(IN_SET, value).value for value in (1, 2, 3)]
    expect(found, [0, 1, 1], "whether 1, 2 and 3 are in the set of 2 and 3")
    fixture.modify(value_set(fixture, ()))
    expect(fixture.ask(IN_SET, 2).value, 0, "whether 2 is in the set that was emptied")


@check("9.6", "a value set is read as it was written, one and all")
def read_sets(fixture: Fixture) -> None:
    written = value_set(fixture, (9, 8))
    fixture.modify(written)
    (found,) = fixture.read(p4r.ValueSetEntry(value_set_id=written.value_set_id))
    values = lambda one: sorted(member.match[0].exact.value for member in one.members)  # noqa: E731
    expect(values(found), values(written), "values that are read")
    expect(len(fixture.read(p4r.ValueSetEntry())), 1, "value sets that id 0 reads")


@check("9.6", "a value set is modified, neither inserted nor deleted")
def set_operations(fixture: Fixture) -> None:
    for operation in ("INSERT", "DELETE"):
        fixture.refused(operation, value_set(fixture, (1,)), INVALID, why="a value set")


@check("9.6", "more members than it holds, and members twice, are refused")
def set_errors(fixture: Fixture) -> None:
    full = rpc_code.RESOURCE_EXHAUSTED
    fixture.refused("MODIFY", value_set(fixture, range(SIZE + 1)), full, why=f"{SIZE + 1} members of a set of {SIZE}")
    fixture.refused("MODIFY", value_set(fixture, (1, 1)), EXISTS, why="a member twice")
    codes = (rpc_code.OUT_OF_RANGE, INVALID)
    fixture.refused("MODIFY", value_set(fixture, (0x100,)), *codes, why="256 in a set of bit<8>")


def digest_entry(fixture: Fixture, **config: int) -> p4r.DigestEntry:
    return p4r.DigestEntry(digest_id=fixture.program.id("digests", "source_t"), config=config)


def seen(message: p4r.DigestList) -> list[int]:
    """The first member of each digest of a list."""
    return [int.from_bytes(one.struct.members[0].bitstring, "big") for one in message.data]


def acknowledge(fixture: Fixture, message: p4r.DigestList) -> None:
    fixture.client.send(digest_ack=p4r.DigestListAck(digest_id=message.digest_id, list_id=message.list_id))


@check("9.8", "a digest brings the data of a packet, in the order of the struct")
def brings_data(fixture: Fixture) -> None:
    fixture.insert(digest_entry(fixture, max_list_size=1, ack_timeout_ns=LONG))
    fixture.ask(DIGEST, 1, 0x203, 0x04050607)
    message = fixture.message("digest")
    expect(message.digest_id, fixture.program.id("digests", "source_t"), "the digest's id")
    values = [one.bitstring for one in message.data[0].struct.members]
    expect(values, [b"\x01", b"\x02\x03", b"\x04\x05\x06\x07"], "the members of the struct")
    expect(message.timestamp > 0, True, "the list has a timestamp")


@check("9.8", "without a DigestEntry nothing is sent, and after its DELETE nothing more")
def disabled(fixture: Fixture) -> None:
    fixture.ask(DIGEST, 1)
    fixture.no_message("digest")
    entry = digest_entry(fixture, max_list_size=1, ack_timeout_ns=0)
    fixture.insert(entry)
    fixture.ask(DIGEST, 2)
    expect(seen(fixture.message("digest")), [2], "digests after INSERT")
    fixture.delete(entry)
    fixture.ask(DIGEST, 3)
    fixture.no_message("digest")


@check("9.8", "a list waits until it is full, with distinct digests only")
def full_list(fixture: Fixture) -> None:
    fixture.insert(digest_entry(fixture, max_timeout_ns=LONG, max_list_size=3, ack_timeout_ns=LONG))
    fixture.ask_all(DIGEST, [(value, 0, 0) for value in (1, 1, 2, 2, 1)])
    fixture.no_message("digest")
    fixture.ask(DIGEST, 3)
    expect(seen(fixture.message("digest")), [1, 2, 3], "the digests of the list")


@check("9.8", "a list does not wait longer than max_timeout_ns")
def list_timeout(fixture: Fixture) -> None:
    fixture.insert(digest_entry(fixture, max_timeout_ns=50_000_000, max_list_size=1000, ack_timeout_ns=LONG))
    fixture.ask(DIGEST, 1)
    expect(seen(fixture.message("digest")), [1], "the digests of the list")


@check("9.8", "what was not acknowledged is not sent again; after the acknowledgement it is")
def acknowledged(fixture: Fixture) -> None:
    fixture.insert(digest_entry(fixture, max_list_size=1, ack_timeout_ns=LONG))
    fixture.ask(DIGEST, 1)
    first = fixture.message("digest")
    fixture.ask(DIGEST, 1)
    fixture.no_message("digest")
    acknowledge(fixture, first)
    for _ in range(50):  # the acknowledgement overtakes nothing, but it takes a moment
        fixture.ask(DIGEST, 1)
        if fixture.has("digest"):
            break
    second = fixture.message("digest")
    expect(seen(second), [1], "the digests of the second list")
    if second.list_id == first.list_id:
        fail(f"both lists have the id {first.list_id}")


@check("9.8", "ack_timeout_ns ends the wait for an acknowledgement")
def ack_timeout(fixture: Fixture) -> None:
    fixture.insert(digest_entry(fixture, max_list_size=1, ack_timeout_ns=50_000_000))
    fixture.ask(DIGEST, 1)
    fixture.message("digest")
    fixture.no_message("digest", 0.2)
    fixture.ask(DIGEST, 1)
    expect(seen(fixture.message("digest")), [1], "the digests after the timeout")


@check("9.8", "a DigestEntry is read as it was written; twice, it is there; unknown, it is not")
def digest_errors(fixture: Fixture) -> None:
    entry = digest_entry(fixture, max_timeout_ns=5, max_list_size=6, ack_timeout_ns=7)
    fixture.refused("MODIFY", entry, MISSING, why="a digest that is not enabled")
    fixture.refused("DELETE", entry, MISSING, why="a digest that is not enabled")
    fixture.insert(entry)
    fixture.refused("INSERT", entry, EXISTS, why="a digest that is enabled")
    fixture.found(p4r.DigestEntry(), [entry], "all digest entries")
    changed = digest_entry(fixture, max_timeout_ns=8, max_list_size=9, ack_timeout_ns=10)
    fixture.modify(changed)
    fixture.found(p4r.DigestEntry(digest_id=entry.digest_id), [changed], "the modified entry")
    unknown = p4r.DigestEntry(digest_id=0x17FFFFFF, config={"max_list_size": 1})
    fixture.refused("INSERT", unknown, MISSING, INVALID, why="an unknown digest")


@check("9.8", "an acknowledgement for an unknown digest is answered by a stream error, if at all")
def wrong_ack(fixture: Fixture) -> None:
    fixture.client.send(digest_ack=p4r.DigestListAck(digest_id=0x17FFFFFF, list_id=1))
    fixture.ask(0)
    if fixture.has("error"):
        error = fixture.message("error")
        expect(error.canonical_code, INVALID, "the error's code")
        expect(error.WhichOneof("details"), "digest_list_ack", "what the error is about")


@check("9.6", "a set in two parts matches both of them, one exactly and one under a mask", "parsing")
def set_of_structs(fixture: Fixture) -> None:
    pairs = p4r.ValueSetEntry(value_set_id=fixture.program.id("value_sets", "pairs"))
    member = pairs.members.add()
    member.match.add(field_id=1, exact={"value": binary(0x123)})
    member.match.add(field_id=2, ternary={"value": binary(0x500), "mask": binary(0xF00)})
    fixture.modify(pairs)
    pair = lambda a, b: (a << 20 | b).to_bytes(4, "big") + bytes(40)  # noqa: E731
    found = [fixture.ask(7, payload=pair(*key)).hit for key in ((0x123, 0x5FF), (0x123, 0x6FF), (0x124, 0x5FF))]
    expect(found, [2, 0, 0], "ways of (0x123, 0x5ff), (0x123, 0x6ff), (0x124, 0x5ff)")
    half = p4r.ValueSetEntry(value_set_id=pairs.value_set_id, members=[p4r.ValueSetMember(match=member.match[1:])])
    fixture.refused("MODIFY", half, INVALID, why="a member without its exact part")
