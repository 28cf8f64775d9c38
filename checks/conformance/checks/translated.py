# SPDX-License-Identifier: Apache-2.0
"""Sections 8.4 and 18: types of which clients see other values than the data plane.

Which value stands for which is the platform's business. Whatever it is, an entry is read as it was written, two values
are two, and what comes from the data plane is said as the client said it.
"""

from collections.abc import Callable
from functools import wraps

import grpc
from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.fixture import Fixture, between, lpm, ternary
from accesspoint.checks.conformance.suite import NotApplicable, check, expect
from accesspoint.checks.harness.p4runtime import binary, exact

EXACT, TERNARY, LPM, RANGE, PORT, _, DIGEST, WRITE, READ = range(1, 10)
OF_NAME, PERHAPS, SAMPLE, KEEP = range(1, 5)
ALL = 0xFFFFFFFF
TOO_WIDE = (rpc_code.OUT_OF_RANGE, rpc_code.INVALID_ARGUMENT)


def loads(program: str) -> Callable[[Callable[[Fixture], None]], Callable[[Fixture], None]]:
    """The check runs with that program; it is not applicable where the server refuses it as UNIMPLEMENTED."""

    def wrap(run: Callable[[Fixture], None]) -> Callable[[Fixture], None]:
        @wraps(run)
        def checked(fixture: Fixture) -> None:
            fixture.client = fixture.connect().become_primary(fixture.next_election())
            try:
                fixture.load(program)
            except grpc.RpcError as failure:
                if failure.code() == grpc.StatusCode.UNIMPLEMENTED:
                    raise NotApplicable("the server does not translate this type (UNIMPLEMENTED)") from None
                raise
            run(fixture)

        return checked

    return wrap


def half(fixture: Fixture, kind: str, match: p4r.FieldMatch, value: int, priority: int = 0) -> p4r.TableEntry:
    """An entry of one of the tables whose key is `half`."""
    return fixture.entry(f"{kind}_half", [match], ("say", value), priority=priority)


@check("8.4", "a number of a wider type: match and parameter are read as they were written", program=None)
@loads("types")
def wider_number(fixture: Fixture) -> None:
    entry = half(fixture, "exact", exact(1, 7), 0xABCD)
    fixture.insert(entry)
    fixture.found(fixture.entry("exact_half"), [entry], "the entry")
    expect([fixture.ask(EXACT, b=b).value for b in (7, 8)], [0xABCD, 0], "answers to 7 and 8")


@check("8.4", "a number that the data plane cannot hold is refused, not cut", program=None)
@loads("types")
def too_wide(fixture: Fixture) -> None:
    fixture.refused("INSERT", half(fixture, "exact", exact(1, 0x10007), 1), *TOO_WIDE, why="a match of 17 bits in 16")
    fixture.refused(
        "INSERT", half(fixture, "exact", exact(1, 7), 0x10001), *TOO_WIDE, why="a parameter of 17 bits in 16"
    )
    fixture.refused("INSERT", half(fixture, "exact", exact(1, b"\1" + bytes(4)), 1), *TOO_WIDE, why="33 bits in 32")
    fixture.found(fixture.entry("exact_half"), [], "what was refused")


@check("8.4", "TERNARY, LPM and RANGE of a wider type name one value with all of its bits", program=None)
@loads("types")
def one_value(fixture: Fixture) -> None:
    for op, kind, match, priority in (
        (TERNARY, "ternary", ternary(1, 9, ALL), 5),
        (LPM, "lpm", lpm(1, 9, 32), 0),
        (RANGE, "range", between(1, 9, 9), 5),
    ):
        entry = half(fixture, kind, match, 1, priority)
        fixture.insert(entry)
        fixture.found(fixture.entry(f"{kind}_half"), [entry], f"the entry of {kind}_half")
        expect([fixture.ask(op, b=b).value for b in (9, 8, 0x8009)], [1, 0, 0], f"{kind}: answers to 9, 8 and 0x8009")


@check("8.4", "ports of a wider type: matched, chosen, in packet-outs and packet-ins", program=None)
@loads("types")
def ports(fixture: Fixture) -> None:
    entry = fixture.entry("port_table", [exact(1, fixture.home)], ("send_to", fixture.place.cpu_port))
    fixture.insert(entry)
    fixture.found(fixture.entry("port_table"), [entry], "the entry")
    number, frame = fixture.request(PORT)
    ((port, _),) = fixture.exchange(number, frame)
    expect(port, fixture.place.cpu_port, "the port that the entry sends to")
    packet = fixture.message("packet")
    said = [(one.metadata_id, one.value) for one in packet.metadata if one.metadata_id == 1]
    expect(said, [(1, binary(fixture.home))], "the ingress port of the packet-in")
    number, frame = fixture.request(0)
    fixture.packet_out(frame, fixture.home)
    expect(
        [port for port, _ in fixture.collect(number, 1, fixture.place.wait)],
        [fixture.home],
        "where a packet-out leaves",
    )


