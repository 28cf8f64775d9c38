# SPDX-License-Identifier: Apache-2.0
"""v1model: control flow, hashes, random numbers, checksums and state."""

import zlib

from accesspoint.checks.conformance.fixture import PADDING, REQUEST, Fixture
from accesspoint.checks.conformance.suite import check, expect, fail

GOES_ON = 0x80  # in `hit`: the control ran to its end
A, B, C = 0x12, 0x3456, 0x789ABCDE


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005, reflected."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xA001 if value & 1 else 0)
    return value


def csum16(data: bytes) -> int:
    """RFC 1071."""
    data += bytes(len(data) % 2)
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def xor16(data: bytes) -> int:
    value = 0
    for at in range(0, len(data), 2):
        value ^= int.from_bytes(data[at : at + 2], "big")
    return value


@check("v1.control", "return leaves the action, or the control, and no more", "externs")
def returns(fixture: Fixture) -> None:
    answer = fixture.ask(0x1A)
    expect((answer.value, answer.hit), (1, 1 | GOES_ON), "what an action with return did, and what came after it")
    answer = fixture.ask(0x1D)
    expect((answer.value, answer.hit), (4, 0), "what came before return, and what came after it")


@check("v1.control", "exit leaves the control, from an action too; egress runs all the same", "externs")
def exits(fixture: Fixture) -> None:
    for op, value in ((0x1B, 2), (0x1C, 3)):
        answer = fixture.ask(op)
        expect((answer.value, answer.hit), (value, 0), "what came before exit, and what came after it")
        expect(answer.ingress_port, fixture.home, "the ingress port that egress wrote")


@check("v1.control", "switch over a value: cases, fall-through, default", "externs")
def switch(fixture: Fixture) -> None:
    expect([fixture.ask(0x22, a).value for a in (1, 2, 3, 9)], [10, 20, 20, 30], "values of cases 1, 2, 3 and default")


@check("v1.control", "mark_to_drop drops, in ingress and in egress", "externs")
def drops(fixture: Fixture) -> None:
    fixture.silent(0x10)
    fixture.silent(0x32)


@check("v1.control", "an egress_spec after mark_to_drop takes it back", "externs")
def takes_back(fixture: Fixture) -> None:
    fixture.ask(0x11)


@check("v1.control", "a header that is made invalid does not leave", "externs")
def invalid_header(fixture: Fixture) -> None:
    expect(fixture.ask(0x36, payload=b"\x77" * 40).rest, b"\x77" * 40, "what follows the answer, without the request")


@check("v1.control", "truncate cuts the packet, in ingress and in egress", "externs", ports=1)
def truncates(fixture: Fixture) -> None:
    for op in (0x12, 0x34):
        expect(len(fixture.ask(op, c=60, payload=bytes(200)).frame), 60, "bytes that left")


@check("v1.control", "truncate to more than there is cuts nothing", "externs")
def truncates_nothing(fixture: Fixture) -> None:
    whole = len(fixture.ask(0).frame)
    expect(len(fixture.ask(0x12, c=5000).frame), whole, "bytes that left")


@check("v1.control", "log_msg, and assert and assume that hold, change nothing", "externs")
def logs(fixture: Fixture) -> None:
    for op in (0x18, 0x19):
        answer = fixture.ask(op, c=21)
        expect((answer.value, answer.hit), (1, GOES_ON), "value, and the control's end")


@check("v1.control", "standard_metadata: ports, length, time", "externs", ports=1)
def standard_metadata(fixture: Fixture) -> None:
    expect(fixture.ask(0x20).value, fixture.home, "ingress_port")
    expect(fixture.ask(0x33).value, fixture.home, "egress_port")
    expect(fixture.ask(0x1F, payload=bytes(100)).value, 14 + REQUEST.size + 100, "packet_length in ingress")
    expect(fixture.ask(0x21).hit & 1, 1, "whether the time is not 0")


