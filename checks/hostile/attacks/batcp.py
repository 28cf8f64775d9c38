# SPDX-License-Identifier: Apache-2.0
"""BATCP: the receiver of files and the remote proxy, by strangers and by somebody who has the key."""

import contextlib
import socket
import struct
import time
from collections.abc import Callable

from accesspoint.checks.hostile import batcp
from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.tools import connect, exchange, idle, mutate, together

Run = Callable[[Target], None]
SERVERS = ("batcp-receive", "batcp-proxy")
EDGES = (1e-45, 1e-300, 3e38, float("inf"), float("nan"), 0.0, -1.0)


def both(short: str = "") -> Callable[[Run], Run]:
    """Registers a function for the receiver and for the proxy. short: the one that `make test` attacks with it."""

    def register(run: Run) -> Run:
        for server in SERVERS:
            attack(server, prefix=f"{server}-", short=server == short)(run)
        return run

    return register


def shared(target: Target) -> bytes:
    return str(target.places["key"]).encode()


@both()
def silence(target: Target) -> None:
    """700 connections that say nothing"""
    idle(target, 700)


@both()
def slow_hellos(target: Target) -> None:
    """700 connections that say a hello byte by byte"""
    idle(target, 700, begin=batcp.opening()[:20], drip=b"\0")


@both()
def hellos_and_silence(target: Target) -> None:
    """700 connections that say a good hello and nothing more"""
    idle(target, 700, begin=batcp.opening())


@both(short="batcp-proxy")
def wrong_proofs(target: Target) -> None:
    """Hundreds of connections that answer with a wrong proof, take nothing and never close"""
    idle(target, 700, begin=batcp.opening() + bytes(batcp.PROOF) + bytes(97))


@both()
def hellos_and_resets(target: Target) -> None:
    """Connections that say a hello and are reset, as fast as they can be made"""

    def one() -> None:
        while target.running():
            try:
                stream = connect(target)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                stream.sendall(batcp.opening())
                stream.close()
            except OSError as error:
                target.refused("no connection", type(error).__name__)
                time.sleep(0.01)

    together(*[one] * 4)


@both(short="batcp-receive")
def costs_at_the_edge(target: Target) -> None:
    """Hellos with weights and costs from 1e-45 to infinity, joined by others, by somebody with the key"""
    while target.running():
        for cost in EDGES:
            for other in EDGES:
                try:
                    with connect(target) as first, connect(target) as second:
                        for stream in (first, second):
                            stream.settimeout(0.5)
                        token, keys, sealed = batcp.begin(first, shared(target), cost)
                        sealed.send(batcp.segment(0, b"x" * 1000))
                        second.sendall(batcp.joining(token, 1, keys, cost=other))
                        second.recv(64)
                        sealed.send(batcp.segment(0, b"", kind=4))  # a reset, which gives the place back
                        target.refused("OK")
                except OSError as error:
                    target.refused("closed", error)
                if not target.running():
                    return


@both()
def joins_of_no_connection(target: Target) -> None:
    """Joins that prove nothing, thousands a second"""
    joins = (batcp.joining(target.random.getrandbits(64), n, bytes(32), n % 100) for n in range(1 << 30))
    exchange(target, joins)


@both()
def hundred_subflows(target: Target) -> None:
    """30 connections of somebody with the key with 99 subflows each, none of which takes anything"""
    streams: list[socket.socket] = []
    for _ in range(30):
        if not target.running():
            return
        try:
            first = connect(target, small=True)
            streams.append(first)
            first.settimeout(1)
            token, keys, _ = batcp.begin(first, shared(target))
            for number in range(1, 100):
                stream = connect(target, small=True)
                stream.sendall(batcp.joining(token, number, keys, interface=number))
                streams.append(stream)
            target.refused("OK")
        except OSError as error:
            target.refused("closed", error)
            time.sleep(0.05)
    time.sleep(target.left())


@both()
def segments_out_of_order(target: Target) -> None:
    """Segments of somebody with the key: far ahead, of one byte, all but the first, without end"""

    def one(seed: int) -> None:
        for _ in range(5):
            try:
                with connect(target, small=True) as stream:
                    stream.settimeout(1)
                    _, _, sealed = batcp.begin(stream, shared(target))
                    for round_number in range(1 << 20):
                        numbers = range(1 + round_number * 1000, 1001 + round_number * 1000)
                        size = 1 if seed % 2 else 60_000
                        sealed.send(*(batcp.segment(n * (1 + seed), b"x" * size) for n in numbers[:: size // 1000 + 1]))
                        if not target.running():
                            return
            except OSError as error:
                target.refused("closed", type(error).__name__)
                time.sleep(0.02)

    together(*[lambda seed=seed: one(seed) for seed in range(8)])


@both()
def mutations(target: Target) -> None:
    """Random mutations of valid hellos and frames, by strangers and by somebody with the key"""
    frames = [batcp.segment(0, b"\0\0\0\x20" + b'{"name":"a","size":1}'), batcp.segment(5, bytes(8), kind=2)]
    frames += [batcp.segment(1, b"", kind=3), batcp.segment(0, b"", kind=4)]
    hello = batcp.opening() + bytes(16) + b"".join(frames)
    with_key = 0  # who has it may take all places for a while, which is no news
    while target.running():
        exchange(target, (mutate(hello, target.random) for _ in range(20)), 0.01)
        for _ in range(5 if with_key < 40 else 0):
            with_key += 1
            with contextlib.suppress(OSError), connect(target) as stream:
                stream.settimeout(0.2)
                _, _, sealed = batcp.begin(stream, shared(target))
                sealed.send(*(mutate(frame, target.random) for frame in frames))
                stream.settimeout(0.01)
                target.refused("closed" if stream.recv(4096) == b"" else "answered")


@both()
def frames_in_clear(target: Target) -> None:
    """Frames in clear of somebody with the key, and of older versions: with a key nothing but sealed ones is taken"""
    older = batcp.MAGIC[:-1] + b"\x02" + batcp.opening()[len(batcp.MAGIC) :]
    while target.running():
        exchange(target, [older + bytes(16) + batcp.segment(0, b"x" * 100)], 0.01)
        try:
            with connect(target) as stream:
                stream.settimeout(1)
                batcp.prove(stream, shared(target))
                stream.sendall(batcp.segment(0, b"x" * 100) * 10)
                assert stream.recv(4096) == b"", "a subflow in clear is answered"
                target.refused("closed")
        except OSError as error:
            target.refused("closed", type(error).__name__)