@check("8.4", "registers and digests of a wider type", program=None)
@loads("types")
def wider_data(fixture: Fixture) -> None:
    cell = p4r.RegisterEntry(register_id=fixture.program.id("registers", "halves"), index={"index": 1})
    fixture.ask(WRITE, b=0x1234)
    if fixture.client.read_code(register_entry=cell) == rpc_code.UNIMPLEMENTED:
        raise NotApplicable("the server does not read registers (UNIMPLEMENTED)")
    (found,) = fixture.read(cell)
    expect(found.data.bitstring, b"\x12\x34", "the register's cell")
    cell.data.bitstring = b"\x43\x21"
    fixture.modify(cell)
    expect(fixture.ask(READ).value, 0x4321, "what the program reads")
    cell.data.bitstring = b"\1\0\0"
    fixture.refused("MODIFY", cell, *TOO_WIDE, why="17 bits in a cell of 16")
    fixture.insert(
        p4r.DigestEntry(digest_id=fixture.program.id("digests", "half_digest_t"), config={"max_list_size": 1})
    )
    fixture.ask(DIGEST, b=0x0102)
    (sample,) = fixture.message("digest").data
    said = [member.bitstring for member in sample.struct.members]
    expect(said, [b"\1\2", binary(fixture.home)], "the digest's values")


def name_a(fixture: Fixture, a: int, name: bytes) -> p4r.TableEntry:
    """Requests with this `a` have this name."""
    return fixture.entry("give_name", [exact(1, a)], ("set_name", name))


@check("8.4", "strings: two names are two, in exact and optional fields and in parameters", program=None)
@loads("strings")
def names(fixture: Fixture) -> None:
    given = [name_a(fixture, a, name) for a, name in ((1, b"1"), (2, b"12"), (3, b"65535"))]
    fixture.insert(*given)
    fixture.found(fixture.entry("give_name"), given, "entries with a name as parameter")
    named = [fixture.entry("of_name", [exact(1, name)], ("say", v)) for v, name in ((10, b"1"), (20, b"12"))]
    perhaps = p4r.FieldMatch(field_id=1, optional={"value": b"12"})
    fixture.insert(*named, fixture.entry("perhaps_of_name", [perhaps], ("say", 5), priority=1))
    fixture.found(fixture.entry("of_name"), named, "entries with a name as key")
    expect([fixture.ask(OF_NAME, a).value for a in (1, 2, 3)], [10, 20, 0], "answers to three names")
    expect([fixture.ask(PERHAPS, a).value for a in (1, 2, 3)], [0, 5, 0], "answers to three names, optional")


@check("8.4", "strings: what comes from the data plane is named as the client named it", program=None)
@loads("strings")
def names_return(fixture: Fixture) -> None:
    fixture.insert(name_a(fixture, 1, b"321"))
    fixture.insert(
        p4r.DigestEntry(digest_id=fixture.program.id("digests", "name_digest_t"), config={"max_list_size": 1})
    )
    fixture.ask(SAMPLE, 1)
    (sample,) = fixture.message("digest").data
    expect(sample.struct.members[0].bitstring, b"321", "the digest's name")
    fixture.ask(KEEP, 1)
    cell = p4r.RegisterEntry(register_id=fixture.program.id("registers", "names"), index={"index": 0})
    if fixture.client.read_code(register_entry=cell) == rpc_code.OK:
        (found,) = fixture.read(cell)
        expect(found.data.bitstring, b"321", "the register's name")


@check("8.4", "strings: a name that stands for nothing is refused, and changes nothing", program=None)
@loads("strings")
def unknown_names(fixture: Fixture) -> None:
    for name in (b"no such name \xff", b"99999999999999999999"):
        code = fixture.outcome("INSERT", name_a(fixture, 1, name))
        if code == rpc_code.OK:
            fixture.found(fixture.entry("give_name"), [name_a(fixture, 1, name)], "an entry with a name of its own")
            fixture.delete(name_a(fixture, 1, name))
        else:
            expect(code in TOO_WIDE, True, f"{name!r} is refused as OUT_OF_RANGE or INVALID_ARGUMENT")
            fixture.found(fixture.entry("give_name"), [], "an entry that was refused")