@check("v1.hash", "crc32, crc16, csum16, xor16 and identity", "externs")
def hashes(fixture: Fixture) -> None:
    fields = A.to_bytes(1, "big") + B.to_bytes(2, "big") + C.to_bytes(4, "big")
    wanted = {
        0x01: ("crc32", zlib.crc32(fields)),
        0x02: ("crc16", crc16(fields)),
        0x03: ("csum16", csum16(b"\x03" + fields)),
        0x04: ("xor16", xor16(b"\x04" + fields)),
        0x05: ("identity", C),
    }
    for op, (name, value) in wanted.items():
        found = fixture.ask(op, A, B, C).value
        if found != value:
            fail(f"{name} of {fields.hex()} is {found:#x} instead of {value:#x}")


@check("v1.hash", "base and max: base + hash mod max", "externs")
def hash_range(fixture: Fixture) -> None:
    for c in (0, 1, C):
        wanted = 1000 + zlib.crc32(c.to_bytes(4, "big")) % 10
        expect(fixture.ask(0x06, c=c).value, wanted, f"crc32 of {c:#x} from 1000, modulo 10")
        expect(fixture.ask(0x07, c=c).value, 7, f"crc16 of {c:#x} from 7, modulo 1")


@check("v1.hash", "random is within its bounds, both taken, and not always the same", "externs")
def random(fixture: Fixture) -> None:
    found = {one.value for one in fixture.ask_all(0x08, [(0, 0, 0)] * 300)}
    expect(found, set(range(10, 21)), "values of 300 random numbers from 10 to 20")
    expect(fixture.ask(0x09, c=C).value, C, "a random number from a bound to itself")


def data(op: int, a: int = A, b: int = B, c: int = C) -> bytes:
    """The fields that the checksums cover."""
    return REQUEST.pack(op, a, b, c)


@check("v1.checksum", "verify_checksum tells good from bad", "externs")
def verify(fixture: Fixture) -> None:
    for payload in (b"", b"\x01\x02\x03\x04"):
        op = 0x41 if payload else 0x40
        good = csum16(data(op) + payload + (PADDING if payload else b"")).to_bytes(2, "big")
        found = [fixture.ask(op, A, B, C, one + payload + PADDING).error_code for one in (good, b"\x12\x34")]
        expect(found, [0, 1], f"checksum_error of a good and a bad one{' with payload' if payload else ''}")


@check("v1.checksum", "update_checksum writes csum16 and crc16 of fields", "externs")
def update(fixture: Fixture) -> None:
    for op, value in ((0x42, csum16(data(0x42))), (0x44, crc16(data(0x44)))):
        answer = fixture.ask(op, A, B, C, b"\xff\xff" + PADDING)
        expect(answer.rest[8:10], value.to_bytes(2, "big"), "the checksum that left")


@check("v1.checksum", "update_checksum_with_payload covers the payload, of odd length too", "externs")
def update_payload(fixture: Fixture) -> None:
    for payload in (bytes(range(40)), bytes(range(41))):
        answer = fixture.ask(0x43, A, B, C, b"\xff\xff" + payload)
        wanted = csum16(data(0x43) + payload).to_bytes(2, "big")
        expect(answer.rest[8:10], wanted, f"the checksum with {len(payload)} bytes of payload")


@check("v1.checksum", "a checksum that is not to be updated stays", "externs")
def not_updated(fixture: Fixture) -> None:
    expect(fixture.ask(0x45, A, B, C, b"\x12\x34" + PADDING).rest[8:10], b"\x12\x34", "the checksum that left")


@check("v1.state", "a register of 48 bits keeps what packets write, by index", "externs")
def wide_register(fixture: Fixture) -> None:
    frames = [fixture.request(0x0B, a) for a in (1, 2)]
    fixture.pass_all(frames)
    for a, (number, _) in zip((1, 2), frames, strict=True):
        expect(fixture.ask(0x0C, a).value, number, f"the last 32 bits of the source address at index {a}")
    expect(fixture.ask(0x0C, 3).value, 0, "a cell that nobody wrote")


