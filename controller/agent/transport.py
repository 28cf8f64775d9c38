# SPDX-License-Identifier: Apache-2.0
"""Transports of P4Runtime to a switch: requests and answers as serialised protobuf messages, over gRPC or anything
else that carries them, such as a switch in the same process.

Sections are those of the P4Runtime specification.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Protocol

import grpc
from finsy.proto import p4r, rpc_code, rpc_status
from google.protobuf.message import DecodeError

from ..cancellation import cancellable
from ..config import P4RuntimeTls
from .carriers import GET

ANSWER_SECONDS = 10.0
"""Default timeout of a call, in seconds."""

MAX_ANSWER_BYTES = 2**26
"""Bytes of all messages of one answer. 65536 flows with meters are a fifth of it."""

SERVICE = "/p4.v1.P4Runtime/"
UNARY = ("Write", "SetForwardingPipelineConfig", "GetForwardingPipelineConfig", "Capabilities")
GNMI = {GET: f"/gnmi.gNMI/{GET}"}
"""Methods of another service of some switches, at the same address."""


class RpcError(Exception):
    """A call that failed.

    Args:
        status: google.rpc.Status; of a Write that was done in part, with a `p4.v1.Error` for each update (9.1.2, 12.3).
    """

    def __init__(self, status: rpc_status.Status) -> None:
        self.code: int = status.code
        self.message = " ".join(status.message.split())
        self.parts: dict[int, p4r.Error] = {}
        """Errors of the updates that were refused, by their number in the request."""
        for number, detail in enumerate(status.details):
            part = p4r.Error()
            # A switch may send anything here; only an Error of P4Runtime is about an update.
            with contextlib.suppress(DecodeError):
                if detail.Unpack(part) and part.canonical_code != rpc_code.OK:
                    self.parts[number] = part
        super().__init__(str(self))

    def __str__(self) -> str:
        """Return one line: the code by its name, the server's message, and the first refused updates."""
        said = [
            self.message,
            *(
                f"update {number}: {part.message or code_name(part.canonical_code)}"
                for number, part in list(self.parts.items())[:3]
            ),
        ]
        return f"{code_name(self.code)}: {'; '.join(' '.join(text.split()) for text in said if text)}"

    @property
    def is_away(self) -> bool:
        """Return True when the switch did not answer; a session that ends cancels its calls."""
        return self.code in (rpc_code.CANCELLED, rpc_code.UNAVAILABLE, rpc_code.DEADLINE_EXCEEDED)

    @property
    def codes(self) -> set[int]:
        """Codes of the updates that were refused, or else the code of the call."""
        return {part.canonical_code for part in self.parts.values()} or {self.code}


def code_name(code: int) -> str:
    """Return a code of gRPC by its name; a server may send numbers that have none."""
    return rpc_code.Code.Name(code) if code in rpc_code.Code.values() else f"code {code}"


class Stream(Protocol):
    """The StreamChannel of one session (chapter 16): a client is there as long as it is open."""

    def send(self, message: bytes) -> None:
        """Send a StreamMessageRequest; one that cannot be sent any more is lost, and `receive` raises `RpcError`."""

    async def receive(self) -> bytes:
        """Return the next StreamMessageResponse; raises `RpcError` when there will be none."""

    def close(self) -> None:
        """End the session."""


class Transport(Protocol):
    """A connection to a P4Runtime server."""

    async def call(self, method: str, request: bytes, *, timeout: float = ANSWER_SECONDS) -> bytes:
        """Make a call.

        Args:
            method: `Write`, `Read`, `SetForwardingPipelineConfig`, `GetForwardingPipelineConfig` or `Capabilities`; or
                `Get` of gNMI, which a switch may refuse.
            request: its request, serialised.
            timeout: seconds that the answer may take.

        Returns:
            The answer, serialised. All messages of a Read's answer are one here: protobuf's concatenate.

        Raises:
            RpcError: the server refuses, or does not answer in time.
        """

    def stream(self) -> Stream:
        """Begin a session."""

    async def close(self) -> None:
        """End the connection, and with it everything that is under way."""


class GrpcTransport:
    """P4Runtime over gRPC, as every switch speaks it.

    Args:
        address: HOST:PORT.
        tls: None for clear text. Raises `OSError` for files that cannot be read.
    """

    def __init__(self, address: str, tls: P4RuntimeTls | None = None) -> None:
        # A connection of its own, never one that another session of this process was about to give up.
        options: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        # The errors of a Write, update by update, come in its trailers.
        options.append(("grpc.max_metadata_size", 2**16))
        if tls is None:
            self._channel = grpc.aio.insecure_channel(address, options)
        else:
            ca, key, cert = (Path(path).read_bytes() for path in (tls.ca, tls.key, tls.cert))
            if tls.server_name:
                options.append(("grpc.ssl_target_name_override", tls.server_name))
            self._channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert), options)
        # Without serialisers: bytes go in and out.
        self._read = self._channel.unary_stream(SERVICE + "Read")
        paths = {method: SERVICE + method for method in UNARY} | GNMI
        self._unary = {method: self._channel.unary_unary(path) for method, path in paths.items()}
        self._streams = self._channel.stream_stream(SERVICE + "StreamChannel")

    async def call(self, method: str, request: bytes, *, timeout: float = ANSWER_SECONDS) -> bytes:
        """As `Transport.call`."""
        with cancellable():
            try:
                if method != "Read":
                    answer: bytes = await self._unary[method](request, timeout=timeout)
                    return answer
                parts, size = [], 0
                async for part in self._read(request, timeout=timeout):
                    parts.append(part)
                    size += len(part)
                    if size > MAX_ANSWER_BYTES:
                        raise RpcError(rpc_status.Status(code=rpc_code.RESOURCE_EXHAUSTED, message="endless answer"))
                return parts[0] if len(parts) == 1 else b"".join(parts)
            except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
                raise refusal(error) from None

    def stream(self) -> "GrpcStream":
        """As `Transport.stream`."""
        return GrpcStream(self._streams)

    async def close(self) -> None:
        """As `Transport.close`."""
        await self._channel.close()


class GrpcStream:
    """As `Stream`."""

    def __init__(self, method: grpc.aio.StreamStreamMultiCallable) -> None:
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._call = method()
        # A task, for a generator of requests would still be running when its loop ends.
        self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        # A call that has ended says why in `receive`.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await self._call.write(await self._waiting.get())

    def send(self, message: bytes) -> None:
        """As `Stream.send`."""
        self._waiting.put_nowait(message)

    async def receive(self) -> bytes:
        """As `Stream.receive`."""
        with cancellable():
            try:
                message = await self._call.read()
                if message is not grpc.aio.EOF:
                    return bytes(message)
            except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
                raise refusal(error) from None
        raise RpcError(rpc_status.Status(code=rpc_code.UNAVAILABLE, message="the server ended the session"))

    def close(self) -> None:
        """As `Stream.close`."""
        self._sending.cancel()
        self._call.cancel()


def refusal(error: grpc.aio.AioRpcError | asyncio.CancelledError) -> BaseException:
    """Return the error of a failed gRPC call; its trailers have the details ("grpc-status-details-bin")."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        # A cancellation by the server, or the end of the connection, looks like one of this process.
        if task is None or task.cancelling():
            return error
        return RpcError(rpc_status.Status(code=rpc_code.CANCELLED, message="the call was cancelled"))
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin" and isinstance(value, bytes):
            try:
                return RpcError(rpc_status.Status.FromString(value))
            except DecodeError:
                break
    return RpcError(rpc_status.Status(code=error.code().value[0], message=error.details() or ""))
