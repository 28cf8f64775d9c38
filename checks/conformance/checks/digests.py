# SPDX-License-Identifier: Apache-2.0
"""Sections 9.6 and 9.8: value sets and digests."""

from collections.abc import Iterable

from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.bench import Bench
from accesspoint.checks.conformance.client import binary, exact
from accesspoint.checks.conformance.suite import check, expect, fail

INVALID, EXISTS, MISSING = rpc_code.INVALID_ARGUMENT, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND
DIGEST, IN_SET = 19, 22  # requests
LONG = 10**12  # ns
SIZE = 4  # of the value set


def value_set(bench: Bench, values: Iterable[int], name: str = "members") -> p4r.ValueSetEntry:
    members = [p4r.ValueSetMember(match=[exact(1, value)]) for value in values]
    return p4r.ValueSetEntry(value_set_id=bench.program.id("value_sets", name), members=members)


@check("9.6", "a select follows its value set, which starts empty")
def select_in_set(bench: Bench) -> None:
    expect([bench.ask(IN_SET, value).value for value in (1, 2)], [0, 0], "whether 1 and 2 are in the empty set")
    bench.modify(value_set(bench, (2, 3)))
    found = [bench.ask(IN_SET, value).value for value in (1, 2, 3)]
    expect(found, [0, 1, 1], "whether 1, 2 and 3 are in the set of 2 and 3")
    bench.modify(value_set(bench, ()))
    expect(bench.ask(IN_SET, 2).value, 0, "whether 2 is in the set that was emptied")


@check("9.6", "a value set is read as it was written, one and all")
def read_sets(bench: Bench) -> None:
    written = value_set(bench, (9, 8))
    bench.modify(written)
    (found,) = bench.read(p4r.ValueSetEntry(value_set_id=written.value_set_id))
    values = lambda one: sorted(member.match[0].exact.value for member in one.members)  # noqa: E731
    expect(values(found), values(written), "values that are read")
    expect(len(bench.read(p4r.ValueSetEntry())), 1, "value sets that id 0 reads")


@check("9.6", "a value set is modified, neither inserted nor deleted")
def set_operations(bench: Bench) -> None:
    for operation in ("INSERT", "DELETE"):
        bench.refused(operation, value_set(bench, (1,)), INVALID, why="a value set")


@check("9.6", "more members than it holds, and members twice, are refused")
def set_errors(bench: Bench) -> None:
    full = rpc_code.RESOURCE_EXHAUSTED
    bench.refused("MODIFY", value_set(bench, range(SIZE + 1)), full, why=f"{SIZE + 1} members of a set of {SIZE}")
    bench.refused("MODIFY", value_set(bench, (1, 1)), EXISTS, why="a member twice")
    codes = (rpc_code.OUT_OF_RANGE, INVALID)
    bench.refused("MODIFY", value_set(bench, (0x100,)), *codes, why="256 in a set of bit<8>")


def digest_entry(bench: Bench, **config: int) -> p4r.DigestEntry:
    return p4r.DigestEntry(digest_id=bench.program.id("digests", "source_t"), config=config)


def seen(message: p4r.DigestList) -> list[int]:
    """The first member of each digest of a list."""
    return [int.from_bytes(one.struct.members[0].bitstring, "big") for one in message.data]


def acknowledge(bench: Bench, message: p4r.DigestList) -> None:
    bench.client.send(digest_ack=p4r.DigestListAck(digest_id=message.digest_id, list_id=message.list_id))


@check("9.8", "a digest brings the data of a packet, in the order of the struct")
def brings_data(bench: Bench) -> None:
    bench.insert(digest_entry(bench, max_list_size=1, ack_timeout_ns=LONG))
    bench.ask(DIGEST, 1, 0x203, 0x04050607)
    message = bench.message("digest")
    expect(message.digest_id, bench.program.id("digests", "source_t"), "the digest's id")
    values = [one.bitstring for one in message.data[0].struct.members]
    expect(values, [b"\x01", b"\x02\x03", b"\x04\x05\x06\x07"], "the members of the struct")
    expect(message.timestamp > 0, True, "the list has a timestamp")


@check("9.8", "without a DigestEntry nothing is sent, and after its DELETE nothing more")
def disabled(bench: Bench) -> None:
    bench.ask(DIGEST, 1)
    bench.no_message("digest")
    entry = digest_entry(bench, max_list_size=1, ack_timeout_ns=0)
    bench.insert(entry)
    bench.ask(DIGEST, 2)
    expect(seen(bench.message("digest")), [2], "digests after INSERT")
    bench.delete(entry)
    bench.ask(DIGEST, 3)
    bench.no_message("digest")


