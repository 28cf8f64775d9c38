# SPDX-License-Identifier: Apache-2.0
"""Files over real QUIC: an HTTP/3 server and a client that asks for one file after another (aioquic).

`python -m accesspoint.experiments.scenes.http3 serve ADDRESS PORT` prints `ready` and serves `/N`, a file of N bytes,
to anybody;
`... get ADDRESS PORT BYTES` loads files of that size on one connection, `AT_ONCE` at a time, for ever, and prints
`time Mb/s` four times a second (s since the epoch, the end of the interval; payload).
"""

import asyncio
import datetime
import ssl
import sys
import time
from functools import partial
from typing import Any

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

AT_ONCE = 2  # requests under way, so that the link has something to carry between the end of one file and the next
DATAGRAM = 1250  # bytes of UDP payload, as accesspoint.experiments.scenes.datagrams sends
INTERVAL = 0.25  # s
MAX_FILE = 1 << 30  # bytes


class _Protocol(QuicConnectionProtocol):
    """HTTP/3 on a connection."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.http = H3Connection(self._quic)

    def quic_event_received(self, event: QuicEvent) -> None:
        for happened in self.http.handle_event(event):
            self.take(happened)

    def take(self, event: Any) -> None:
        """Process an event of the other end."""


class Server(_Protocol):
    """Answers `/N` with N bytes."""

    def take(self, event: Any) -> None:
        if not isinstance(event, HeadersReceived):
            return
        wanted = dict(event.headers).get(b":path", b"").lstrip(b"/")
        size = int(wanted) if wanted.isdigit() else MAX_FILE + 1
        found = size <= MAX_FILE
        status = (b":status", b"200" if found else b"404")
        self.http.send_headers(event.stream_id, [status], end_stream=not found)
        if found:
            self.http.send_data(event.stream_id, bytes(size), end_stream=True)
        self.transmit()


class Client(_Protocol):
    """Loads files of `size` bytes, one after the other. volume: bytes so far; files: that came whole."""

    def __init__(self, *args: Any, size: int, host: str, **named: Any) -> None:
        super().__init__(*args, **named)
        self._size, self._host = size, host
        self.volume = self.files = 0

    def ask(self) -> None:
        """Request one more file."""
        stream = self._quic.get_next_available_stream_id()
        path = str(self._size).encode()
        headers = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", self._host.encode())]
        self.http.send_headers(stream, [*headers, (b":path", b"/" + path)], end_stream=True)
        self.transmit()

    def quic_event_received(self, event: QuicEvent) -> None:
        super().quic_event_received(event)
        if isinstance(event, StreamDataReceived) and event.end_stream and event.stream_id % 4 == 0:
            self.files += 1
            self.ask()

    def take(self, event: Any) -> None:
        if isinstance(event, DataReceived):
            self.volume += len(event.data)


def certificate(configuration: QuicConfiguration) -> None:
    """Give a server a key of its own and a self-signed certificate, for use in a lab only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1))
    configuration.certificate, configuration.private_key = builder.sign(key, hashes.SHA256()), key


async def serving(address: str, port: int) -> None:
    """Serve until the process ends."""
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN, max_datagram_size=DATAGRAM)
    certificate(configuration)
    await serve(address, port, configuration=configuration, create_protocol=Server)
    print("ready", flush=True)
    await asyncio.Future()


async def getting(address: str, port: int, size: int) -> None:
    """Load files until the process ends."""
    configuration = QuicConfiguration(
        alpn_protocols=H3_ALPN, max_datagram_size=DATAGRAM, verify_mode=ssl.CERT_NONE, server_name="server"
    )
    made = partial(Client, size=size, host=address)
    async with connect(address, port, configuration=configuration, create_protocol=made) as client:
        assert isinstance(client, Client)
        for _ in range(AT_ONCE):
            client.ask()
        due, before = time.time() + INTERVAL, 0
        while True:
            await asyncio.sleep(max(0.0, due - time.time()))
            volume = client.volume - before
            print(f"{due:.3f} {volume * 8 / INTERVAL / 1e6:.3f}", flush=True)
            due, before = due + INTERVAL, client.volume


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serving(sys.argv[2], int(sys.argv[3])))
    else:
        asyncio.run(getting(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
