# SPDX-License-Identifier: Apache-2.0
"""The simple test format (STF) in which p4c writes packet cases, as data. Pure: knows neither files nor switches.

A statement stands on one line, `#` begins a comment, keywords are of either case:

    packet PORT HEX             a frame into the switch; spaces within the hex digits mean nothing
    expect PORT HEX             a frame that begins so leaves; `*` is any digit, `$` at the end: and it is no longer
    expect PORT                 any frame leaves
    no_packet                   nothing more leaves than is expected
    add TABLE [PRIORITY] FIELD:VALUE... ACTION(PARAM:VALUE,...) [= NAME]
    setdefault TABLE ACTION(PARAM:VALUE,...)
    remove all                  every entry of every table
    check_counter NAME(INDEX) [packets|bytes ==|!=|<|<=|>|>= VALUE]
    wait                        until the frames before are through

and the commands of BMv2's own shell for multicast (mc_*), clones (mirroring_*), counters, registers and meters. The
higher PRIORITY wins. A VALUE is decimal, `0x` or `0b`, with `*` for digits that do not matter; `VALUE/LENGTH` is a
prefix, `VALUE&&&MASK` a ternary one, `LOW->HIGH` a range. A name may stand within quotes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

MAX_PORT = 511
MAX_FRAME = 1 << 16  # bytes
MAX_BITS = 2048  # of a number, as of p4c's widest

NAME = r'"[^"\s]+"|[A-Za-z_$](?:[\w$.]|\[\d+\])*'
NUMBER = r"0[xX][0-9a-fA-F*]+|0[bB][01*]+|\d+"
TOKEN = re.compile(
    rf"\s*(?:(?P<rate>\d+\.\d+)|(?P<number>{NUMBER})|(?P<name>{NAME})|(?P<sign>&&&|->|[=!<>]=|[():,/=<>]))",
    re.ASCII,
)
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class StfError(Exception):
    """A statement that cannot be parsed: one line that names file and line."""


@dataclass(frozen=True)
class Value:
    """A number as it is written. mask: the bits that its digits say something of; None: it is decimal, so all of them.

    length: of a prefix; high: the end of a range."""

    value: int
    mask: int | None = None
    digits: int = 0  # bits that all its digits stand for
    length: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Packet:
    line: int
    port: int
    frame: bytes


@dataclass(frozen=True)
class Expect:
    """digits: hex ones and `*`, of the frame's begin. exact: the frame ends behind them. None: any frame."""

    line: int
    port: int
    digits: str | None
    exact: bool = False


@dataclass(frozen=True)
class Call:
    action: str
    params: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Add:
    line: int
    table: str
    priority: int
    match: tuple[tuple[str, Value], ...]
    call: Call
    name: str = ""


@dataclass(frozen=True)
class SetDefault:
    line: int
    table: str
    call: Call


@dataclass(frozen=True)
class RemoveAll:
    line: int


@dataclass(frozen=True)
class CheckCounter:
    """cell: an index, or `$NAME` of an entry. unit: packets or bytes, compared with a number; empty: only read."""

    line: int
    counter: str
    cell: int | str
    unit: str = ""
    comparison: str = "=="
    value: int = 0


@dataclass(frozen=True)
class Command:
    """A command of the switch's shell: its word, the object it names, numbers, and pairs of rate (per microsecond) and
    burst."""

    line: int
    word: str
    name: str = ""
    numbers: tuple[int, ...] = ()
    rates: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True)
class Wait:
    line: int


Statement = Packet | Expect | Add | SetDefault | RemoveAll | CheckCounter | Command | Wait

