# SPDX-License-Identifier: Apache-2.0
"""BATCP's first octets by hand (hosts/batcp/src/hello.rs), so that anything can be said in them."""

import hashlib
import hmac
import secrets
import socket
import struct

MAGIC = b"BATCP\r\n\x02"
HELLO, ANSWER, PROOF = 64, 64, 16
WINDOW = 8 << 20


def derived(shared: bytes, client: bytes, server: bytes) -> bytes:
    """A connection's keys: HKDF-SHA256 (RFC 5869) of the shared key, one block of it."""
    extracted = hmac.new(client + server, shared, hashlib.sha256).digest()
    return hmac.new(extracted, b"BATCP 2 connection" + b"\x01", hashlib.sha256).digest()


def code(keys: bytes, purpose: bytes, text: bytes) -> bytes:
    return hmac.new(keys, purpose + text, hashlib.sha256).digest()[:PROOF]


def opening(
    nonce: bytes | None = None, interface: int = 0, weights: tuple[float, float] = (1.0, 0.0), cost: float = 1.0
) -> bytes:
    """A hello that opens a connection."""
    nonce = nonce or secrets.token_bytes(16)
    start = MAGIC + struct.pack(">BBHfff", 1, interface, 1234, *weights, cost)
    return (start + struct.pack(">Q", WINDOW) + nonce).ljust(HELLO, b"\0")


def joining(token: int, sequence: int, keys: bytes, interface: int = 1, cost: float = 1.0) -> bytes:
    """A hello that joins one."""
    start = MAGIC + struct.pack(">BBHfff", 2, interface, 1234, 1.0, 0.0, cost) + struct.pack(">QI", token, sequence)
    signed = start.ljust(48, b"\0")
    return signed + code(keys, b"join", signed)


def begin(stream: socket.socket, shared: bytes, cost: float = 1.0) -> tuple[int, bytes]:
    """Opens a connection with the key; the token of joins and the keys. Raises ConnectionError."""
    nonce = secrets.token_bytes(16)
    hello = opening(nonce, cost=cost)
    stream.sendall(hello)
    answer = b""
    while len(answer) < ANSWER:
        more = stream.recv(ANSWER - len(answer))
        if not more:
            raise ConnectionResetError("the hello is refused")
        answer += more
    kind, token = struct.unpack_from(">QQ", answer, 8)
    if kind != 1:
        raise ConnectionResetError(f"the answer is of kind {kind}")
    keys = derived(shared, nonce, answer[32:48])
    stream.sendall(code(keys, b"proof", hello + answer))
    return token, keys


def segment(number: int, payload: bytes, kind: int = 1) -> bytes:
    """A segment, or with another kind another frame (hosts/batcp/src/segment.rs)."""
    head = bytearray(((number & 0xFF_FFFF_FFFF) | len(payload) << 40).to_bytes(8, "big"))
    head[0] = kind
    return bytes(head) + payload
