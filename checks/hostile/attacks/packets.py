# SPDX-License-Identifier: Apache-2.0
"""Packets at the switch's ports: sent round for ever by a program, logged one by one, or no packets at all."""

import json
import socket
import time

from accesspoint.checks.bench.switch.program import SERVER_MAC, STATION_MAC, five_tuple
from accesspoint.checks.harness.p4runtime import update
from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.intruder import Intruder, own
from accesspoint.checks.hostile.tools import mutate


def port(target: Target, number: int) -> socket.socket:
    """The far end of a port."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.bind((target.places["ports"][str(number)], 0))
    return raw


def features(target: Target, *changes: tuple[str, str]) -> Intruder:
    """A primary with the test program `features`, some of its JSON replaced. The steady packets, whose first byte is
    2, pass through it, too; those of the attack begin with another one."""
    intruder = Intruder(target, own("features"))
    text = json.dumps(json.loads(intruder.program.device_config))
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    assert intruder.push(text.encode()), "without its program this is no attack"
    return intruder


def replicate(intruder: Intruder, replicas: int) -> None:
    """Multicast group 1 and clone session 7, with so many copies for port 1."""
    copies = [{"port": b"\x01", "instance": number} for number in range(replicas)]
    group = {"multicast_group_id": 1, "replicas": copies}
    session = {"session_id": 7, "replicas": copies}
    intruder.write(
        update("INSERT", packet_replication_engine_entry={"multicast_group_entry": group}),
        update("INSERT", packet_replication_engine_entry={"clone_session_entry": session}),
    )


def flood(target: Target, frame: bytes, number: int = 1, per_second: float = 2000) -> None:
    """Send one frame over and over, at a rate."""
    raw = port(target, number)
    start, sent = time.monotonic(), 0
    while target.running():
        raw.send(frame)
        sent += 1
        time.sleep(max(0.0, start + sent / per_second - time.monotonic()))


KIND = '"right": {"type": "hexstr", "value": "0x%02x"}'
FOR_EVER = (
    '"right": {"type": "hexstr", "value": "0xff"}}}, "right": {"type": "hexstr", "value": "0xff"}',
    '"right": {"type": "hexstr", "value": "0x100"}}}, "right": {"type": "hexstr", "value": "0xff"}',
)
"""The packet's counter of how often it shall go round stays what it is."""
ROUND = b"\x18\x01" + bytes(62)


@attack("switch", short=True)
def multicast_that_recirculates(target: Target) -> None:
    """A program that multicasts each packet to one port and recirculates the copy, for ever"""
    replicate(features(target, (KIND % 0x0C, KIND % 0x18), FOR_EVER), 1)
    flood(target, ROUND)


@attack("switch")
def multicast_that_multiplies(target: Target) -> None:
    """A program that multicasts each packet to 32 copies and recirculates each of them, for ever"""
    replicate(features(target, (KIND % 0x0C, KIND % 0x18), FOR_EVER), 32)
    flood(target, ROUND, per_second=100)


@attack("switch")
def clones_that_recirculate(target: Target) -> None:
    """A program that clones each packet at egress and recirculates it, for ever"""
    replicate(features(target, (KIND % 0x17, KIND % 0x18), FOR_EVER), 4)
    flood(target, ROUND)


@attack("switch")
def resubmissions_without_end(target: Target) -> None:
    """A program that resubmits each packet for ever"""
    same = '"right": {"type": "hexstr", "value": "0x00000006"}'
    features(target, (same, same.replace("06", "63")))
    flood(target, b"\x0d" + bytes(63))


@attack("switch", short=True, stderr="full")
def log_that_nobody_reads(target: Target) -> None:
    """Packets that each write to the log, which is a pipe that nobody reads"""
    features(target)
    flood(target, b"\x12" + bytes(63), per_second=5000)


@attack("switch")
def log_of_every_packet(target: Target) -> None:
    """Packets that each write to the log, which is a file"""
    features(target)
    flood(target, b"\x12" + bytes(63), per_second=20_000)


@attack("switch")
def digests_that_nobody_takes(target: Target) -> None:
    """Packets of a new source each, for a primary that asked for digests and reads none"""
    intruder = Intruder(target)
    for digest in intruder.program.p4info.digests:
        config = {"max_list_size": 1, "max_timeout_ns": 0, "ack_timeout_ns": 0}
        intruder.write(update("INSERT", digest_entry={"digest_id": digest.preamble.id, "config": config}))
    raw, number = port(target, 1), 0
    server = bytes.fromhex(SERVER_MAC.replace(":", ""))
    while target.running():
        number += 1
        raw.send(server + b"\x06" + number.to_bytes(5, "big") + b"\x08\x00" + bytes(50))


@attack("switch")
def frames_of_any_kind(target: Target) -> None:
    """Random mutations of good frames, and random bytes, as fast as they can be sent"""
    src, dst, sport, dport = five_tuple(1)
    ethernet = bytes.fromhex((STATION_MAC + STATION_MAC).replace(":", ""))  # to nobody who counts packets
    tcp = sport.to_bytes(2, "big") + dport.to_bytes(2, "big") + bytes(8) + b"\x50\x10\xff\xff" + bytes(4)
    ipv4 = b"\x45\0\0\x28\0\0\0\0\x40\x06\0\0" + socket.inet_aton(src) + socket.inet_aton(dst)
    ipv6 = b"\x60\0\0\0\0\x14\x06\x40" + bytes(32)
    valid = [
        ethernet + b"\x08\0" + ipv4 + tcp,
        ethernet + b"\x86\xdd" + ipv6 + tcp,
        ethernet + b"\x81\0\0\x01\x08\0" + ipv4 + tcp,
        ethernet + b"\x08\0" + ipv4[:9] + b"\x11" + ipv4[10:] + tcp,
        ethernet + b"\x08\x06" + bytes(28),
    ]
    raw, source = port(target, 2), target.random
    while target.running():
        frame = (
            mutate(source.choice(valid), source)
            if source.random() < 0.9
            else source.randbytes(source.randrange(14, 1500))
        )
        if 14 <= len(frame) <= 9000 and frame[:6] != bytes.fromhex(SERVER_MAC.replace(":", "")):
            raw.send(frame)
