# SPDX-License-Identifier: Apache-2.0
"""`hosts cwnd run`: announcements of strangers, of a terminal with the key, and its status socket."""

import hashlib
import hmac
import socket
import struct
import time
from pathlib import Path

from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.tools import mutate


def announcement(key: bytes, terminal: int, when: float | None = None) -> bytes:
    """A datagram of a terminal (hosts/src/cwnd/announce.rs)."""
    micros = int((time.time() if when is None else when) * 1e6)
    said = b"HCW1" + struct.pack(">QQIH", terminal, micros, 1000, 1)
    return said + hmac.new(key, said, hashlib.sha256).digest()


def air(target: Target) -> socket.socket:
    """Open a socket on the broadcast address that the cell's terminals use."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, target.places["far"].encode())
    sender.bind(("10.99.0.2", 0))
    sender.connect(("10.99.0.255", target.host_port[1]))
    return sender


@attack("cwnd", short=True)
def cwnd_forged_announcements(target: Target) -> None:
    """Announcements that nobody with the key made, as fast as they can be sent"""
    with air(target) as sender:
        while target.running():
            sender.send(announcement(b"another key", target.random.getrandbits(64)))


@attack("cwnd")
def cwnd_a_terminal_that_is_many(target: Target) -> None:
    """Announcements of a new terminal each, by one that has the key"""
    key = target.places["key"].encode()
    with air(target) as sender:
        while target.running():
            sender.send(announcement(key, target.random.getrandbits(64)))


@attack("cwnd")
def cwnd_mutations(target: Target) -> None:
    """Random mutations of good announcements"""
    key = target.places["key"].encode()
    with air(target) as sender:
        while target.running():
            sender.send(mutate(announcement(key, target.random.getrandbits(3)), target.random)[:1400])


@attack("cwnd")
def cwnd_status_that_nobody_reads(target: Target) -> None:
    """100 connections to the status socket that read nothing"""
    sockets = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "cwnd" in line]
    name = next(name.replace("@", "\0", 1) if name.startswith("@") else name for name in sockets)
    kept = []
    while target.running():
        try:
            stream = socket.socket(socket.AF_UNIX)
            stream.settimeout(0.5)
            stream.connect(name)
            kept.append(stream)
        except OSError as error:
            target.refused("no connection", type(error).__name__)
            time.sleep(0.05)
        if len(kept) > 100:
            kept.pop(0).close()
            time.sleep(0.01)
