# SPDX-License-Identifier: Apache-2.0
"""Fields of a frame, from the RFCs and IEEE 802.1Q: only those that are certain and whole."""

from dataclasses import dataclass
from typing import Any

CUSTOMER_TAG, PROVIDER_TAG = 0x8100, 0x88A8  # IEEE 802.1Q, 802.1ad
TAGS = CUSTOMER_TAG, PROVIDER_TAG, 0x9100, 0x9200  # the last two: a provider's before 802.1ad
IPV4, IPV6, ARP, EAPOL = 0x0800, 0x86DD, 0x0806, 0x888E
PREAUTHENTICATION, WLAN, PTP = 0x88C7, 0x890D, 0x88F7  # IEEE 802.11, 1588
PPPOE_DISCOVERY, PPPOE_SESSION = 0x8863, 0x8864  # RFC 2516
CONTROL = ARP, EAPOL, PREAUTHENTICATION, WLAN, PTP, PPPOE_DISCOVERY
SPANNING_TREE = 0x0180C2000000  # IEEE 802.1Q, table 8-1
PPP_VERSIONS = {0x0021: 4, 0x0057: 6}  # protocol of PPP -> IP version
TCP, UDP, ICMPV6 = 6, 17, 58
DHCP = {(68, 67), (67, 68), (67, 67), (546, 547), (547, 546), (547, 547)}
MDNS = 5353
DISCOVERY = range(133, 138)  # ICMPv6: solicitations, advertisements and redirects of RFC 4861
SHORT_DATAGRAM = 256  # bytes with UDP's header
TIMESTAMPS = bytes([1, 1, 8, 10])  # RFC 7323, appendix A; without its first two bytes, which then follow, as well
FIN, SYN, RST, PSH, ACK, URG = (1 << bit for bit in range(6))


@dataclass(frozen=True)
class Segment:
    """A TCP header. length: of header and data, as the IP header claims."""

    flags: int
    header: int
    length: int

    @property
    def pure_ack(self) -> bool:
        """It carries no data, and opens and ends nothing."""
        return self.flags & (ACK | SYN | FIN | RST) == ACK and 20 <= self.header == self.length

    @property
    def boundary(self) -> bool:
        """Another connection begins on its addresses and ports, or one ends."""
        return self.flags & (SYN | RST) != 0

    @property
    def spared(self) -> bool:
        """No signal would slow its sender down: a pure ACK, or a SYN or RST of fewer than 64 bytes."""
        return self.pure_ack or (self.boundary and 0 <= self.length < 64)


@dataclass(frozen=True)
class Frame:
    """ether_type: the frame's own; all else is of what is behind its tags. ip: the version, or 0; ip_at: its place."""

    dst: int
    src: int
    ether_type: int
    vlan: tuple[int, int]
    control: bool
    ip: int = 0
    ip_at: int = 0
    addresses: tuple[int, int] = (0, 0)
    protocol: int = 0
    ports: tuple[int, int] = (0, 0)
    dscp: int = 0
    ecn: int = 0
    tcp: Segment | None = None
    short_datagram: bool = False
    eapol: bool = False


def read(data: bytes) -> Frame:
    """A frame of at least 14 bytes. A header that is cut short is none, nor is what follows it."""

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size])

    ether_type, at = number(12, 2), 14
    vids: list[int] = []
    while ether_type in TAGS and len(vids) < 2 and len(data) >= at + 4:
        vids.append(number(at, 2) & 0xFFF)
        ether_type, at = number(at + 2, 2), at + 4
    outer, inner = (*vids, 0, 0)[:2]
    version = {IPV4: 4, IPV6: 6}.get(ether_type, 0)
    control = ether_type in CONTROL or number(0, 6) == SPANNING_TREE
    eapol = ether_type == EAPOL
    if ether_type == PPPOE_SESSION and len(data) >= at + 8:
        if number(at, 2) == 0x1100:
            protocol = number(at + 6, 2)
            version, control = PPP_VERSIONS.get(protocol, 0), control or protocol >= 0x8000
        at += 8

    frame: dict[str, Any] = {"dst": number(0, 6), "src": number(6, 6), "ether_type": number(12, 2)}
    frame["vlan"] = outer, inner
    size = 20 if version == 4 else 40
    if not version or len(data) < at + size or data[at] >> 4 != version or (version == 4 and data[at] & 15 < 5):
        return Frame(**frame, control=control, eapol=eapol)
    frame |= {"ip": version, "ip_at": at, "dscp": number(at, 2) >> (2 if version == 4 else 6) & 63}
    frame["ecn"] = number(at, 2) >> (0 if version == 4 else 4) & 3
    if version == 4:
        protocol, first, width = data[at + 9], at + 12, 4
        transport = data[at] & 15 == 5 and number(at + 6, 2) & 0x3FFF == 0  # not a fragment: RFC 791
        length = number(at + 2, 2) - 20
    else:
        protocol, first, width = data[at + 6], at + 8, 16
        transport, length = True, number(at + 4, 2)
    frame |= {"protocol": protocol, "addresses": (number(first, width), number(first + width, width))}
    rest = data[at + size :] if transport else b""
    ports = int.from_bytes(rest[:2]), int.from_bytes(rest[2:4])
    if protocol == TCP and len(rest) >= 20:
        tcp = Segment(rest[13], (rest[12] >> 4) * 4, length)
        return Frame(**frame, control=control, ports=ports, tcp=tcp)
    if protocol == UDP and len(rest) >= 8:
        short = int.from_bytes(rest[4:6]) < SHORT_DATAGRAM
        control = control or ports in DHCP or ports[1] == MDNS
        return Frame(**frame, control=control, ports=ports, short_datagram=short)
    discovery = version == 6 and protocol == ICMPV6 and bool(rest) and rest[0] in DISCOVERY
    return Frame(**frame, control=control or discovery)