@check("9.8", "a list waits until it is full, with distinct digests only")
def full_list(bench: Bench) -> None:
    bench.insert(digest_entry(bench, max_timeout_ns=LONG, max_list_size=3, ack_timeout_ns=LONG))
    bench.ask_all(DIGEST, [(value, 0, 0) for value in (1, 1, 2, 2, 1)])
    bench.no_message("digest")
    bench.ask(DIGEST, 3)
    expect(seen(bench.message("digest")), [1, 2, 3], "the digests of the list")


@check("9.8", "a list does not wait longer than max_timeout_ns")
def list_timeout(bench: Bench) -> None:
    bench.insert(digest_entry(bench, max_timeout_ns=50_000_000, max_list_size=1000, ack_timeout_ns=LONG))
    bench.ask(DIGEST, 1)
    expect(seen(bench.message("digest")), [1], "the digests of the list")


@check("9.8", "what was not acknowledged is not sent again; after the acknowledgement it is")
def acknowledged(bench: Bench) -> None:
    bench.insert(digest_entry(bench, max_list_size=1, ack_timeout_ns=LONG))
    bench.ask(DIGEST, 1)
    first = bench.message("digest")
    bench.ask(DIGEST, 1)
    bench.no_message("digest")
    acknowledge(bench, first)
    for _ in range(50):  # the acknowledgement overtakes nothing, but it takes a moment
        bench.ask(DIGEST, 1)
        if bench.has("digest"):
            break
    second = bench.message("digest")
    expect(seen(second), [1], "the digests of the second list")
    if second.list_id == first.list_id:
        fail(f"both lists have the id {first.list_id}")


@check("9.8", "ack_timeout_ns ends the wait for an acknowledgement")
def ack_timeout(bench: Bench) -> None:
    bench.insert(digest_entry(bench, max_list_size=1, ack_timeout_ns=50_000_000))
    bench.ask(DIGEST, 1)
    bench.message("digest")
    bench.no_message("digest", 0.2)
    bench.ask(DIGEST, 1)
    expect(seen(bench.message("digest")), [1], "the digests after the timeout")


@check("9.8", "a DigestEntry is read as it was written; twice, it is there; unknown, it is not")
def digest_errors(bench: Bench) -> None:
    entry = digest_entry(bench, max_timeout_ns=5, max_list_size=6, ack_timeout_ns=7)
    bench.refused("MODIFY", entry, MISSING, why="a digest that is not enabled")
    bench.refused("DELETE", entry, MISSING, why="a digest that is not enabled")
    bench.insert(entry)
    bench.refused("INSERT", entry, EXISTS, why="a digest that is enabled")
    bench.found(p4r.DigestEntry(), [entry], "all digest entries")
    changed = digest_entry(bench, max_timeout_ns=8, max_list_size=9, ack_timeout_ns=10)
    bench.modify(changed)
    bench.found(p4r.DigestEntry(digest_id=entry.digest_id), [changed], "the modified entry")
    unknown = p4r.DigestEntry(digest_id=0x17FFFFFF, config={"max_list_size": 1})
    bench.refused("INSERT", unknown, MISSING, INVALID, why="an unknown digest")


@check("9.8", "an acknowledgement for an unknown digest is answered by a stream error, if at all")
def wrong_ack(bench: Bench) -> None:
    bench.client.send(digest_ack=p4r.DigestListAck(digest_id=0x17FFFFFF, list_id=1))
    bench.ask(0)
    if bench.has("error"):
        error = bench.message("error")
        expect(error.canonical_code, INVALID, "the error's code")
        expect(error.WhichOneof("details"), "digest_list_ack", "what the error is about")


@check("9.6", "a set in two parts matches both of them, one exactly and one under a mask", "parsing")
def set_of_structs(bench: Bench) -> None:
    pairs = p4r.ValueSetEntry(value_set_id=bench.program.id("value_sets", "pairs"))
    member = pairs.members.add()
    member.match.add(field_id=1, exact={"value": binary(0x123)})
    member.match.add(field_id=2, ternary={"value": binary(0x500), "mask": binary(0xF00)})
    bench.modify(pairs)
    pair = lambda a, b: (a << 20 | b).to_bytes(4, "big") + bytes(40)  # noqa: E731
    found = [bench.ask(7, payload=pair(*key)).hit for key in ((0x123, 0x5FF), (0x123, 0x6FF), (0x124, 0x5FF))]
    expect(found, [2, 0, 0], "ways of (0x123, 0x5ff), (0x123, 0x6ff), (0x124, 0x5ff)")
