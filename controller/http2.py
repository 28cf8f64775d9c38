# SPDX-License-Identifier: Apache-2.0
"""gRPC as prepared bytes: calls of one known server, made hundreds of times a second (RFC 9113, gRPC over HTTP/2).

A call through grpc.aio costs the loop more than everything else that it does in a tick; here it is one `send` and one
`recv`. There are no threads and no timers: the owner polls `fileno()` for `events` and calls `handle`, and decides how
long an answer may take. Header compression is switched off for what the server sends (SETTINGS_HEADER_TABLE_SIZE 0),
so equal trailers are equal bytes and are decoded once.
"""

import base64
import os
import select
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 4, 5

FRAME = struct.Struct(">IBI")
"""A frame's header: length in 24 bits and kind in 8; flags, stream."""
LARGEST = 2**31 - 1
"""Of a window, and of a stream's number: 31 bits."""
WINDOW = LARGEST
"""What the server may send before it is told that it may send more."""
DEFAULT_WINDOW = 65535
LARGEST_FRAME = 16384
"""Of a peer that has heard nothing else."""
REFILL = 2**30
"""The server gets its window of the connection back when so much of it is used."""
LAST_STREAM = LARGEST - 2
RECEIVE_BYTES = 1 << 16
MOST_BLOCKS = 64
"""Trailers that are remembered decoded."""

OK, UNAVAILABLE = 0, 14
UNKNOWN = 2