# Syntax of each command: whether it names an object, the numbers that follow (at least, at most), and whether rates do.
COMMANDS = {
    "mirroring_add": (False, 2, 2, False),
    "mirroring_add_mc": (False, 2, 2, False),
    "mirroring_delete": (False, 1, 1, False),
    "mirroring_get": (False, 1, 1, False),
    "mc_mgrp_create": (False, 1, 1, False),
    "mc_node_create": (False, 1, 512, False),
    "mc_node_update": (False, 1, 512, False),
    "mc_node_associate": (False, 2, 2, False),
    "counter_read": (True, 1, 1, False),
    "counter_write": (True, 3, 3, False),
    "register_read": (True, 1, 1, False),
    "register_write": (True, 2, 2, False),
    "register_reset": (True, 0, 0, False),
    "meter_get_rates": (True, 1, 1, False),
    "meter_set_rates": (True, 1, 1, True),
    "meter_array_set_rates": (True, 0, 0, True),
}


def parse(text: str, file: str) -> list[Statement]:
    """The statements of a case. file: what errors call it. Raises StfError."""
    statements = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].split(maxsplit=1)
        if words:
            statements.append(_Line(file, number, words[1] if len(words) > 1 else "").statement(words[0].lower()))
    return statements


@dataclass
class _Line:
    """A line of a case, without its keyword."""

    file: str
    number: int
    text: str
    tokens: list[tuple[str, str]] = field(default_factory=list)

    def fail(self, what: str) -> NoReturn:
        raise StfError(f"{self.file}:{self.number}: {what}")

    def statement(self, keyword: str) -> Statement:
        if keyword in ("packet", "expect"):
            return self.frame(keyword)
        readers: dict[str, Callable[[], Statement]] = {
            "add": self.add,
            "setdefault": lambda: SetDefault(self.number, self.name("a table"), self.call()),
            "remove": self.remove,
            "check_counter": self.check_counter,
            "wait": lambda: Wait(self.number),
            "no_packet": lambda: Wait(self.number),
        }
        if keyword not in readers and keyword not in COMMANDS:
            self.fail(f"'{shorten(keyword)}' is no statement of STF")
        self.split()
        statement = readers[keyword]() if keyword in readers else self.command(keyword)
        if self.tokens:
            self.fail(f"'{shorten(self.tokens[0][1])}' is too much")
        return statement

    def split(self) -> None:
        at, text = 0, self.text.rstrip()
        while at < len(text):
            match = TOKEN.match(text, at)
            if not match:
                self.fail(f"'{shorten(text[at:].strip())}' cannot be read")
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind].strip('"')))
            at = match.end()

    # Frames

    def frame(self, keyword: str) -> Packet | Expect:
        words = self.text.split(maxsplit=1)
        if not words or not re.fullmatch(r"[0-9]{1,4}", words[0]) or int(words[0]) > MAX_PORT:
            self.fail(f"a port from 0 to {MAX_PORT} is wanted behind {keyword}")
        port = int(words[0])
        digits = "".join(words[1].split()) if len(words) > 1 else ""
        exact = digits.endswith("$")
        digits = digits.removesuffix("$")
        if len(digits) > 2 * MAX_FRAME:
            self.fail(f"a frame has at most {MAX_FRAME} bytes")
        if keyword == "packet":
            if exact or not re.fullmatch(r"(?:[0-9a-fA-F]{2})+", digits):
                self.fail("a packet is an even number of hex digits, and one byte at least")
            return Packet(self.number, port, bytes.fromhex(digits))
        if not digits and not exact:
            return Expect(self.number, port, None)
        if not re.fullmatch(r"[0-9a-fA-F*]*", digits):
            self.fail("what is expected is hex digits and '*', with '$' only at the end")
        return Expect(self.number, port, digits.lower(), exact)

    # Entries

    def add(self) -> Add:
        table = self.name("a table")
        priority = self.plain("a priority") if self.peek() == "number" else 0
        match = []
        while self.peek(1) == ":":
            field_name = self.name("a field")
            self.sign(":")
            match.append((field_name, self.value()))
        call = self.call()
        name = ""
        if self.tokens:
            self.sign("=")
            name = self.name("the entry's name")
        return Add(self.number, table, priority, tuple(match), call, name)

    def call(self) -> Call:
        action = self.name("an action")
        self.sign("(")
        params: list[tuple[str, int]] = []
        while self.peek() != ")":
            if params:
                self.sign(",")
            param = self.name("a parameter")
            self.sign(":")
            params.append((param, self.plain("the parameter's value")))
        self.sign(")")
        return Call(action, tuple(params))

    def value(self) -> Value:
        first = self.digits("the field's value")
        if self.peek() == "/":
            self.sign("/")
            return Value(first.value, first.mask, first.digits, length=self.plain("a prefix length"))
        if self.peek() == "&&&":
            self.sign("&&&")
            return Value(first.value, self.plain("a mask"), first.digits)
        if self.peek() == "->":
            self.sign("->")
            return Value(first.value, first.mask, first.digits, high=self.plain("the range's end"))
        return first

    def remove(self) -> RemoveAll:
        if self.name("'all'").lower() != "all":
            self.fail("only 'remove all' is known")
        return RemoveAll(self.number)

    def check_counter(self) -> CheckCounter:
        counter = self.name("a counter")
        self.sign("(")
        cell = self.plain("an index") if self.peek() == "number" else self.name("an index or $NAME")
        self.sign(")")
        if not self.tokens:
            return CheckCounter(self.number, counter, cell)
        unit = self.name("packets or bytes").lower()
        comparison = self.take("sign", "a comparison") if self.tokens else ""
        if unit not in ("packets", "bytes") or comparison not in COMPARISONS:
            self.fail(f"'packets' or 'bytes' and one of {' '.join(COMPARISONS)} are wanted")
        return CheckCounter(self.number, counter, cell, unit, comparison, self.plain("a number"))

    def command(self, word: str) -> Command:
        named, least, most, rated = COMMANDS[word]
        name = self.name("a name") if named else ""
        numbers: list[int] = []
        while self.peek() == "number" and len(numbers) < most:
            numbers.append(self.plain("a number"))
        if len(numbers) < least:
            self.fail(f"{word} wants {least} numbers")
        rates = []
        while rated and self.tokens:
            kind, text = self.tokens[0]
            if kind not in ("rate", "number") or not re.fullmatch(r"[\d.]{1,40}", text):
                self.fail("a rate per microsecond is wanted")
            self.tokens.pop(0)
            self.sign(":")
            rates.append((float(text), self.plain("a burst")))
        return Command(self.number, word, name, tuple(numbers), tuple(rates))

    # Tokens

    def peek(self, ahead: int = 0) -> str:
        """The kind of a token, or what sign it is; empty behind the last."""
        if len(self.tokens) <= ahead:
            return ""
        kind, text = self.tokens[ahead]
        return text if kind == "sign" else kind

    def take(self, kind: str, what: str) -> str:
        if not self.tokens or self.tokens[0][0] != kind:
            found = f"'{shorten(self.tokens[0][1])}' is there" if self.tokens else "the line ends"
            self.fail(f"{what} is wanted, and {found}")
        return self.tokens.pop(0)[1]

    def name(self, what: str) -> str:
        return self.take("name", what)

    def sign(self, sign: str) -> None:
        if self.peek() != sign:
            self.take("", f"'{sign}'")
        self.tokens.pop(0)

    def plain(self, what: str) -> int:
        """A number of which every digit is known."""
        value = self.digits(what)
        if value.mask is not None and value.mask != (1 << value.digits) - 1:
            self.fail(f"{what} has no '*'")
        return value.value

    def digits(self, what: str) -> Value:
        text = self.take("number", what)
        if len(text) > MAX_BITS:
            self.fail(f"{what} has at most {MAX_BITS} bits")
        if text[:2].lower() not in ("0x", "0b"):
            return Value(int(text))
        bits, base = (4, 16) if text[1] in "xX" else (1, 2)
        one = "f" if base == 16 else "1"
        known = re.sub(r"[^*]", one, text[2:]).replace("*", "0")
        return Value(int(text[2:].replace("*", "0"), base), int(known, base), bits * len(known))


def shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
