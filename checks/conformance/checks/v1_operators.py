# SPDX-License-Identifier: Apache-2.0
"""v1model: every operator of P4_16, at odd and even widths, against Python's integers."""

from collections.abc import Callable

from accesspoint.checks.conformance.fixture import Fixture
from accesspoint.checks.conformance.suite import check, fail

WIDTHS = (5, 13, 33, 48, 64, 128)
LONG = 128
OF_ONE_WIDTH = 40  # operations from here on take no width
Operator = Callable[[int, int, int], int]  # width, x, y


def signed(width: int, value: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def saturate(width: int, value: int) -> int:
    return clamp(value, 0, (1 << width) - 1)


def saturate_signed(width: int, value: int) -> int:
    return clamp(value, -(1 << (width - 1)), (1 << (width - 1)) - 1)


def operands(width: int) -> list[tuple[int, int]]:
    """Pairs around the borders of a width, and two in between."""
    top, half = (1 << width) - 1, 1 << (width - 1)
    some = 0x5A3C96E1F00DBEEF_0FF1CE5EED1234567 & top
    return [(0, 0), (top, 1), (1, top), (half, half), (half - 1, 1), (some, 3), (3, some), (some, some)]


def shifts(width: int) -> list[tuple[int, int]]:
    """Values, and shifts by less than, exactly and more than the width."""
    top, half = (1 << width) - 1, 1 << (width - 1)
    return [(value, by) for value in (top, half | 1) for by in {0, 1, width - 1, width, width + 1, 31, 200}]


def run(fixture: Fixture, op: int, cases: list[tuple[int, int, int, int]]) -> list[int]:
    """The results of (width, x, y, _) in order."""
    frames = []
    for width, x, y, _ in cases:
        payload = x.to_bytes(16, "big") + y.to_bytes(16, "big") + bytes(20)
        frames.append(fixture.request(op, width if op < OF_ONE_WIDTH else 0, 0, 0, payload))
    return [int.from_bytes(frame[22:38], "big") for frame in fixture.pass_all(frames)]


def agree(fixture: Fixture, op: int, name: str, cases: list[tuple[int, int, int, int]]) -> None:
    """The results are the wanted ones, the last of each case."""
    for (width, x, y, wanted), found in zip(cases, run(fixture, op, cases), strict=True):
        if found != wanted:
            fail(f"bit<{width}> {x:#x} {name} {y:#x} is {found:#x} instead of {wanted:#x}")


def at_all_widths(
    fixture: Fixture, op: int, name: str, operator: Operator, pairs: Callable[[int], list[tuple[int, int]]] = operands
) -> None:
    cases = [(w, x, y, operator(w, x, y) & ((1 << w) - 1)) for w in WIDTHS for x, y in pairs(w)]
    agree(fixture, op, name, cases)


@check("v1.operators", "unsigned + - * and unary - wrap around", "operators")
def arithmetic(fixture: Fixture) -> None:
    at_all_widths(fixture, 1, "+", lambda w, x, y: x + y)
    at_all_widths(fixture, 2, "-", lambda w, x, y: x - y)
    at_all_widths(fixture, 3, "*", lambda w, x, y: x * y)
    at_all_widths(fixture, 10, "negated, beside", lambda w, x, y: -x)


@check("v1.operators", "unsigned |+| and |-| saturate", "operators")
def saturating(fixture: Fixture) -> None:
    at_all_widths(fixture, 4, "|+|", lambda w, x, y: saturate(w, x + y))
    at_all_widths(fixture, 5, "|-|", lambda w, x, y: saturate(w, x - y))


@check("v1.operators", "& | ^ ~", "operators")
def bitwise(fixture: Fixture) -> None:
    at_all_widths(fixture, 6, "&", lambda w, x, y: x & y)
    at_all_widths(fixture, 7, "|", lambda w, x, y: x | y)
    at_all_widths(fixture, 8, "^", lambda w, x, y: x ^ y)
    at_all_widths(fixture, 9, "inverted, beside", lambda w, x, y: ~x)


@check("v1.operators", "<< and >>, also by the width and more", "operators")
def shift(fixture: Fixture) -> None:
    at_all_widths(fixture, 11, "<<", lambda w, x, y: x << y, shifts)
    at_all_widths(fixture, 12, ">>", lambda w, x, y: x >> y, shifts)


@check("v1.operators", "signed + - * and unary - wrap around", "operators")
def signed_arithmetic(fixture: Fixture) -> None:
    at_all_widths(fixture, 13, "signed +", lambda w, x, y: signed(w, x) + signed(w, y))
    at_all_widths(fixture, 14, "signed -", lambda w, x, y: signed(w, x) - signed(w, y))
    at_all_widths(fixture, 18, "signed *", lambda w, x, y: signed(w, x) * signed(w, y))
    at_all_widths(fixture, 27, "signed, negated, beside", lambda w, x, y: -signed(w, x))


@check("v1.operators", "signed |+| and |-| saturate at both ends", "operators")
def signed_saturating(fixture: Fixture) -> None:
    at_all_widths(fixture, 15, "signed |+|", lambda w, x, y: saturate_signed(w, signed(w, x) + signed(w, y)))
    at_all_widths(fixture, 16, "signed |-|", lambda w, x, y: saturate_signed(w, signed(w, x) - signed(w, y)))


@check("v1.operators", "signed >> keeps the sign, signed << wraps around", "operators")
def signed_shift(fixture: Fixture) -> None:
    at_all_widths(fixture, 17, "signed >>", lambda w, x, y: signed(w, x) >> y, shifts)
    at_all_widths(fixture, 26, "signed <<", lambda w, x, y: signed(w, x) << y, shifts)


@check("v1.operators", "unsigned < <= == != and ?:", "operators")
def compare(fixture: Fixture) -> None:
    at_all_widths(fixture, 19, "<", lambda w, x, y: int(x < y))
    at_all_widths(fixture, 20, "<=", lambda w, x, y: int(x <= y))
    at_all_widths(fixture, 23, "==", lambda w, x, y: int(x == y))
    at_all_widths(fixture, 24, "!=", lambda w, x, y: int(x != y))
    at_all_widths(fixture, 25, "max", lambda w, x, y: max(x, y))


@check("v1.operators", "signed < and >=", "operators")
def signed_compare(fixture: Fixture) -> None:
    at_all_widths(fixture, 21, "signed <", lambda w, x, y: int(signed(w, x) < signed(w, y)))
    at_all_widths(fixture, 22, "signed >=", lambda w, x, y: int(signed(w, x) >= signed(w, y)))


X, Y = 0x0123456789ABCDEF_FEDCBA9876543210, 0xF0E1D2C3B4A59687_78695A4B3C2D1E0F


def long(fixture: Fixture, op: int, name: str, wanted: int, x: int = X, y: int = Y) -> None:
    agree(fixture, op, name, [(LONG, x, y, wanted)])


@check("v1.operators", "++ joins odd widths", "operators")
def concatenation(fixture: Fixture) -> None:
    long(fixture, 40, "[12:0] ++ [6:0] of", (X & 0x1FFF) << 7 | Y & 0x7F)


@check("v1.operators", "a slice is read and written across bytes, and leaves the rest alone", "operators")
def slices(fixture: Fixture) -> None:
    mask = ((1 << 64) - 1) << 37
    long(fixture, 41, "[100:37] beside", (X & mask) >> 37)
    long(fixture, 42, "[100:37] =", X & ~mask | (Y & (1 << 64) - 1) << 37)


@check("v1.operators", "casts cut, extend with zeros, and extend the sign", "operators")
def casts(fixture: Fixture) -> None:
    long(fixture, 43, "as bit<13>, then bit<7>, beside", X & 0x7F)
    for x in (0x1ABC, 0x0ABC):
        long(fixture, 44, "as int<13>, then int<48>, beside", signed(13, x) & (1 << 48) - 1, x)


@check("v1.operators", "& binds tighter than |; && and || need no second operand that does not matter", "operators")
def precedence(fixture: Fixture) -> None:
    long(fixture, 50, "masked with", X & 0xFF00FF00 | Y & 0x00FF00FF)
    for (x, y), wanted in {(1, 1): 7, (1, 2): 9, (1, 3): 7, (2, 1): 9}.items():
        long(fixture, 51, "is 1 and so on", wanted, x, y)


@check("v1.operators", "all of them on 256 bits", "operators")
def wide_operands(fixture: Fixture) -> None:
    for x, y in ((X, Y), ((1 << 128) - 1, (1 << 128) - 1), (1 << 127, 1), (0, 1)):
        z, turned = x << 128 | y, y << 128 | x
        results = {
            (60, 0): z + turned,
            (61, 0): z - turned,
            (62, 0): z * turned,
            (65, 0): saturate(256, z + turned),
            (66, 0): saturate_signed(256, signed(256, z) + signed(256, turned)),
            (68, 0): 1 if z < turned else 2,
            (69, 0): (z >> 33) & (1 << 168) - 1,
            (70, 0): z & ~turned | z ^ turned,
        }
        for by in (1, 64, 129, 255):
            results |= {(63, by): z << by, (64, by): z >> by, (67, by): signed(256, z) >> by}
        payload = x.to_bytes(16, "big") + y.to_bytes(16, "big") + bytes(20)
        frames = fixture.pass_all(fixture.request(op, 0, by, 0, payload) for op, by in results)
        for ((op, by), wanted), frame in zip(results.items(), frames, strict=True):
            found, wanted = int.from_bytes(frame[22:54], "big"), wanted & (1 << 256) - 1
            if found != wanted:
                fail(f"bit<256> operation {op} with {by} of {z:#x} is {found:#x} instead of {wanted:#x}")
