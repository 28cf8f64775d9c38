# SPDX-License-Identifier: Apache-2.0
"""Bounds of connections to the API: a real uvicorn, and sockets that send what no client would."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from accesspoint.checks.harness.waiting import until
from accesspoint.controller.api import connections
from accesspoint.controller.api.connections import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED, BoundedProtocol
from accesspoint.controller.app import Options, listen, web_server

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
Address = tuple[str, int]


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Takes the body and answers."""
    while (await receive()).get("more_body"):
        pass
    body = b"x" * (64 << 20) if scope["path"] == "/large" else b"hello"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def address(tmp_path: Any) -> AsyncIterator[Address]:
    listener = listen("127.0.0.1:0", tls=False)
    server = web_server(hello, Options(None, "", "", tmp_path / "token"))
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield listener.getsockname()
    server.should_exit = server.force_exit = True
    await serving
    assert not BoundedProtocol.places


async def opened(address: Address, source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*address, local_addr=(source, 0))


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Until the server ends the connection."""
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(240):
            return await reader.read()
    return b""


@pytest.mark.parametrize("part", [b"x", b"y: " + b"z" * 500 + b"\r\n"], ids=["one line", "many lines"])
async def test_a_head_has_an_end(address: Address, part: bytes) -> None:
    reader, writer = await opened(address)
    writer.write(b"GET / HTTP/1.1\r\n" + part * ((MAX_HEAD_BYTES + 1000) // len(part)))
    answer = await rest_of(reader)
    assert answer.startswith(b"HTTP/1.1 431 ") and b"more than 16384 bytes" in answer
    writer.close()


async def test_headers_have_an_end(address: Address) -> None:
    reader, writer = await opened(address)
    writer.write(b"GET / HTTP/1.1\r\n" + b"y: z\r\n" * (MAX_HEADERS + 1) + b"\r\n")
    assert (await rest_of(reader)).startswith(b"HTTP/1.1 400 ")
    writer.close()


async def test_a_flood_of_connections_keeps_nobody_waiting_outside(address: Address) -> None:
    # The server does nothing meanwhile: they all wait for it, as what comes at once does. One too many would be tried
    # again after a second.
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(address, timeout=0.5))
        reader, writer = await opened(address)
        writer.write(REQUEST)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_a_head_may_be_long_and_requests_many(address: Address) -> None:
    reader, writer = await opened(address)
    long = b"GET /?" + b"x" * 12_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n"
    for _ in range(5):
        writer.write(long)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_requests_ahead_of_their_answers_have_an_end(address: Address) -> None:
    reader, writer = await opened(address)
    writer.write(REQUEST * MAX_PIPELINED)
    for _ in range(MAX_PIPELINED):
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
    writer.write(REQUEST * 2000)
    rest = await rest_of(reader)
    assert rest.count(b"hello") < 100
    writer.close()


@pytest.mark.parametrize(
    "said", [b"", REQUEST[:10], b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nx", REQUEST + REQUEST[:10]]
)
async def test_a_request_that_does_not_end_is_given_up(
    address: Address, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)
    reader, writer = await opened(address)
    writer.write(said)
    await rest_of(reader)
    assert reader.at_eof() or reader.exception()
    writer.close()


async def test_an_answer_that_nobody_takes_is_given_up(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.3)
    before = BoundedProtocol.ended
    with socket.create_connection(address) as stream:
        stream.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: BoundedProtocol.ended > before)
        assert not BoundedProtocol.places


async def test_nobody_keeps_others_out(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 10)
    other_reader, other = await opened(address)
    many = [await opened(address, "127.0.0.2") for _ in range(30)]
    other.write(REQUEST)
    assert (await other_reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
    newest, writer = many[-1]
    writer.write(REQUEST)
    assert (await newest.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
    for reader, _ in many[:20]:
        await rest_of(reader)
    assert sum(map(len, BoundedProtocol.places.values())) == 10
    for _, one in (*many, (None, other)):
        one.close()
