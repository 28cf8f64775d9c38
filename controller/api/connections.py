# SPDX-License-Identifier: Apache-2.0
"""Bounds of a connection before its client is known: time, bytes of a request's head, number of connections.

uvicorn's protocol has no such bounds: a head without end took memory without end, and a client that never ended a
request kept its connection for ever.
"""

import asyncio
from collections import defaultdict
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MAX_CONNECTIONS = 512
"""Connections at a time. One more replaces the oldest of the address that has the most, so none keeps others out."""
MAX_HEAD_BYTES = 16 << 10
"""Bytes of a request up to its body; more are not even parsed."""
MAX_HEADERS = 100
REQUEST_SECONDS = 20.0
"""Seconds from a request's first byte, or the connection's beginning, to the request's end."""
MAX_PIPELINED = 4
"""Requests that a client may send before the first of them is answered."""
ANSWER_SECONDS = 30.0
"""Seconds after which an answer is given up of which the client reads nothing."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection."""

    places: ClassVar[dict[str, dict["BoundedProtocol", None]]] = defaultdict(dict)
    """All connections by address, the oldest first."""
    ended: ClassVar[int] = 0
    """Connections that were given up."""
    _head = 0
    _headers = 0
    _in_head = True
    _deadline: asyncio.TimerHandle | None = None
    _untaken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self.places[self._address][self] = None
        if sum(map(len, self.places.values())) > MAX_CONNECTIONS:
            most = max(self.places.values(), key=len)
            next(iter(most)).give_up()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._stop(self._deadline)
        self._stop(self._untaken)
        super().connection_lost(exc)

    def give_up(self) -> None:
        """End the connection at once; data that waits to be sent is lost."""
        BoundedProtocol.ended += 1
        self._leave()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        while data and not self.transport.is_closing():
            part, data = data, b""
            if self._in_head:
                room = MAX_HEAD_BYTES - self._head
                part, data = part[:room], part[room:]
            super().data_received(part)
            if not self._in_head or self.transport.is_closing():
                continue
            self._head += len(part)
            if self._head >= MAX_HEAD_BYTES:
                text = f"the head of this request has more than {MAX_HEAD_BYTES} bytes".encode()
                lines = [
                    b"content-type: text/plain",
                    b"content-length: %d" % len(text),
                    b"connection: close",
                    b"",
                    text,
                ]
                self.transport.write(STATUS_LINE[431] + b"\r\n".join(lines))
                self.transport.close()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            # The parser takes this as a request that it cannot read: it ignores the rest, and 400 is the last answer.
            raise ValueError(f"more than {MAX_PIPELINED} requests without waiting for an answer")
        super().on_message_begin()
        self._in_head, self._head, self._headers = True, 0, 0
        self._stop(self._deadline)
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.give_up)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        if self._headers > MAX_HEADERS:
            raise ValueError(f"more than {MAX_HEADERS} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop(self._deadline)
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop(self._untaken)
        self._untaken = self.loop.call_later(ANSWER_SECONDS, self.give_up)

    def resume_writing(self) -> None:
        self._stop(self._untaken)
        super().resume_writing()

    def _leave(self) -> None:
        own = self.places.get(self._address, {})
        own.pop(self, None)
        if not own:
            self.places.pop(self._address, None)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
