# SPDX-License-Identifier: Apache-2.0
"""Probes for an address of IP: the bytes, as scapy reads them, and where they are sent."""

from types import SimpleNamespace
from typing import Any

import pytest
from finsy.proto import p4r
from scapy.layers.inet6 import ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from accesspoint.controller.agent.flow_table import FlowTable
from accesspoint.controller.agent.probes import own_address, probe
from accesspoint.controller.agent.program import Program
from accesspoint.controller.agent.stations import Stations
from accesspoint.controller.agent.usage import INGRESS_PORT, MAX_PROBES, Usage, address_binding
from accesspoint.controller.config import Pipeline

from .test_entries import PIPELINE, config

SOURCE = own_address("ap1")
IPV6 = bytes.fromhex("fe80000000000000021122fffe334455")
GATEWAY = bytes.fromhex("020000000001")


def test_own_address_is_local_and_of_one_access_point() -> None:
    assert SOURCE == own_address("ap1") != own_address("ap2")
    assert all(own_address(f"ap{number}")[0] & 3 == 2 for number in range(100))


def test_probe_for_ipv4_is_an_arp_probe() -> None:
    frame = Ether(probe(bytes([10, 0, 0, 1]), SOURCE, 0, 0))
    assert (frame.dst, frame.src, len(frame)) == ("ff:ff:ff:ff:ff:ff", SOURCE.hex(":"), 60)
    asked = frame[ARP]
    assert (asked.op, asked.psrc, asked.pdst, asked.hwsrc) == (1, "0.0.0.0", "10.0.0.1", SOURCE.hex(":"))


def test_probe_for_ipv6_is_a_solicitation_without_a_source() -> None:
    raw = probe(IPV6, SOURCE, 0, 0)
    frame = Ether(raw)
    assert (frame.dst, frame[IPv6].src, frame[IPv6].dst) == ("33:33:ff:33:44:55", "::", "ff02::1:ff33:4455")
    assert (frame[IPv6].hlim, frame[ICMPv6ND_NS].tgt) == (255, "fe80::211:22ff:fe33:4455")
    checksum = frame[ICMPv6ND_NS].cksum
    del frame[ICMPv6ND_NS].cksum
    assert Ether(bytes(frame))[ICMPv6ND_NS].cksum == checksum and bytes(frame) == raw


@pytest.mark.parametrize(("vlan", "tags"), [((5, 0), [(0x8100, 5)]), ((7, 6), [(0x88A8, 7), (0x8100, 6)])])
def test_probe_in_a_vlan_is_tagged(vlan: tuple[int, int], tags: list[tuple[int, int]]) -> None:
    frame = Ether(probe(bytes([10, 0, 0, 1]), SOURCE, *vlan))
    kinds = [frame.type] + [layer.type for layer in frame.iterpayloads() if isinstance(layer, Dot1Q)]
    vids = [layer.vlan for layer in frame.iterpayloads() if isinstance(layer, Dot1Q)]
    assert [*zip(kinds, vids, strict=False)] == tags and frame[ARP].pdst == "10.0.0.1"


def test_addresses_heard_at_the_place_of_a_contest_are_asked_for() -> None:
    program, said = Program(Pipeline.model_validate(PIPELINE)), config()
    usage = Usage(said, program, Stations(said, program), FlowTable())
    sent: list[tuple[int, bytes]] = []
    connection: Any = SimpleNamespace(send_packet=lambda port, frame: sent.append((port, frame)))

    def hear(port: int, address: str) -> None:
        frame = Ether(src=GATEWAY.hex(":")) / ARP(op=2, hwsrc=GATEWAY.hex(":"), psrc=address)
        metadata = [p4r.PacketMetadata(metadata_id=INGRESS_PORT, value=bytes([port]))]
        assert address_binding(bytes(frame)) is not None
        usage.hear(connection, p4r.PacketIn(payload=bytes(frame), metadata=metadata), 1.0)

    hear(2, "10.0.0.1")
    hear(1, "10.0.0.66")
    usage.ask(connection, int.from_bytes(GATEWAY), (2, 0, 0))
    # A station's own words about the address are not asked after.
    assert sent == [(2, probe(bytes([10, 0, 0, 1]), own_address("ap1"), 0, 0))]
    for number in range(20):
        hear(2, f"10.0.1.{number}")
    sent.clear()
    usage.ask(connection, int.from_bytes(GATEWAY), (2, 0, 0))
    assert len(sent) == MAX_PROBES
