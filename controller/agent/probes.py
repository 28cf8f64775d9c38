# SPDX-License-Identifier: Apache-2.0
"""Probes for an IP address behind a port, like those of a host before it takes an address.

ARP (RFC 5227, section 2.1.1) and neighbour solicitation (RFC 4862, section 5.4.2), both with the unspecified address as
their sender, so that no receiver of a probe changes its tables. The host that has the address answers.
"""

from hashlib import blake2b

ETHERTYPE_ARP, ETHERTYPE_IPV6, ETHERTYPE_VLAN, ETHERTYPE_SERVICE = 0x0806, 0x86DD, 0x8100, 0x88A8
ICMPV6, SOLICITATION = 58, 135
MIN_FRAME = 60


def own_address(name: str) -> bytes:
    """Return the MAC address from which an access point asks: its own, and always the same."""
    digest = blake2b(name.encode(), digest_size=6).digest()
    # Locally administered, and no group.
    return bytes([digest[0] & 0xFC | 0x02]) + digest[1:]


def probe(address: bytes, source: bytes, outer_vid: int, inner_vid: int) -> bytes:
    """Return the frame that asks for an address of IPv4 or IPv6 in a VLAN."""
    if len(address) == 4:
        destination, ether_type = b"\xff" * 6, ETHERTYPE_ARP
        body = bytes.fromhex("0001080006040001") + source + bytes(4) + bytes(6) + address
    else:
        destination, ether_type = b"\x33\x33\xff" + address[13:], ETHERTYPE_IPV6
        body = _solicitation(address)
    frame = destination + source + _tags(outer_vid, inner_vid) + ether_type.to_bytes(2) + body
    return frame.ljust(MIN_FRAME, b"\0")


def _tags(outer_vid: int, inner_vid: int) -> bytes:
    if inner_vid:
        tags = (ETHERTYPE_SERVICE, outer_vid), (ETHERTYPE_VLAN, inner_vid)
        return b"".join(kind.to_bytes(2) + vid.to_bytes(2) for kind, vid in tags)
    return ETHERTYPE_VLAN.to_bytes(2) + outer_vid.to_bytes(2) if outer_vid else b""


def _solicitation(address: bytes) -> bytes:
    group = bytes.fromhex("ff0200000000000000000001ff") + address[13:]
    icmp = bytes([SOLICITATION, 0, 0, 0]) + bytes(4) + address
    pseudo = bytes(16) + group + len(icmp).to_bytes(4) + bytes([0, 0, 0, ICMPV6])
    icmp = icmp[:2] + _checksum(pseudo + icmp) + icmp[4:]
    return b"\x60\0\0\0" + len(icmp).to_bytes(2) + bytes([ICMPV6, 255]) + bytes(16) + group + icmp


def _checksum(data: bytes) -> bytes:
    """Return the checksum of RFC 1071."""
    total = sum(int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2)
