# SPDX-License-Identifier: Apache-2.0
"""gRPC as it carries P4Runtime: bytes go through as they are, and every way to fail is one error with one line."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, rpc_code, rpc_status

from accesspoint.checks.harness.waiting import free_port
from accesspoint.controller.agent import transport as module
from accesspoint.controller.agent.transport import SERVICE, GrpcTransport, RpcError


class Server:
    """Does what the request says: a word, and a number."""

    async def read(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        word, _, number = request.partition(b" ")
        for part in range(int(number or b"1")):
            yield word + str(part).encode()
        if word == b"fail":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such\nthing")

    async def write(self, request: bytes, context: Any) -> bytes:
        match request:
            case b"cancel":
                await context.abort(grpc.StatusCode.CANCELLED)
            case b"slow":
                await asyncio.sleep(30)
            case b"parts" | b"nonsense":
                status = rpc_status.Status(code=rpc_code.UNKNOWN, message="one of two")
                status.details.add().Pack(p4r.Error())
                status.details.add().Pack(p4r.Error(canonical_code=rpc_code.RESOURCE_EXHAUSTED, message="full"))
                trailer = status.SerializeToString() if request == b"parts" else b"\xff\xff\xff"
                context.set_trailing_metadata([("grpc-status-details-bin", trailer)])
                await context.abort(grpc.StatusCode.UNKNOWN, "outer")
        return request

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            if request == b"end":
                return
            if request == b"cancel":
                await context.abort(grpc.StatusCode.CANCELLED)
            yield request


@pytest.fixture
async def way() -> AsyncIterator[GrpcTransport]:
    server, does = grpc.aio.server(), Server()
    handlers = {
        "Read": grpc.unary_stream_rpc_method_handler(does.read),
        "Write": grpc.unary_unary_rpc_method_handler(does.write),
        "StreamChannel": grpc.stream_stream_rpc_method_handler(does.stream),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE.strip("/"), handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    made = GrpcTransport(f"127.0.0.1:{port}")
    yield made
    await made.close()
    await server.stop(None)


async def failed(way: GrpcTransport, method: str, request: bytes, **options: float) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await way.call(method, request, **options)
    return caught.value


async def test_bytes_go_through_and_the_parts_of_an_answer_are_one(way: GrpcTransport) -> None:
    assert await way.call("Write", b"\0\xff anything") == b"\0\xff anything"
    assert await way.call("Read", b"a 3") == b"a0a1a2"
    assert await way.call("Read", b"a 0") == b""


async def test_a_refusal_has_code_text_and_the_updates_that_it_is_about(way: GrpcTransport) -> None:
    error = await failed(way, "Read", b"fail 2")
    assert (error.code, str(error)) == (rpc_code.NOT_FOUND, "NOT_FOUND: no such thing")
    error = await failed(way, "Write", b"parts")
    assert (error.codes, str(error)) == ({rpc_code.RESOURCE_EXHAUSTED}, "UNKNOWN: one of two; update 1: full")
    error = await failed(way, "Write", b"nonsense")
    assert (error.parts, str(error)) == ({}, "UNKNOWN: outer")


async def test_what_takes_too_long_or_too_much_ends(way: GrpcTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await failed(way, "Write", b"slow", timeout=0.2)).code == rpc_code.DEADLINE_EXCEEDED
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1000)
    assert (await failed(way, "Read", b"abcdefgh 1000000")).code == rpc_code.RESOURCE_EXHAUSTED


async def test_what_the_server_cancels_cancels_nobody_here(way: GrpcTransport) -> None:
    """An asyncio.CancelledError would end a task of the session without a word."""
    assert (await failed(way, "Write", b"cancel")).code == rpc_code.CANCELLED
    stream = way.stream()
    stream.send(b"cancel")
    with pytest.raises(RpcError, match="CANCELLED"):
        await stream.receive()


async def test_what_is_cancelled_here_is(way: GrpcTransport) -> None:
    call = asyncio.create_task(way.call("Write", b"slow"))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("method", ["Write", "Read", "StreamChannel"])
async def test_what_is_cancelled_while_the_connection_begins_is(method: str) -> None:
    """A cancellation that is lost is a session that nobody can end: whoever awaits its end waits for ever."""

    async def ask(address: str) -> None:
        way = GrpcTransport(address)
        stream = way.stream()
        try:
            await (stream.receive() if method == "StreamChannel" else way.call(method, b""))
        finally:
            stream.close()
            await way.close()

    cancelled = 0
    for step in range(300):
        asking = asyncio.create_task(ask(f"127.0.0.1:{free_port()}"))
        for _ in range(step % 20):
            await asyncio.sleep(0)
        await asyncio.sleep(max(0, step - 100) * 2e-5)
        if asking.cancel():
            cancelled += 1
            with pytest.raises(asyncio.CancelledError):
                await asking
        else:
            asking.exception()
    assert cancelled > 50


@pytest.mark.parametrize("last", [b"end", b""])
async def test_a_session_sends_receives_and_says_when_it_is_over(way: GrpcTransport, last: bytes) -> None:
    stream = way.stream()
    for message in (b"one", b"two", *([last] if last else [])):
        stream.send(message)
    assert [await stream.receive(), await stream.receive()] == [b"one", b"two"]
    if last:
        with pytest.raises(RpcError, match="ended the session"):
            await stream.receive()
    else:
        waiting = asyncio.create_task(stream.receive())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    stream.close()
