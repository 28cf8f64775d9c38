# SPDX-License-Identifier: Apache-2.0
"""Names of stations from DHCP: of whoever sends its own, and from nothing else."""

from types import SimpleNamespace
from typing import Any

import pytest
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether

from accesspoint.controller.agent.flow_table import FlowTable
from accesspoint.controller.agent.program import Program
from accesspoint.controller.agent.stations import Stations
from accesspoint.controller.agent.usage import MAX_NAMES, Usage, dhcp_name

from .test_entries import config

MAC = "02:00:00:00:00:01"
NUMBER = int(MAC.replace(":", ""), 16)


def request(name: bytes, owner: str = MAC, tag: bool = False, port: int = 67) -> bytes:
    options = [("message-type", "request"), "pad", ("hostname", name), "end"]
    message = BOOTP(op=1, chaddr=bytes.fromhex(owner.replace(":", ""))) / DHCP(options=options)
    datagram = IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=port) / message
    ethernet = Ether(src=MAC, dst="ff:ff:ff:ff:ff:ff")
    return bytes(ethernet / Dot1Q(vlan=7) / datagram if tag else ethernet / datagram)


@pytest.mark.parametrize("tag", [False, True])
def test_request_names_its_sender(tag: bool) -> None:
    assert dhcp_name(request(b"annas-phone", tag=tag)) == (NUMBER, "annas-phone")


@pytest.mark.parametrize(
    "frame",
    [
        request(b"<script>"), request(b""), request(b"x" * 64), request(b"printer", owner="02:00:00:00:00:02"),
        request(b"printer", port=68), b"", request(b"printer")[:-20], request(b"printer")[:40],
    ],
)  # fmt: skip
def test_frame_that_is_no_own_request_names_none(frame: bytes) -> None:
    assert dhcp_name(frame) is None


def test_every_part_of_a_request_is_read_without_an_error() -> None:
    whole = request(b"printer")
    for length in range(len(whole)):
        assert dhcp_name(whole[:length]) in (None, (NUMBER, "printer"))


def test_names_come_from_station_ports_and_have_a_bound() -> None:
    of = config()
    program = Program(of.pipeline)
    usage, connection = Usage(of, program, Stations(of, program), FlowTable()), Any

    def hear(frame: bytes, port: int, now: float) -> None:
        metadata = [SimpleNamespace(metadata_id=1, value=bytes([port]))]
        usage.hear(connection, SimpleNamespace(payload=frame, metadata=metadata), now)  # type: ignore[arg-type]

    hear(request(b"server"), 2, 0.0)
    assert usage.names == {}
    hear(request(b"phone"), 1, 0.0)
    hear(request(b"phone-2"), 1, 0.0)
    assert usage.names == {NUMBER: "phone-2"}
    usage.names |= dict.fromkeys(range(MAX_NAMES), "made-up")
    hear(request(b"phone-3"), 1, 2.0)
    assert len(usage.names) == MAX_NAMES and usage.names[NUMBER] == "phone-3"
