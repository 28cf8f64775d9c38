# SPDX-License-Identifier: Apache-2.0
"""Tools of attacks: gRPC calls without end, HTTP/2 frames by hand, sockets, random mutations."""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import grpc
import hpack

from accesspoint.checks.hostile.attack import Target

SOURCE = "127.0.0.66"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4


def channel(target: Target, number: int = 0, unread: bool = False) -> grpc.Channel:
    """A connection of its own. unread: with windows so small that answers soon wait in the server."""
    options: list[tuple[str, object]] = [
        ("grpc.use_local_subchannel_pool", 1),
        ("attacker", number),
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_metadata_size", 1 << 20),
    ]
    if unread:
        options += [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
    return grpc.insecure_channel(target.address, options)


def many(
    target: Target, method: str, requests: Sequence[bytes], connections: int, at_once: int, stream: bool = False
) -> None:
    """Send requests over and over, on `connections` connections, several at once on each; report the refusals."""

    def ask(call: grpc.Channel, offset: int) -> None:
        rpc = call.unary_stream(method) if stream else call.unary_unary(method)
        number = offset
        while target.running():
            request = requests[number % len(requests)]
            number += 1
            try:
                answer = rpc(request, timeout=target.left())
                if stream:
                    for _ in answer:
                        pass
                target.refused("OK")
            except grpc.RpcError as failure:
                target.refused(failure.code().name, failure.details())
                if failure.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
                    time.sleep(0.01)

    calls = [channel(target, number) for number in range(connections)]
    together(*((lambda call=call, n=n: ask(call, n)) for call in calls for n in range(at_once)))


def hold(
    target: Target, begin: Callable[[grpc.Channel], Any], connections: int, each: int, unread: bool = False
) -> None:
    """Begin `each` calls on each of `connections` connections and keep them until time is up; report the refusals.
    unread: nobody takes the answers."""
    calls = []
    for number in range(connections):
        here = channel(target, number, unread)
        for _ in range(each):
            call = begin(here)
            call.add_done_callback(lambda done: target.refused(done.code().name, done.details()))
            calls.append(call)
    time.sleep(target.left())


def leave(target: Target, method: str, requests: Sequence[bytes], stream: bool = False, at_once: int = 8) -> None:
    """Begin requests on four connections and cancel each when `at_once` others have begun after it: what a server has
    begun for them must not pile up."""

    def one(number: int) -> None:
        call = channel(target, number)
        rpc = call.unary_stream(method) if stream else call.unary_unary(method)
        begun: list[Any] = []
        while target.running():
            request = target.random.choice(requests)
            begun.append(rpc(request, timeout=target.left()) if stream else rpc.future(request, timeout=target.left()))
            if len(begun) > at_once:
                begun.pop(0).cancel()
            time.sleep(0.0005)

    together(*[lambda number=number: one(number) for number in range(4)])


def together(*works: "object") -> None:
    """Runs functions in threads until all are through."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def mutate(data: bytes, source: random.Random) -> bytes:
    """A few bytes changed, cut out, put in, doubled or set to what is often wrong."""
    changed = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 4, 16))):
        at = source.randrange(len(changed) + 1)
        length = source.choice((1, 1, 2, 4, 8, 64))
        match source.randrange(7):
            case 0 if at < len(changed):
                changed[at] ^= 1 << source.randrange(8)
            case 1 if at < len(changed):
                changed[at] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del changed[at : at + length]
            case 3:
                changed[at:at] = source.randbytes(length)
            case 4:
                changed[at:at] = changed[at : at + length] * source.choice((1, 2, 8))
            case 5:
                changed[at : at + length] = source.choice((b"\xff" * 8 + b"\x01", b"\0" * 8, b"\x80" * 9 + b"\x01"))
            case _:
                del changed[at:]
        if len(changed) > 1 << 20:
            del changed[1 << 20 :]
    return bytes(changed)


def mutations(target: Target, valid: dict[str, list[bytes]]) -> Iterator[tuple[str, bytes]]:
    """(method, request) without end."""
    methods = list(valid)
    while target.running():
        method = target.random.choice(methods)
        yield method, mutate(target.random.choice(valid[method]), target.random)


def throw(target: Target, requests: Iterable[tuple[str, bytes]], streaming: Sequence[str] = ()) -> None:
    """Send one request after the other on one connection."""
    call = channel(target)
    for method, request in requests:
        try:
            if method in streaming:
                for _ in call.unary_stream(method)(request, timeout=min(5.0, target.left())):
                    pass
            else:
                call.unary_unary(method)(request, timeout=min(5.0, target.left()))
            target.refused("OK")
        except grpc.RpcError as failure:
            target.refused(failure.code().name)
        if not target.running():
            return


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def head(method: str, *more: tuple[str, str]) -> bytes:
    """The header block of a gRPC request, without use of the dynamic table."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "switch")]
    fields += [("content-type", "application/grpc"), ("te", "trailers"), *more]
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*one) for one in fields], huffman=False)


