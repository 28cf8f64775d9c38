# SPDX-License-Identifier: Apache-2.0
"""v1model: parsers, header stacks and unions."""

from finsy.proto import p4r

from accesspoint.checks.conformance.fixture import PADDING, REQUEST, Answer, Fixture
from accesspoint.checks.conformance.suite import check, expect
from accesspoint.checks.harness.p4runtime import exact

TOO_SHORT, NO_MATCH, OUT_OF_BOUNDS, HEADER_TOO_SHORT, UNWANTED, UNLIKELY = 1, 2, 3, 4, 6, 7
ITEMS, OPTIONS, LIST, LOOK, STEP, VERIFY, PAIR, WAYS, PUSH, POP, INVALIDATE, LONG, NO_CASE = range(1, 14)
UNION, INDEX, ASSIGN = 15, 16, 17


def behind(answer: Answer) -> bytes:
    """Return the bytes behind the request, without the padding's zeros."""
    return answer.rest[REQUEST.size :].rstrip(b"\0")


@check("v1.parser", "lookahead reads and leaves the packet where it is", "parsing")
def lookahead(fixture: Fixture) -> None:
    answer = fixture.ask(LOOK, payload=b"\xab\xcd\xef\x12" + PADDING)
    expect(answer.value, 0xABCDE, "20 bits ahead of ab cd ef")
    expect(behind(answer), b"\xab\xcd\xef\x12", "the packet behind the request")


@check("v1.parser", "lookahead beyond the packet's end is PacketTooShort", "parsing")
def lookahead_too_far(fixture: Fixture) -> None:
    answer = fixture.ask(LOOK, payload=b"\xab\xcd")
    expect((answer.error_code, answer.value), (TOO_SHORT, 0), "error and value of 20 bits ahead of 2 bytes")


@check("v1.parser", "advance skips bits, which do not leave with the packet", "parsing")
def advance(fixture: Fixture) -> None:
    answer = fixture.ask(STEP, b=24, payload=b"\x01\x02\x03\xab\xc1\x23\x45" + PADDING)
    expect(answer.value, 0x12345, "the last 20 bits behind 24 bits")
    expect(behind(answer), b"\xab\xc1\x23\x45", "the packet behind the request")


@check("v1.parser", "advance beyond the packet's end is PacketTooShort", "parsing")
def advance_too_far(fixture: Fixture) -> None:
    expect(fixture.ask(STEP, b=8000, payload=PADDING).error_code, TOO_SHORT, "the parser's error")


@check("v1.parser", "a header that is not there whole is PacketTooShort, and the packet goes on to ingress", "parsing")
def too_short(fixture: Fixture) -> None:
    answer = fixture.ask(PAIR, payload=b"\x12\x34")
    expect(answer.error_code, TOO_SHORT, "the parser's error")
    expect(answer.rest[REQUEST.size :], b"\x12\x34", "the packet behind the request")


@check("v1.parser", "verify raises the program's own errors, and ends the parser", "parsing")
def verify(fixture: Fixture) -> None:
    found = [(one.error_code, one.hit) for one in (fixture.ask(VERIFY, b=b) for b in (1, 5, 250))]
    expect(found, [(0, 1), (UNWANTED, 0), (UNLIKELY, 0)], "errors, and what came after verify")


@check("v1.parser", "select: values, masks, ranges and default, the first case that fits", "parsing")
def cases(fixture: Fixture) -> None:
    ways = {(1, 2): 1, (0x801, 9): 3, (0x180, 7): 4, (0x180, 8): 0, (0x200, 7): 0, (0x1FF, 7): 4}
    pair = lambda a, b: (a << 20 | b).to_bytes(4, "big") + PADDING  # noqa: E731
    expect({key: fixture.ask(PAIR, payload=pair(*key)).hit for key in ways}, ways, "ways by the two values")


@check("v1.parser", "select over a key of 96 bits", "parsing")
def long_key(fixture: Fixture) -> None:
    found = [fixture.ask(LONG, b=b, c=c).hit for b, c in ((0xABCD, 0x12345678), (1, 0x12345678), (1, 1))]
    expect(found, [1, 2, 3], "ways")


@check("v1.parser", "select over a value set", "parsing")
def value_set(fixture: Fixture) -> None:
    ways = p4r.ValueSetEntry(value_set_id=fixture.program.id("value_sets", "ways"))
    ways.members.add(match=[exact(1, 0x77)])
    fixture.modify(ways)
    expect([fixture.ask(WAYS, a).hit for a in (0x77, 0x78)], [1, 2], "ways of a member and of another value")


@check("v1.parser", "no case that fits is NoMatch", "parsing")
def no_match(fixture: Fixture) -> None:
    found = [(one.hit, one.error_code) for one in (fixture.ask(NO_CASE, b=b) for b in (1, 2, 3))]
    expect(found, [(1, 0), (2, 0), (0, NO_MATCH)], "ways and errors")


@check("v1.parser", "a parser assigns and makes headers valid", "parsing")
def assigns(fixture: Fixture) -> None:
    answer = fixture.ask(ASSIGN, b=0xABC, c=0x12345)
    expect(answer.value, 0x12346, "what the parser added")
    expect(behind(answer), b"\xab\xc1\x23\x45", "the header that the parser made")


