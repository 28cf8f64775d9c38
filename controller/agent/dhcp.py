# SPDX-License-Identifier: Apache-2.0
"""Names that hosts give themselves in DHCP (RFC 2132, option 12), read from packets that anybody may have made."""

import re
from collections.abc import Iterator

ETHERTYPE_IPV4 = 0x0800
UDP = 17
SERVER_PORT = 67
COOKIE = bytes.fromhex("63825363")
PAD, HOST_NAME, END = 0, 12, 255
FIXED = 236
"""Bytes before the cookie."""
NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def host_name(packet: bytes, mac: bytes) -> str | None:
    """Return the name in a client's message; `packet` begins with the IPv4 header, and `mac` sent it."""
    header = (packet[0] & 15) * 4 if packet else 0
    if len(packet) < header + 8 or packet[0] >> 4 != 4 or packet[9] != UDP:
        return None
    if int.from_bytes(packet[header + 2 : header + 4]) != SERVER_PORT:
        return None
    message = packet[header + 8 :]
    # BOOTREQUEST over Ethernet. A client names itself only: a relay passes on another one's.
    if message[:3] != b"\x01\x01\x06" or message[28:34] != mac or message[FIXED : FIXED + 4] != COOKIE:
        return None
    for code, value in _options(message[FIXED + 4 :]):
        if code == HOST_NAME and NAME.fullmatch(value.rstrip(b"\0")):
            return value.rstrip(b"\0").decode("ascii")
    return None


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 1 < len(data) and data[at] != END:
        if data[at] == PAD:
            at += 1
            continue
        length = data[at + 1]
        value = data[at + 2 : at + 2 + length]
        if len(value) < length:
            return
        yield data[at], value
        at += 2 + length