class ChannelError(Exception):
    """The connection is of no use any more; the text is one line."""


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended: a code of gRPC, its message, and the serialised google.rpc.Status when there is one."""

    code: int
    message: str = ""
    details: bytes = b""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: whom to trust, and who we are; `server_name` is that in the server's certificate, None the host's."""

    ca: Path
    cert: Path
    key: Path
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """A client's context; raises `ChannelError`."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            raise ChannelError(_reason(error)) from None
        context.set_alpn_protocols(["h2"])
        return context


Done = Callable[[Status, list[bytes]], None]
"""Gets the status and the messages of the answer."""
Each = Callable[[bytes], None]
"""Gets a message as soon as it is there."""


class _Call:
    __slots__ = ("body", "done", "each", "messages", "unsent", "window")

    def __init__(self, done: Done, each: Each | None, unsent: bytes, window: int) -> None:
        self.messages: list[bytes] = []
        self.body = bytearray()
        self.done, self.each = done, each or self.messages.append
        self.unsent, self.window = unsent, window


class Channel:
    """One connection to one server; `call` before it is open is sent when it is.

    Args:
        address: what `socket.connect` takes, resolved.
        authority: the server's name, as HOST:PORT.
        tls: None for clear text.
    """

    def __init__(self, family: int, address: Any, authority: str, tls: Tls | None = None) -> None:
        self._authority = authority
        self._socket: socket.socket | ssl.SSLSocket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = tls
        self._connecting = True
        self._shaking = False
        self.events = select.EPOLLIN | select.EPOLLOUT
        """What to poll for."""
        self._inbox = b""
        self._outbox = bytearray(PREFACE)
        self._outbox += _frame(
            SETTINGS,
            0,
            0,
            struct.pack(">HIHIHI", HEADER_TABLE_SIZE, 0, ENABLE_PUSH, 0, INITIAL_WINDOW_SIZE, WINDOW),
        )
        self._outbox += _frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW - DEFAULT_WINDOW))
        self._calls: dict[int, _Call] = {}
        self._next = 1
        self._window = DEFAULT_WINDOW
        self._stream_window = DEFAULT_WINDOW
        self._largest_frame = LARGEST_FRAME
        self._received = 0
        self._open_block: tuple[int, bytes, bool] | None = None
        self._decoder = hpack.Decoder()
        self._decoder.max_allowed_table_size = 0
        self._decoder.header_table_size = 0
        self._blocks: dict[bytes, Status] = {}
        try:
            self._socket.connect(address)
        except BlockingIOError:
            pass
        except OSError as error:
            raise ChannelError(_reason(error)) from None

    def fileno(self) -> int:
        """The socket."""
        return self._socket.fileno()

    def close(self) -> None:
        """End the connection; calls under way are forgotten."""
        self._calls.clear()
        self._socket.close()

    def method(self, path: str) -> bytes:
        """The header block of a method such as `/p4.v1.P4Runtime/Read`, for `call`."""
        scheme = b"\x87" if self._tls else b"\x86"
        fields = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
        literals = b"".join(b"\0" + _string(name) + _string(value) for name, value in fields)
        # Of the static table: :method POST, :scheme, :path, :authority (RFC 7541, appendix A).
        return (
            b"\x83" + scheme + b"\x04" + _string(path.encode()) + b"\x01" + _string(self._authority.encode()) + literals
        )

    def call(self, method: bytes, message: bytes, done: Done, each: Each | None = None) -> None:
        """Send a request of one message; `done` is called from `handle`, and `each`, which takes the messages away from
        `done`, before it. Raises `ChannelError`."""
        if self._next > LAST_STREAM:
            raise ChannelError("all streams of the connection are used up")
        stream, self._next = self._next, self._next + 2
        # A message's length in 32 bits, behind 0: not compressed.
        body = len(message).to_bytes(5) + message
        call = self._calls[stream] = _Call(done, each, body, self._stream_window)
        self._outbox += _frame(HEADERS, END_HEADERS, stream, method)
        self._send_body(stream, call)
        if not self._connecting and not self._shaking:
            self._flush()

    def handle(self, events: int) -> None:
        """Go on after a poll; raises `ChannelError`."""
        try:
            if self._connecting:
                self._connected()
            if self._shaking:
                self._shake()
            if self._connecting or self._shaking:
                return
            if events & ~select.EPOLLOUT:
                self._receive()
            if self._outbox:
                self._flush()
        except (OSError, struct.error, IndexError, hpack.HPACKError) as error:
            raise ChannelError(_reason(error)) from None

    def _connected(self) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, "connect")
        try:
            self._socket.getpeername()
        except OSError:
            return
        self._connecting = False
        if self._tls:
            name = self._tls.server_name or self._authority.rpartition(":")[0].strip("[]")
            self._socket = self._tls.context().wrap_socket(
                self._socket, server_hostname=name, do_handshake_on_connect=False
            )
            self._shaking = True

    def _shake(self) -> None:
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self.events = select.EPOLLIN
        except ssl.SSLWantWriteError:
            self.events = select.EPOLLIN | select.EPOLLOUT
        else:
            self._shaking = False

    def _flush(self) -> None:
        outbox = self._outbox
        try:
            while outbox:
                del outbox[: self._socket.send(outbox)]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            raise ChannelError(_reason(error)) from None
        self.events = select.EPOLLIN | select.EPOLLOUT if outbox else select.EPOLLIN

    def _receive(self) -> None:
        while True:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not data:
                raise ChannelError("the server closed the connection")
            self._take(data)
            if not self._tls and len(data) < RECEIVE_BYTES:
                return

    def _take(self, data: bytes) -> None:
        if self._inbox:
            data = self._inbox + data
        at, size = 0, len(data)
        while size - at >= 9:
            first, flags, stream = FRAME.unpack_from(data, at)
            length, kind = first >> 8, first & 255
            if length > LARGEST_FRAME:
                raise ChannelError("no HTTP/2 answer: a frame is too long")
            start, at = at, at + 9 + length
            if at > size:
                at = start
                break
            payload, stream = data[start + 9 : at], stream & LARGEST
            if kind == DATA:
                self._data(flags, stream, payload)
            elif kind == HEADERS:
                if flags & PADDED:
                    payload = payload[1 : length - payload[0]]
                if flags & PRIORITY:
                    payload = payload[5:]
                self._block(flags, stream, payload, bool(flags & END_STREAM))
            else:
                self._other(kind, flags, stream, payload)
        self._inbox = data[at:]

    def _data(self, flags: int, stream: int, payload: bytes) -> None:
        size = len(payload)
        self._received += size
        if self._received >= REFILL:
            self._outbox += _frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._received))
            self._received = 0
        call = self._calls.get(stream)
        if call is None:
            return
        if flags & PADDED:
            payload = payload[1 : size - payload[0]]
            size = len(payload)
        if call.body or int.from_bytes(payload[:5]) != size - 5:
            call.body += payload
            _deliver(call)
        else:
            call.each(payload[5:])
        if flags & END_STREAM:
            self._end(stream, Status(UNKNOWN, "the answer has no status"))

    def _block(self, flags: int, stream: int, block: bytes, last: bool) -> None:
        """Headers or trailers, or as much of them as is there."""
        if not flags & END_HEADERS:
            self._open_block = (stream, block, last)
            return
        self._open_block = None
        # What comes before the messages says nothing that the trailers don't.
        if last and stream in self._calls:
            self._end(stream, self._blocks.get(block) or self._decoded(block))

    def _other(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == CONTINUATION and self._open_block:
            stream, block, last = self._open_block
            self._block(flags, stream, block + payload, last)
        elif kind == SETTINGS and not flags & ACK:
            self._settle(payload)
        elif kind == PING and not flags & ACK:
            self._outbox += _frame(PING, ACK, 0, payload)
        elif kind == WINDOW_UPDATE:
            self._grow(stream, int.from_bytes(payload) & LARGEST)
        elif kind == RST_STREAM and stream in self._calls:
            self._end(
                stream, Status(UNAVAILABLE, f"the server broke the call off (HTTP/2 error {int.from_bytes(payload)})")
            )
        elif kind == GOAWAY:
            raise ChannelError("the server is going away")

    def _decoded(self, block: bytes) -> Status:
        """What trailers say; those of a success are always the same bytes."""
        if len(self._blocks) >= MOST_BLOCKS:
            self._blocks.clear()
        fields = {bytes(name): bytes(value) for name, value in self._decoder.decode(block, raw=True)}
        status = self._blocks[block] = _status(fields)
        return status

    def _end(self, stream: int, status: Status) -> None:
        call = self._calls.pop(stream)
        if call.unsent:
            # It answered before it had the whole request: nobody waits for the rest.
            self._outbox += _frame(RST_STREAM, 0, stream, bytes(4))
        if call.body:
            raise ChannelError("the server sent a message that is cut")
        call.done(status, call.messages)

    def _send_body(self, stream: int, call: _Call) -> None:
        """As much of a request as the server's windows take."""
        while call.unsent:
            size = min(len(call.unsent), self._window, call.window, self._largest_frame)
            if size <= 0:
                return
            part, call.unsent = call.unsent[:size], call.unsent[size:]
            self._outbox += _frame(DATA, 0 if call.unsent else END_STREAM, stream, part)
            call.window -= size
            self._window -= size

    def _grow(self, stream: int, size: int) -> None:
        if stream == 0:
            self._window += size
            waiting = list(self._calls.items())
        else:
            call = self._calls.get(stream)
            if call is None:
                return
            call.window += size
            waiting = [(stream, call)]
        for stream, call in waiting:
            self._send_body(stream, call)

    def _settle(self, payload: bytes) -> None:
        for key, value in struct.iter_unpack(">HI", payload):
            if key == INITIAL_WINDOW_SIZE:
                for call in self._calls.values():
                    call.window += value - self._stream_window
                self._stream_window = value
            elif key == MAX_FRAME_SIZE:
                self._largest_frame = value
        self._outbox += _frame(SETTINGS, ACK, 0)
        for stream, call in self._calls.items():
            self._send_body(stream, call)


