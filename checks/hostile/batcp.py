# SPDX-License-Identifier: Apache-2.0
"""BATCP by hand (hosts/batcp/src/hello.rs and seal.rs), so that anything can be said in it."""

import hashlib
import hmac
import secrets
import socket
import struct

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"BATCP\r\n\x03"
HELLO, ANSWER, PROOF = 64, 64, 16
NOISE = b"Noise_NNpsk0_25519_AESGCM_SHA256"
EPHEMERAL, TAG = 32, 16
WINDOW = 8 << 20


def derived(shared: bytes, client: bytes, server: bytes) -> bytes:
    """A connection's keys: HKDF-SHA256 (RFC 5869) of the shared key, one block of it."""
    extracted = hmac.new(client + server, shared, hashlib.sha256).digest()
    return hmac.new(extracted, b"BATCP 3 connection" + b"\x01", hashlib.sha256).digest()


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


class Sealed:
    """A subflow of somebody with the key: the opener's part of Noise_NNpsk0, then sealed records."""

    def __init__(self, stream: socket.socket, keys: bytes, hello: bytes) -> None:
        self.stream = stream
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._count = 0
        self._chaining = self._hash = NOISE
        self._mix_hash(b"")
        secret = hmac.new(keys, b"seal" + hello, hashlib.sha256).digest()
        self._chaining, mixed, key = self._expand(secret, 3)
        self._mix_hash(mixed)
        private = X25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw()
        self._mix_hash(public)
        self._chaining, key = self._expand(public, 2)
        tag = AESGCM(key).encrypt(bytes(12), b"", self._hash)
        self._mix_hash(tag)
        stream.sendall(public + tag)
        answer = took(stream, EPHEMERAL + TAG)
        self._mix_hash(answer[:EPHEMERAL])
        self._chaining, key = self._expand(answer[:EPHEMERAL], 2)
        self._chaining, key = self._expand(private.exchange(X25519PublicKey.from_public_bytes(answer[:EPHEMERAL])), 2)
        AESGCM(key).decrypt(bytes(12), answer[EPHEMERAL:], self._hash)
        self._cipher = AESGCM(self._expand(b"", 2)[0])

    def _mix_hash(self, text: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + text).digest()

    def _expand(self, material: bytes, count: int) -> list[bytes]:
        """HKDF of Noise: `count` keys."""
        temporary, keys = hmac.new(self._chaining, material, hashlib.sha256).digest(), [b""]
        for number in range(1, count + 1):
            keys.append(hmac.new(temporary, keys[-1] + bytes([number]), hashlib.sha256).digest())
        return keys[1:]

    def send(self, *frames: bytes) -> None:
        """Send a record of each frame, or of what should be one."""
        records = []
        for frame in frames:
            sealed = self._cipher.encrypt(bytes(4) + self._count.to_bytes(8, "big"), frame, None)
            records.append(len(sealed).to_bytes(2, "big") + sealed)
            self._count += 1
        self.stream.sendall(b"".join(records))


def took(stream: socket.socket, count: int) -> bytes:
    """Receive `count` octets. Raises ConnectionError."""
    octets = b""
    while len(octets) < count:
        more = stream.recv(count - len(octets))
        if not more:
            raise ConnectionResetError("closed")
        octets += more
    return octets


def prove(stream: socket.socket, shared: bytes, cost: float = 1.0) -> tuple[int, bytes, bytes]:
    """Open a connection up to the proof of the key; the token of joins, the keys and the hello. Raises
    ConnectionError."""
    nonce = secrets.token_bytes(16)
    hello = opening(nonce, cost=cost)
    stream.sendall(hello)
    answer = took(stream, ANSWER)
    kind, token = struct.unpack_from(">QQ", answer, 8)
    if kind != 1:
        raise ConnectionResetError(f"the answer is of kind {kind}")
    keys = derived(shared, nonce, answer[32:48])
    stream.sendall(code(keys, b"proof", hello + answer))
    return token, keys, hello


def begin(stream: socket.socket, shared: bytes, cost: float = 1.0) -> tuple[int, bytes, Sealed]:
    """Open a connection with the key; the token of joins, the keys and the subflow. Raises ConnectionError."""
    token, keys, hello = prove(stream, shared, cost)
    return token, keys, Sealed(stream, keys, hello)


def segment(number: int, payload: bytes, kind: int = 1) -> bytes:
    """A segment, or with another kind another frame (hosts/batcp/src/segment.rs)."""
    head = bytearray(((number & 0xFF_FFFF_FFFF) | len(payload) << 40).to_bytes(8, "big"))
    head[0] = kind
    return bytes(head) + payload