@check(
    "v1.parser", "varbit: its length is of the packet, also 0 and the longest, between fields of odd bits", "parsing"
)
def varbit(fixture: Fixture) -> None:
    for length in (0, 1, 2, 20):
        items = bytes(range(0x11, 0x11 + length))
        fields = 5 << (8 * length + 12) | int.from_bytes(items, "big") << 12 | 0xABC  # 4 bits, items, 12 bits
        whole = fields.to_bytes(length + 2, "big")
        answer = fixture.ask(LIST, b=8 * length, payload=whole + PADDING)
        expect(answer.error_code, 0, f"the parser's error of {length} bytes")
        expect(behind(answer), whole[:-1] + b"\xbd", f"the header with {length} bytes, its last field one more")


@check(
    "v1.parser",
    "varbit: a length beyond its declaration is HeaderTooShort, one beyond the packet PacketTooShort",
    "parsing",
)
def varbit_too_long(fixture: Fixture) -> None:
    expect(
        fixture.ask(LIST, b=168, payload=PADDING).error_code, HEADER_TOO_SHORT, "the error of 168 bits in varbit<160>"
    )
    expect(fixture.ask(LIST, b=160, payload=bytes(5)).error_code, TOO_SHORT, "the error of 160 bits in 5 bytes")


@check("v1.stacks", "next fills a stack, and it leaves as it came", "parsing")
def fills(fixture: Fixture) -> None:
    for items in (b"\x05", b"\x85\x06", b"\x85\x86\x07", b"\x85\x86\x87\x08"):
        answer = fixture.ask(ITEMS, payload=items + PADDING)
        found = (answer.value, answer.hit or 1, answer.error_code)
        expect(found, (5, len(items), 0), f"first value, elements and error of {items.hex()}")
        expect(behind(answer), items, "the elements that left")


@check("v1.stacks", "an element too many is StackOutOfBounds", "parsing")
def overflow(fixture: Fixture) -> None:
    answer = fixture.ask(ITEMS, payload=b"\x81\x82\x83\x84\x05" + PADDING)
    expect((answer.error_code, answer.hit), (OUT_OF_BOUNDS, 4), "the parser's error, and the elements that are valid")


@check("v1.stacks", "push_front moves elements back; the last one falls off", "parsing")
def push_front(fixture: Fixture) -> None:
    found = {items: behind(fixture.ask(PUSH, payload=items + PADDING)) for items in (b"\x85\x06", b"\x81\x82\x83\x04")}
    expect(found, {b"\x85\x06": b"\xd5\x85\x06", b"\x81\x82\x83\x04": b"\xd5\x81\x82\x83"}, "elements that left")


@check("v1.stacks", "pop_front moves elements forward", "parsing")
def pop_front(fixture: Fixture) -> None:
    found = {items: behind(fixture.ask(POP, payload=items + PADDING)) for items in (b"\x81\x82\x83\x04", b"\x05")}
    expect(found, {b"\x81\x82\x83\x04": b"\x83\x04", b"\x05": b""}, "elements that left")


@check("v1.stacks", "an element that is made invalid does not leave", "parsing")
def hole(fixture: Fixture) -> None:
    expect(behind(fixture.ask(INVALIDATE, payload=b"\x81\x82\x03" + PADDING)), b"\x81\x03", "the elements that left")


@check("v1.stacks", "elements are written and read by an index of the packet", "parsing")
def index(fixture: Fixture) -> None:
    answer = fixture.ask(INDEX, a=2, b=1, payload=b"\x81\x82\x83\x04" + PADDING)
    expect(answer.value, 2, "the element with index 1")
    expect(behind(answer), b"\x81\x82\xaa\x04", "the elements that left, index 2 written")


@check("v1.stacks", "a stack of unions keeps their order", "parsing")
def unions(fixture: Fixture) -> None:
    for options in (b"\x01\x09", b"\x02\0\0\1\5\x01\x07", b"\x01\x03\x01\x04\x02\1\2\3\4"):
        answer = fixture.ask(OPTIONS, payload=options + PADDING)
        wanted = options[1] if options[0] == 1 else int.from_bytes(options[1:5], "big")
        expect(
            (answer.value, answer.error_code), (wanted, 0), f"value of the first option and error of {options.hex()}"
        )
        expect(behind(answer), options, "the options that left")


@check("v1.stacks", "one union too many is StackOutOfBounds", "parsing")
def unions_overflow(fixture: Fixture) -> None:
    expect(fixture.ask(OPTIONS, payload=b"\x01\x02" * 4 + PADDING).error_code, OUT_OF_BOUNDS, "the parser's error")


@check("v1.stacks", "to make one member of a union valid makes the other one invalid", "parsing")
def one_member(fixture: Fixture) -> None:
    answer = fixture.ask(UNION, c=0x0A0B0C0D, payload=b"\x01\x09" + PADDING)
    expect((answer.value, answer.hit), (9, 0), "the first member's value, and whether it is still valid")
    expect(behind(answer), b"\x02\x0a\x0b\x0c\x0d", "the union that left")
