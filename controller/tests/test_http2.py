# SPDX-License-Identifier: Apache-2.0
"""The loop's own gRPC calls against servers of grpc's and of a few bytes."""

import dataclasses
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import rpc_status

from controller import http2
from controller.http2 import OK, Channel, ChannelError, Status, Tls

DETAILS = rpc_status.Status(code=2, message="two of three failed").SerializeToString()


def answers(request: bytes, context: Any) -> Iterator[bytes]:
    """What the request asks for: a word, and a number of bytes or of messages."""
    word, _, number = request.partition(b" ")
    match word:
        case b"echo":
            yield request
        case b"bytes":
            yield bytes(int(number))
        case b"messages":
            for count in range(int(number)):
                yield str(count).encode()
        case b"fail":
            yield b"so far"
            context.set_trailing_metadata((("grpc-status-details-bin", DETAILS),))
            context.abort(grpc.StatusCode.UNKNOWN, "zwei von drei: ¾ schlecht")
        case b"sleep":
            time.sleep(float(number))
            yield b"late"


class Handler(grpc.GenericRpcHandler):
    def service(self, details: Any) -> Any:
        return grpc.unary_stream_rpc_method_handler(answers) if details.method == "/test/Ask" else None


@pytest.fixture
def server() -> Iterator[grpc.Server]:
    made = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Handler()])
    yield made
    made.stop(None).wait()


@pytest.fixture
def port(server: grpc.Server) -> int:
    number: int = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return number


def opened(port: int, tls: Tls | None = None) -> Channel:
    return Channel(socket.AF_INET, ("127.0.0.1", port), f"localhost:{port}", tls)


def serve(channel: Channel, until: Callable[[], bool], seconds: float = 20.0) -> None:
    """Poll as the owner does."""
    deadline = time.monotonic() + seconds
    with select.epoll() as poll:
        poll.register(channel.fileno(), channel.events)
        while not until():
            assert time.monotonic() < deadline
            for _, events in poll.poll(0.1):
                channel.handle(events)
                poll.modify(channel.fileno(), channel.events)


def ask(channel: Channel, *requests: bytes, method: str = "/test/Ask") -> list[tuple[Status, list[bytes]]]:
    """All requests at once; their answers in the order of the requests."""
    got: dict[int, tuple[Status, list[bytes]]] = {}
    for number, request in enumerate(requests):

        def done(status: Status, messages: list[bytes], number: int = number) -> None:
            got[number] = status, messages

        channel.call(channel.method(method), request, done)
    serve(channel, lambda: len(got) == len(requests))
    return [got[number] for number in range(len(requests))]


def test_calls_are_answered_one_after_the_other_and_together(port: int) -> None:
    channel = opened(port)
    for number in range(20):
        request = f"echo {number}".encode()
        assert ask(channel, request) == [(Status(OK), [request])]
    assert [messages for _, messages in ask(channel, b"echo a", b"messages 3", b"echo b")] == [
        [b"echo a"], [b"0", b"1", b"2"], [b"echo b"],
    ]  # fmt: skip
    channel.close()


def test_long_requests_and_answers_fit_the_windows(port: int) -> None:
    channel = opened(port)
    request = b"echo " + bytes(range(256)) * 4000
    for _ in range(3):
        assert ask(channel, request, request) == [(Status(OK), [request])] * 2
    assert [len(part) for part in ask(channel, b"bytes 3000000")[0][1]] == [3_000_000]
    assert len(ask(channel, b"messages 1000")[0][1]) == 1000
    channel.close()


def test_the_window_of_the_connection_is_given_back(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "WINDOW", 2**20)
    monkeypatch.setattr(http2, "REFILL", 2**16)
    channel = opened(port)
    for _ in range(8):
        assert len(ask(channel, b"bytes 500000")[0][1][0]) == 500_000
    channel.close()


def test_errors_come_with_their_details(port: int) -> None:
    channel = opened(port)
    status, messages = ask(channel, b"fail")[0]
    assert (status.code, status.message, messages) == (2, "zwei von drei: ¾ schlecht", [b"so far"])
    assert status.details == DETAILS
    assert ask(channel, b"x", method="/test/Nothing")[0][0].code == grpc.StatusCode.UNIMPLEMENTED.value[0]
    channel.close()


def test_a_server_that_goes_away_is_an_error(server: grpc.Server, port: int) -> None:
    channel = opened(port)
    ask(channel, b"echo")
    server.stop(None).wait()
    with pytest.raises(ChannelError):
        serve(channel, lambda: False)
    channel.close()


def test_nobody_there_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ChannelError, match="connection refused"):
        ask(opened(port), b"echo")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">HBBBI", 0, 8, http2.GOAWAY, 0, 0) + bytes(8),
        struct.pack(">HBBBI", 0, 3, http2.HEADERS, 5, 1) + b"\xff\xff\xff",
        struct.pack(">HBBBI", 0, 5, http2.DATA, 1, 1) + b"\1\0\0\0\0",
        struct.pack(">HBBBI", 0, 0, http2.DATA, http2.PADDED, 1),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_an_error(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1 << 16)
                peer.sendall(answer)
                while peer.recv(1 << 16):
                    pass

        thread = threading.Thread(target=talk)
        thread.start()
        channel = opened(listener.getsockname()[1])
        with pytest.raises(ChannelError) as error:
            ask(channel, b"echo")
        assert "\n" not in str(error.value)
        channel.close()
        thread.join()


def openssl(directory: Path, *arguments: str) -> None:
    """Make something of certificates."""
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def certificates(directory: Path) -> Path:
    """An authority, and what it certifies: `server` (as switch.example) and `client`."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl(directory, "req", "-x509", *key, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name, extension in (("server", "subjectAltName=DNS:switch.example"), ("client", "extendedKeyUsage=clientAuth")):
        (directory / "extension").write_text(extension)
        openssl(directory, "req", *key[:-2], "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "request")
        openssl(
            directory, "x509", "-req", "-in", "request", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", "extension", "-out", f"{name}.pem",
        )  # fmt: skip
    return directory


def test_both_sides_prove_who_they_are(server: grpc.Server, tmp_path: Path) -> None:
    made = certificates(tmp_path)
    pair = ((made / "server.key").read_bytes(), (made / "server.pem").read_bytes())
    credentials = grpc.ssl_server_credentials([pair], (made / "ca.pem").read_bytes(), require_client_auth=True)
    port: int = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    client = Tls(made / "ca.pem", made / "client.pem", made / "client.key", "switch.example")
    channel = opened(port, client)
    for request in (b"echo", b"echo " + bytes(500_000)):
        assert ask(channel, request) == [(Status(OK), [request])]
    channel.close()
    with pytest.raises(ChannelError, match="TLS: certificate verify failed"):
        ask(opened(port, dataclasses.replace(client, server_name="other.example")), b"echo")
    with pytest.raises(ChannelError, match="no such file"):
        ask(opened(port, dataclasses.replace(client, key=made / "nothing.key")), b"echo")