def connect(target: Target, small: bool = False, source: str = SOURCE) -> socket.socket:
    """A TCP connection. small: that takes few bytes at a time. source: an attacker is another host than the other
    client, so it has another address."""
    stream = socket.socket(socket.AF_INET)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    stream.bind((source, 0))
    if small:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stream.settimeout(target.left())
    stream.connect(target.host_port)
    return stream


def pour(target: Target, begin: bytes, over_and_over: bytes, connections: int = 4, reads: bool = True) -> None:
    """Raw bytes on some connections, the second part as fast as they are taken, until time is up or the server closes
    them; a closed one is opened again. What the server says before it closes is told, as far as it is HTTP/2."""

    def one() -> None:
        while target.running():
            try:
                with connect(target, small=not reads) as stream:
                    if reads:
                        threading.Thread(target=listen, args=(target, stream), daemon=True).start()
                    stream.sendall(begin)
                    while target.running():
                        stream.sendall(over_and_over)
            except TimeoutError:
                return
            except OSError as error:
                target.refused("closed", type(error).__name__)
                time.sleep(0.01)

    together(*[one] * connections)


def listen(target: Target, stream: socket.socket) -> None:
    """Reads HTTP/2 frames until the end, and tells why the server ended it."""
    data = b""
    try:
        while more := stream.recv(65536):
            data += more
            while len(data) >= 9 and len(data) >= 9 + (length := int.from_bytes(data[:3], "big")):
                if data[3] == GOAWAY:
                    code, text = int.from_bytes(data[13:17], "big"), data[17 : 9 + length]
                    target.refused(f"GOAWAY {code}", text.decode(errors="replace"))
                data = data[9 + length :]
    except (OSError, ValueError):
        return


def exchange(target: Target, said: Iterable[bytes], patience: float = 0.05) -> None:
    """A connection for each of these, and whether the server closed it or answered."""
    for data in said:
        if not target.running():
            return
        try:
            with connect(target) as stream:
                stream.sendall(data)
                stream.settimeout(patience)
                target.refused("answered" if stream.recv(65536) else "closed")
        except TimeoutError:
            target.refused("no word")
        except OSError as error:
            target.refused("closed", type(error).__name__)


def idle(target: Target, connections: int, begin: bytes = b"", drip: bytes = b"", every: float = 0.5) -> None:
    """Hold `connections` connections that send the beginning of a message, and then a byte now and then. A closed one
    is opened again."""
    streams: list[socket.socket] = []
    while target.running():
        while len(streams) < connections and target.running():
            try:
                stream = connect(target)
                stream.sendall(begin)
                stream.setblocking(False)
                streams.append(stream)
            except OSError as error:
                target.refused("no connection", type(error).__name__)
                break
        kept = []
        for stream in streams:
            try:
                if drip:
                    stream.send(drip)
                if stream.recv(65536) == b"":
                    raise ConnectionResetError
                kept.append(stream)
            except BlockingIOError:
                kept.append(stream)
            except OSError:
                target.refused("closed")
                stream.close()
        streams = kept
        time.sleep(min(every, target.left()))
    for stream in streams:
        stream.close()
