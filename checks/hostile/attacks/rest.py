# SPDX-License-Identifier: Apache-2.0
"""REST of the controller: slow and large requests, guesses, streams that nobody reads."""

import http.client
import itertools
import time
from collections.abc import Iterable

from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.tools import connect, exchange, idle, mutate, pour, together

PATH = "/api/v1/access-points/ap1"


def head(method: str, path: str, *lines: str) -> bytes:
    """A request up to its body."""
    return "\r\n".join((f"{method} {path} HTTP/1.1", "host: x", *lines, "", "")).encode()


def bearer(target: Target) -> str:
    return f"authorization: Bearer {target.places['token']}"


def ask(target: Target, requests: Iterable[bytes], source: str = "127.0.0.66") -> None:
    """Send requests one after the other on one connection for as long as it lasts; report the status codes."""
    requests = iter(requests)
    while target.running():
        try:
            with connect(target, source=source) as stream:
                for request in requests:
                    stream.sendall(request)
                    answer = http.client.HTTPResponse(stream)
                    answer.begin()
                    body = answer.read()
                    target.refused(str(answer.status), body[:80] if answer.status >= 400 else "")
                    if answer.will_close or not target.running():
                        break
                else:
                    return
        except (OSError, http.client.HTTPException) as error:
            target.refused("closed", type(error).__name__)
            time.sleep(0.01)


@attack("rest")
def rest_silence(target: Target) -> None:
    """1500 connections that say nothing"""
    idle(target, 1500)


@attack("rest")
def rest_slow_headers(target: Target) -> None:
    """1500 connections that say a header byte by byte"""
    idle(target, 1500, begin=b"GET / HTTP/1.1\r\nx: ", drip=b"y")


@attack("rest")
def rest_slow_bodies(target: Target) -> None:
    """1000 logins whose body comes byte by byte"""
    begin = head("POST", "/api/v1/session", "content-type: application/json", "content-length: 900000")
    idle(target, 1000, begin=begin + b'{"token":"', drip=b"x")


@attack("rest")
def rest_bodies_without_end(target: Target) -> None:
    """Bodies of 60 MB, and chunks that never end, with a token and without"""
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    lines = ("content-type: application/json", "transfer-encoding: chunked")
    large = head("POST", "/api/v1/session", "content-length: 60000000")
    together(
        lambda: pour(target, head("POST", "/api/v1/session", *lines), chunk),
        lambda: pour(target, head("PATCH", f"{PATH}/ncr", bearer(target), *lines), chunk),
        lambda: pour(target, large, b"x" * 65536),
    )


@attack("rest", short=True)
def rest_deep_json(target: Target) -> None:
    """JSON nested 400,000 deep, with a token and without"""
    bodies = (b"[" * 400_000, b'{"a":' * 150_000, b"1" * 900_000, b'{"token":' + b"[" * 400_000)
    requests = [
        head(method, path, *lines, "content-type: application/json", f"content-length: {len(body)}") + body
        for body in bodies
        for method, path, lines in (
            ("POST", "/api/v1/session", ()),
            ("PATCH", f"{PATH}/ncr", (bearer(target),)),
            ("POST", "/api/v1/access-points", (bearer(target),)),
        )
    ]
    ask(target, itertools.cycle(requests))


@attack("rest")
def rest_guesses(target: Target) -> None:
    """Logins with guessed tokens from 2000 addresses"""

    def one(number: int) -> None:
        while target.running():
            body = b'{"token":"ap_%032x"}' % target.random.getrandbits(128)
            request = head("POST", "/api/v1/session", "content-type: application/json", f"content-length: {len(body)}")
            source = f"127.{target.random.randrange(1, 9)}.{number}.{target.random.randrange(1, 250)}"
            ask(target, [request + body], source)

    together(*[lambda number=number: one(number) for number in range(8)])


@attack("rest")
def rest_wrong_tokens(target: Target) -> None:
    """Requests with wrong tokens and cookies of up to 60 kB"""
    wrong = ["x", "ap_" + "0" * 43, "x" * 60_000, "\xff" * 100]
    requests = [head("GET", PATH, f"authorization: Bearer {token}") for token in wrong]
    requests += [head("GET", PATH, f"cookie: session={token}") for token in wrong]
    together(*[lambda: ask(target, itertools.cycle(requests))] * 4)


@attack("rest")
def rest_long_lines(target: Target) -> None:
    """Request lines and headers without end"""
    together(
        lambda: pour(target, b"GET /", b"x" * 65536),
        lambda: pour(target, b"GET / HTTP/1.1\r\nx: ", b"y" * 65536),
        lambda: pour(target, b"GET / HTTP/1.1\r\n", b"x: y\r\n" * 10_000),
    )


@attack("rest")
def rest_sessions_without_end(target: Target) -> None:
    """Logins with a good token, as fast as they are answered: each is a session that is kept"""
    body = f'{{"token":"{target.places["token"]}"}}'.encode()
    request = head("POST", "/api/v1/session", "content-type: application/json", f"content-length: {len(body)}") + body
    together(*[lambda: ask(target, itertools.repeat(request))] * 4)


@attack("rest")
def rest_streams_that_nobody_reads(target: Target) -> None:
    """300 event streams of a good token that nobody reads"""
    begin = head("GET", "/api/v1/events", bearer(target))
    idle(target, 300, begin=begin)


@attack("rest")
def rest_answers_that_nobody_reads(target: Target) -> None:
    """Requests of a good token without end, on connections that read no answer"""
    pour(target, b"", head("GET", "/openapi.json", bearer(target)) * 100, connections=16, reads=False)


@attack("rest")
def rest_mutations(target: Target) -> None:
    """Random mutations of valid requests"""
    body = b'{"alpha":0.1}'
    valid = head(
        "PATCH", f"{PATH}/ncr", bearer(target), "content-type: application/json", f"content-length: {len(body)}"
    )
    exchange(target, (mutate(valid + body, target.random) for _ in range(1 << 30)), 0.1)
