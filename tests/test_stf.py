# SPDX-License-Identifier: Apache-2.0
"""Packet cases in p4c's simple test format: the language, what it means in P4Runtime, and runs of cases."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from finsy.proto import p4i, p4r
from hypothesis import given
from hypothesis import strategies as st

from accesspoint.checks.conformance.stf import cases, testgen
from accesspoint.checks.conformance.stf.entities import Entities, field_match
from accesspoint.checks.conformance.stf.language import (
    COMMANDS,
    Add,
    Call,
    CheckCounter,
    Command,
    Expect,
    Packet,
    RemoveAll,
    SetDefault,
    StfError,
    Value,
    Wait,
    parse,
)
from accesspoint.checks.conformance.stf.run import difference
from accesspoint.checks.conformance.suite import Failed, NotApplicable
from accesspoint.checks.harness.p4runtime import Program

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "checks/conformance/programs"
APSWITCH = ROOT / "target/release/apswitch"
NEEDS_SWITCH = pytest.mark.skipif(not APSWITCH.exists(), reason="apswitch is missing; build it with: make switch")


# The language


@pytest.mark.parametrize(
    ("line", "statement"),
    [
        ("packet 0 01 2345", Packet(1, 0, b"\x01\x23\x45")),
        ("PACKET 511 AB # why", Packet(1, 511, b"\xab")),
        ("expect 1 0a** 2 $", Expect(1, 1, "0a**2", exact=True)),
        ("expect 1 0A", Expect(1, 1, "0a")),
        ("expect 1", Expect(1, 1, None)),
        ("expect 1 $", Expect(1, 1, "", exact=True)),
        ("add t f:1 a()", Add(1, "t", 0, (("f", Value(1)),), Call("a"))),
        (
            "add c.t 7 h[2].x:0x1* f$0.g:0b01*0 c.a(p:3, q:0xff) = e",
            Add(
                1, "c.t", 7,
                (("h[2].x", Value(0x10, 0xF0, 8)), ("f$0.g", Value(4, 0b1101, 4))),
                Call("c.a", (("p", 3), ("q", 255))), "e",
            ),
        ),
        ('add "t" "f.$valid$":0x0/4 "a"("p":1)', Add(
            1, "t", 0, (("f.$valid$", Value(0, 0xF, 4, length=4)),), Call("a", (("p", 1),)),
        )),
        ("add t f:0x8&&&0xc a()", Add(1, "t", 0, (("f", Value(8, 0xC, 4)),), Call("a"))),
        ("add t f:2->0x4 a()", Add(1, "t", 0, (("f", Value(2, high=4)),), Call("a"))),
        ("add t a()", Add(1, "t", 0, (), Call("a"))),
        ("setdefault t a(x:1)", SetDefault(1, "t", Call("a", (("x", 1),)))),
        ("remove all", RemoveAll(1)),
        ("check_counter c(3) packets >= 2", CheckCounter(1, "c", 3, "packets", ">=", 2)),
        ("check_counter c($e)", CheckCounter(1, "c", "$e")),
        ("mc_node_create 5 1 2 3", Command(1, "mc_node_create", numbers=(5, 1, 2, 3))),
        ("register_write c.r 1 2", Command(1, "register_write", "c.r", (1, 2))),
        ("meter_set_rates m 2 0.5:4 2:5", Command(1, "meter_set_rates", "m", (2,), ((0.5, 4), (2.0, 5)))),
        ("wait", Wait(1)),
        ("no_packet", Wait(1)),
    ],
)  # fmt: skip
def test_statements_are_read(line: str, statement: object) -> None:
    assert parse(line, "case") == [statement]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("send 1 00", "'send' is no statement of STF"),
        ("packet 512 00", "a port from 0 to 511 is wanted behind packet"),
        ("packet", "a port from 0 to 511 is wanted"),
        ("packet 1", "one byte at least"),
        ("packet 1 0", "an even number of hex digits"),
        ("packet 1 0*", "an even number of hex digits"),
        ("expect 1 00$00", "'$' only at the end"),
        ("packet 1 " + "00" * 65537, "at most 65536 bytes"),
        ("add t f:1", "an action is wanted, and the line ends"),
        ("add t f:1 a(", "a parameter is wanted, and the line ends"),
        ("add t f:1 a(p:0x*)", "the parameter's value has no '*'"),
        ("add t f:1 a() b", "'=' is wanted, and 'b' is there"),
        ("add t f:1 a() = b c", "'c' is too much"),
        ("add t f:§ a()", "'§ a()' cannot be read"),
        ("add t f:" + "9" * 3000 + " a()", "at most 2048 bits"),
        ("remove t", "only 'remove all' is known"),
        ("check_counter c(1) frames == 1", "'packets' or 'bytes'"),
        ("mc_node_associate 1", "mc_node_associate wants 2 numbers"),
        ("mirroring_get 1 2", "'2' is too much"),
    ],
)
def test_what_cannot_be_read_is_named(line: str, words: str) -> None:
    with pytest.raises(StfError) as error:
        parse(f"wait\n\n{line}", "a.stf")
    assert str(error.value).startswith("a.stf:3: ")
    assert words in str(error.value)
    assert len(str(error.value)) < 200


WORDS = "packet expect add setdefault check_counter remove all wait t c.a f:1 p:1 $e"
SIGNS = ': / &&& -> ( ) , = == $ " "a" [1] * \n # \r \0 0x 0x1* 0b 0b1* 00 12 1.5 ² ٣ é'
PIECES = st.sampled_from([*COMMANDS, *WORDS.split(), *SIGNS.split(" ")])


@given(st.one_of(st.text(), st.lists(PIECES).map(" ".join), st.lists(PIECES).map("".join)))
def test_any_text_is_read_or_named(text: str) -> None:
    try:
        for statement in parse(text, "a.stf"):
            assert 1 <= statement.line <= text.count("\n") + 1
    except StfError as error:
        place, _, what = str(error).partition(": ")
        name, line = place.split(":")
        assert name == "a.stf"
        assert 1 <= int(line) <= text.count("\n") + 1
        assert what


# What it means in P4Runtime


def field(kind: str, width: int = 32) -> p4i.MatchField:
    return p4i.MatchField(id=1, name="f", bitwidth=width, match_type=p4i.MatchField.MatchType.Value(kind))


@pytest.mark.parametrize(
    ("kind", "value", "match"),
    [
        ("EXACT", "7", {"exact": {"value": b"\7"}}),
        ("TERNARY", "7", {"ternary": {"value": b"\7", "mask": b"\xff\xff\xff\xff"}}),
        ("TERNARY", "0x****0a0*", {"ternary": {"value": b"\x0a\0", "mask": b"\xff\xf0"}}),
        ("TERNARY", "0x********", None),
        ("TERNARY", "0xff&&&0x0f", {"ternary": {"value": b"\x0f", "mask": b"\x0f"}}),
        ("LPM", "0x0a01****", {"lpm": {"value": b"\x0a\1\0\0", "prefix_len": 16}}),
        ("LPM", "0x0a010203/20", {"lpm": {"value": b"\x0a\1\0\0", "prefix_len": 20}}),
        ("LPM", "5", {"lpm": {"value": b"\5", "prefix_len": 32}}),
        ("LPM", "0x********", None),
        ("RANGE", "1->9", {"range": {"low": b"\1", "high": b"\x09"}}),
        ("RANGE", "4", {"range": {"low": b"\4", "high": b"\4"}}),
        ("RANGE", "0->0xffffffff", None),
        ("OPTIONAL", "0x5", {"optional": {"value": b"\5"}}),
        ("OPTIONAL", "0x*", None),
    ],
)
def test_a_value_becomes_a_match(kind: str, value: str, match: dict[str, object] | None) -> None:
    (statement,) = parse(f"add t f:{value} a()", "case")
    assert isinstance(statement, Add)
    wanted = p4r.FieldMatch(field_id=1, **match) if match else None  # type: ignore[arg-type]
    assert field_match(field(kind), statement.match[0][1]) == wanted


def test_a_field_that_is_not_named_is_zero_or_everything() -> None:
    assert field_match(field("EXACT"), None) == p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\0"))
    assert field_match(field("TERNARY"), None) is None


@pytest.fixture
def entities() -> Entities:
    return Entities(Program(PROGRAMS / "entities.json", PROGRAMS / "entities.p4info.txtpb"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("add nothing f:1 say(value:1)", "the P4Info has no table nothing; there are EntitiesIngress.exact_table"),
        ("add lpm_table request.d:1 say(value:1)", "has no field request.d; there are hdr.request.c"),
        ("add lpm_table request.c:0x*1 say(value:1)", "'*' can only be at its end"),
        ("add lpm_table request.c:1/33 say(value:1)", "has 32 bits, and its prefix 33"),
        ("add narrow_table twelve:0x1* small(nibble:1,twelve:1)", "is exact, so no digit of it can be '*'"),
        ("add lpm_table request.c:1 small(nibble:1)", "has no action small; there are EntitiesIngress.say"),
        ("add lpm_table request.c:1 say()", "action say wants its parameter value"),
        ("add lpm_table request.c:1 say(value:1, hit:1)", "action say has no parameter hit"),
    ],
)
def test_what_the_program_does_not_have_is_named(entities: Entities, line: str, words: str) -> None:
    (statement,) = parse(line, "case")
    assert isinstance(statement, Add)
    with pytest.raises(Failed) as why:
        entities.add(statement)
    assert words in str(why.value)


def test_a_frame_is_compared_by_its_digits() -> None:
    def compared(line: str, frame: str) -> str:
        (one,) = parse(line, "case")
        assert isinstance(one, Expect)
        return difference(one, bytes.fromhex(frame))

    for line, frame in [("0*02", "0102"), ("0102", "010203"), ("010", "0102"), ("0102$", "0102"), ("", "01")]:
        assert not compared(f"expect 1 {line}", frame)
    assert compared("expect 1 0102$", "010203") == "3 bytes instead of 2 bytes: 010203"
    assert compared("expect 1 0102", "01") == "1 bytes instead of 2 bytes or more: 01"
    assert compared("expect 1 0*2*", "0132") == "digit 2 is 3 instead of 2: 0132 instead of 0*2*"


# The cases of a directory


def test_programs_of_cases_are_found(tmp_path: Path) -> None:
    for name in ("a.stf", "a.p4", "b_12.stf", "b.json", "c_1.stf", "c_1.p4"):
        (tmp_path / name).touch()
    assert [(case.name, case.program.name) for case in cases.find(tmp_path)] == [
        ("a", "a"),
        ("b_12", "b"),
        ("c_1", "c_1"),
    ]
    with pytest.raises(cases.CasesError, match=r"holds no \.stf file"):
        cases.find(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "there is no x.p4 next to it"),
        ("#include <core.p4>", "the program includes no architecture"),
        ('#include "other.p4"', "the program is for psa.p4, not for v1model"),
        ("# include <ebpf_model.p4>", "the program is for ebpf_model.p4, not for v1model"),
        ("#include <v1model.p4>", "p4c-bm2-ss is not on PATH, and there is no x.json next to it"),
    ],
)
def test_what_cannot_be_compiled_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, reason: str
) -> None:
    (tmp_path / "other.p4").write_text('#include "bmv2/psa.p4"\n#include "x.p4"\n')
    if source is not None:
        (tmp_path / "x.p4").write_text(source)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotApplicable) as why:
        cases.load(cases.Case(tmp_path / "x.stf", tmp_path / "x"), tmp_path)
    assert str(why.value) == reason


def test_what_p4c_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / cases.COMPILER
    compiler.write_text("#!/bin/sh\necho '/a/b/x.p4(3): [--Werror=x] error: no such thing' >&2\nexit 1\n")
    compiler.chmod(0o755)
    (tmp_path / "x.p4").write_text("#include <v1model.p4>\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(NotApplicable) as why:
        cases.load(cases.Case(tmp_path / "x.stf", tmp_path / "x"), tmp_path)
    assert str(why.value) == "p4c-bm2-ss refuses the program: x.p4(3): [--Werror=x] error: no such thing"


# Runs


def run(*options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "accesspoint.checks.conformance.stf", "--wait", "60", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)


@NEEDS_SWITCH
def test_apswitch_passes_a_case_of_every_statement() -> None:
    done = run(PROGRAMS / "entities.stf")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 0 failed, 0 not applicable" in done.stdout


@NEEDS_SWITCH
def test_every_case_is_in_the_table(tmp_path: Path) -> None:
    """Cases that pass, that fail with a reason, and that cannot be run."""
    for suffix in (".json", ".p4info.txtpb"):
        shutil.copy(PROGRAMS / f"entities{suffix}", tmp_path / f"a{suffix}")
    for number, text in enumerate(
        [
            "packet 0 abcdef\nexpect 0 ******** ******** ******** ******** abcdef $",
            "packet 0 abcdef\nexpect 0 01",
            "packet 0 abcdef",
            "packet 0 abcdef\nexpect 0\nexpect 0",
            "setdefault exact_table say(value:1)",
            "add lpm_table request.c:1/0 say(value:0x100000000)",
            "check_counter requests(0) packets == 5",
            "packet 0 zz",
        ]
    ):
        (tmp_path / f"a_{number}.stf").write_text(text)
    (tmp_path / "b.stf").write_text("wait")
    page = tmp_path / "page.md"
    done = run(tmp_path, "--wait", "10", "--markdown", page)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed, 7 failed, 1 not applicable" in done.stdout
    rows = page.read_text().splitlines()[-9:]
    for row, words in zip(
        rows,
        [
            "| pass |  |",
            "line 2, port 0: digit 1 is 0 instead of 1",
            "1 frames too many left through port 0",
            "line 3: 1 of 2 frames left through port 0",
            "has no action say",
            "line 1 is refused: OUT\\_OF\\_RANGE",
            "line 1: requests has 0 packets, not == 5",
            "a\\_7.stf:1: a packet is an even number of hex digits",
            "| b | **n/a** | there is no b.p4 next to it |",
        ],
        strict=True,
    ):
        assert words in row, rows


def test_what_cannot_be_run_is_named(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "holds no .stf file" in done.stderr


@NEEDS_SWITCH
def test_p4testgens_cases_of_the_program_pass() -> None:
    done = run(ROOT / "p4src/testdata/cases", "--program", ROOT / "p4src/compiled/ap.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(list(testgen.CASES.glob('*.stf')))} passed, 0 failed, 0 not applicable" in done.stdout


def test_p4testgens_cases_are_of_the_present_program() -> None:
    testgen.check()


@pytest.mark.parametrize("changed", ["v1model/ap.p4", "stages/mark.p4", "tna/gate.p4", "testdata/cases/ap_1.stf"])
def test_cases_of_other_sources_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    shutil.copytree(ROOT / "p4src", tmp_path / "p4src")
    for name in ("SOURCES", "CASES", "SUMS", "ROOT"):
        monkeypatch.setattr(testgen, name, tmp_path / getattr(testgen, name).relative_to(ROOT))
    testgen.check()
    with (tmp_path / "p4src" / changed).open("a") as file:
        file.write("# another line\n")
    with pytest.raises(testgen.TestgenError, match="renew them with: make cases"):
        testgen.check()


def test_what_is_missing_to_make_cases_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(testgen.TestgenError, match="p4testgen is not on PATH: build p4c with"):
        testgen.generate(ROOT / "p4src/v1model/ap.p4", tmp_path)


def test_the_tofino_builds_cases_are_told_in_the_other_ones_words() -> None:
    made = (
        "add ApIngress.Learn.learn src_addr:0x1 ApIngress.Learn.known_source()\n"
        "add ApEgress.AckFilter.ack_filter flow:0b0*1 ApEgress.AckFilter.note(index:0x320)\n"
        "packet 320 0102\npacket 32 320320\nexpect 320 0102$\n"
    )
    assert testgen.as_v1model(made) == (
        "add Learn.learn src_addr:0x1 Learn.known_source()\n"
        "add AckFilter.ack_filter flow:0b0*1 AckFilter.note(index:0x320)\n"
        "packet 510 0102\npacket 32 320320\nexpect 510 0102$\n"
    )


def test_a_line_that_p4testgen_is_told_something_behind_must_be_there(tmp_path: Path) -> None:
    elsewhere = replace(testgen.TOFINO, behind=(("    Nowhere.apply();", "testgen_assume(true);"),))
    with pytest.raises(testgen.TestgenError, match=r"tna/ap.p4 has not one line 'Nowhere.apply\(\);'"):
        testgen.generate_own(elsewhere, tmp_path)
