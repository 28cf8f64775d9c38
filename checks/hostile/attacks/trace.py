# SPDX-License-Identifier: Apache-2.0
"""The switch's packet trace (switch/cli/proto/trace.proto): streams that nobody reads, conditions without end."""

from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.tools import hold, leave, many, mutations, throw

FOLLOW = "/apswitch.trace.v1.Trace/Follow"
TEXT, MESSAGE = 0x0A, 0x12  # fields 1 and 2, with a length (protobuf's wire format)


def _field(tag: int, value: bytes) -> bytes:
    length, digits = len(value), bytearray()
    while length > 0x7F:
        digits.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([tag, *digits, length]) + value


def condition(field: bytes, value: bytes) -> bytes:
    """Return `Condition` as a field of `FollowRequest`."""
    return _field(MESSAGE, _field(TEXT, field) + _field(MESSAGE, value))


@attack("switch", seconds=5)
def traces_that_nobody_takes(target: Target) -> None:
    """480 traces of all packets on 30 connections, which nobody reads"""
    hold(
        target,
        lambda here: here.unary_stream(FOLLOW)(b"", timeout=target.left()),
        connections=30,
        each=16,
        unread=True,
    )


@attack("switch", seconds=5, short=True)
def traces_begun_and_left(target: Target) -> None:
    """Traces begun and ended over and over, by four at once"""
    requests = [b"", condition(b"ipv4.dst", b"10.0.0.2"), condition(b"ipv4.dst_addr", b"10.0.0.99")]
    leave(target, FOLLOW, requests, stream=True)


@attack("switch", seconds=5)
def traces_with_many_conditions(target: Target) -> None:
    """Traces with 100,000 conditions, with names and values of a megabyte"""
    requests = [
        condition(b"ipv4.dst_addr", b"10.0.0.2") * 100_000,
        condition(b"ipv4." + b"x" * 1_000_000, b"1"),
        condition(b"ipv4.dst_addr", b"9" * 1_000_000),
    ]
    many(target, FOLLOW, requests, connections=4, at_once=2, stream=True)


@attack("switch")
def trace_mutations(target: Target) -> None:
    """Random mutations of valid requests for a trace"""
    valid = {FOLLOW: [b"\x08\x01" + condition(b"ipv4.dst_addr", b"10.0.0.2") + b"\x18\x01", condition(b"ttl", b"1")]}
    throw(target, mutations(target, valid), streaming=[FOLLOW])