@check("v1.state", "@atomic: no packet comes between a register's read and its write", "externs")
def atomic(fixture: Fixture) -> None:
    found = [one.value for one in fixture.ask_all(0x0D, [(1, 0, 3)] * 100)]
    expect(sorted(found), [3 * number for number in range(1, 101)], "sums of 100 packets")


@check("v1.state", "an index beyond an array does no harm", "externs")
def beyond(fixture: Fixture) -> None:
    fixture.ask(0x0B, 200)
    fixture.ask(0x0C, 200)
    expect([fixture.ask(0x0C, a).value for a in range(4)], [0] * 4, "the array's cells")


@check("v1.state", "a meter without a config is green", "externs")
def green(fixture: Fixture) -> None:
    expect([fixture.ask(0x0A, 1).value for _ in range(5)], [0] * 5, "colours")


@check("v1.ways", "resubmit: ingress again, with the preserved fields and no other", "externs")
def resubmit(fixture: Fixture) -> None:
    answer = fixture.ask(0x14, c=C)
    found = (answer.value, answer.hit & 0x7F, answer.instance_type)
    expect(found, (C, 0, 6), "preserved field, other field, instance type")


@check("v1.ways", "recirculate: the whole way again, with the preserved fields", "externs")
def recirculate(fixture: Fixture) -> None:
    answer = fixture.ask(0x31, a=3, c=5)
    expect((answer.value, answer.instance_type), (15, 4), "a field that three rounds added to, and instance type")
    expect(answer.rest[:4], b"\x31\0\0\0", "the request, as egress changed it")


@check("v1.ways", "clone of ingress: the packet as it came, with the preserved fields", "externs")
def ingress_clone(fixture: Fixture) -> None:
    fixture.insert(fixture.session(5, (fixture.home, 3)))
    packet, copy = sorted(fixture.answers(2, 0x15, b=5, c=C), key=lambda one: one.instance_type)
    expect((packet.instance_type, packet.value), (0, 0), "instance type and value of the packet")
    expect(
        (copy.instance_type, copy.value, copy.hit, copy.replica), (1, C, 0, 3), "type, kept, lost, replica of the clone"
    )
    packet, copy = sorted(fixture.answers(2, 0x16, b=5, c=C), key=lambda one: one.instance_type)
    requests = [one.rest[4:8] for one in (packet, copy)]
    expect(requests, [(C + 1).to_bytes(4, "big"), C.to_bytes(4, "big")], "what ingress changed, in packet and clone")


@check("v1.ways", "clone of egress: the packet as it leaves, with the preserved fields", "externs")
def egress_clone(fixture: Fixture) -> None:
    fixture.insert(fixture.session(5, (fixture.home, 3)))
    packet, copy = sorted(fixture.answers(2, 0x30, b=5, c=C), key=lambda one: one.instance_type)
    expect((packet.instance_type, copy.instance_type), (0, 2), "instance types")
    expect((copy.value, copy.hit), (C, 0), "preserved field and other field of the clone")


@check("v1.ways", "a packet that is dropped is cloned all the same", "externs")
def dropped_clone(fixture: Fixture) -> None:
    fixture.insert(fixture.session(5, (fixture.home, 3)))
    (copy,) = fixture.answers(1, 0x23, b=5)
    expect(copy.instance_type, 1, "the instance type of what left")


@check("v1.ways", "multicast: egress runs for each replica, and may drop one", "externs")
def multicast(fixture: Fixture) -> None:
    fixture.insert(fixture.group(5, (fixture.home, 1), (fixture.home, 2), (fixture.home, 3)))
    for op, wanted in ((0x13, [1, 2, 3]), (0x35, [1, 3])):
        expect(sorted(one.replica for one in fixture.answers(len(wanted), op, b=5)), wanted, "replicas that left")
