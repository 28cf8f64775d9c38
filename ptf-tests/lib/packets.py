# SPDX-License-Identifier: Apache-2.0
"""The hosts of the packet tests and what they send. A host is named by its port: host 2 is behind port 2."""

from typing import Any

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw
from scapy.utils import checksum

Frame = Packet | bytes

NOT_ECT, ECT1, ECT0, CE = range(4)  # RFC 3168, section 5

BROADCAST = "ff:ff:ff:ff:ff:ff"
TIMESTAMPS = [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]  # RFC 7323, appendix A
TIMESTAMPS_FIRST = ([("Timestamp", (1, 2)), ("EOL", None)], [("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)])


def mac(host: int) -> str:
    """The host's MAC address."""
    return f"02:00:00:00:00:{host:02x}"


def ipv4(host: int) -> str:
    """The host's IPv4 address."""
    return f"10.0.0.{host}"


def ipv6(host: int) -> str:
    """The host's IPv6 address."""
    return f"fd00::{host:x}"


def build_ethernet(source: int, target: int, **fields: Any) -> Packet:
    """An Ethernet header from host to host."""
    return Ether(**({"src": mac(source), "dst": mac(target)} | fields))


def build_arp(source: int, target: int, **ethernet_fields: Any) -> Packet:
    """An ARP request of the source for the target (RFC 826)."""
    request = ARP(hwsrc=mac(source), psrc=ipv4(source), hwdst="00:00:00:00:00:00", pdst=ipv4(target))
    return build_ethernet(source, target, **ethernet_fields) / request


def build_ip(source: int, target: int, *, version: int = 4, ecn: int = NOT_ECT, dscp: int = 0, **fields: Any) -> Packet:
    """Ethernet and IP headers from host to host."""
    traffic_class = dscp << 2 | ecn
    header: Packet
    if version == 4:
        header = IP(src=ipv4(source), dst=ipv4(target), tos=traffic_class, **fields)
    else:
        header = IPv6(src=ipv6(source), dst=ipv6(target), tc=traffic_class, **fields)
    return build_ethernet(source, target) / header


def build_udp(
    source: int, target: int, *, sport: int = 1111, dport: int = 2222, size: int = 100, **ip_fields: Any
) -> Packet:
    """A UDP datagram in a frame of `size` bytes."""
    packet = build_ip(source, target, **ip_fields) / UDP(sport=sport, dport=dport)
    return pad(packet, size)


def build_tcp(
    source: int,
    target: int,
    *,
    sport: int = 1111,
    dport: int = 2222,
    size: int = 100,
    flags: str = "A",
    number: int = 2000,
    **ip_fields: Any,
) -> Packet:
    """A TCP segment with data in a frame of `size` bytes that acknowledges `number`."""
    packet = build_ip(source, target, **ip_fields) / TCP(sport=sport, dport=dport, seq=1000, ack=number, flags=flags)
    return pad(packet, size)


def build_ack(
    source: int,
    target: int,
    number: int = 2000,
    *,
    sport: int = 1111,
    dport: int = 2222,
    flags: str = "A",
    options: Any = (),
    reserved: int = 0,
    window: int = 512,
    **ip_fields: Any,
) -> Packet:
    """A TCP segment without data that acknowledges `number`."""
    header = TCP(
        sport=sport,
        dport=dport,
        seq=1000,
        ack=number,
        flags=flags,
        options=list(options),
        reserved=reserved,
        window=window,
    )
    return build_ip(source, target, **ip_fields) / header


def pad(packet: Packet, size: int) -> Packet:
    """Add payload until the frame has `size` bytes."""
    return packet / Raw(bytes(index & 0xFF for index in range(size - len(packet))))


def set_ecn(packet: Frame, ecn: int) -> bytes:
    """Return the frame with another ECN codepoint and, for IPv4, a new header checksum."""
    frame = bytearray(bytes(packet))
    if frame[12:14] == b"\x86\xdd":
        frame[15] = frame[15] & 0xCF | ecn << 4
    else:
        frame[15] = frame[15] & 0xFC | ecn
        end = 14 + 4 * (frame[14] & 0xF)
        frame[24:26] = b"\0\0"
        frame[24:26] = checksum(bytes(frame[14:end])).to_bytes(2)
    return bytes(frame)