def _deliver(call: _Call) -> None:
    """The messages of which everything is there; the beginning of the next one stays."""
    body, at = call.body, 0
    while len(body) - at >= 5:
        end = at + 5 + int.from_bytes(body[at + 1 : at + 5])
        if body[at]:
            raise ChannelError("the server sent a message that is compressed")
        if end > len(body):
            break
        call.each(bytes(body[at + 5 : end]))
        at = end
    del body[:at]


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return FRAME.pack(len(payload) << 8 | kind, flags, stream) + payload


def _string(text: bytes) -> bytes:
    """A string literal without Huffman code (RFC 7541, section 5.2)."""
    if len(text) < 127:
        return bytes([len(text)]) + text
    rest, octets = len(text) - 127, bytearray([127])
    while rest >= 128:
        octets.append(rest & 127 | 128)
        rest >>= 7
    return bytes(octets) + bytes([rest]) + text


def _status(fields: dict[bytes, bytes]) -> Status:
    if b"grpc-status" not in fields:
        return Status(UNAVAILABLE, f"HTTP status {fields.get(b':status', b'?').decode()} in place of a gRPC answer")
    message = unquote(fields.get(b"grpc-message", b"").decode(errors="replace"))
    details = fields.get(b"grpc-status-details-bin", b"")
    return Status(int(fields[b"grpc-status"]), message, base64.b64decode(details + b"=" * (-len(details) % 4)))


def _reason(error: Exception) -> str:
    """One line for what went wrong."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError):
        return (os.strerror(error.errno) if error.errno else str(error)).lower()
    return f"no HTTP/2 answer: {error}"
