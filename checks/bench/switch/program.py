# SPDX-License-Identifier: Apache-2.0
"""ap.p4 with N known flows on a switch, through P4Runtime: the same for every target."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import finsy as fy
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from accesspoint.topologies.requirements import ROOT

STATION_MAC, SERVER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
STATION_PORT, UPLINK_PORT = 1, 2
BATCH = 2000


def five_tuple(index: int) -> tuple[str, str, int, int]:
    """Flow `index` (below 65536): source and destination address and port."""
    return f"10.0.{index >> 8}.{index & 255}", "192.0.2.1", 1024 + index % 60000, 5001


def write_frames(path: Path, flows: int, frame_bytes: int) -> None:
    """A pcap with one TCP data segment per flow, `frame_bytes` long without FCS."""
    frames = []
    for index in range(flows):
        src, dst, sport, dport = five_tuple(index)
        tcp = TCP(sport=sport, dport=dport, flags="A")
        headers = Ether(src=STATION_MAC, dst=SERVER_MAC) / IP(src=src, dst=dst, tos=2) / tcp
        frames.append(headers / Raw(bytes(frame_bytes - len(headers))))
    wrpcap(str(path), frames)


def entities(flows: int) -> Iterator[fy.P4TableEntry]:
    """Roles, stations, classes, feedback 0 and the flows."""
    yield fy.P4TableEntry(
        "ingress_roles", match=fy.Match(ingress_port=STATION_PORT), action=fy.Action("set_ingress_role", role=1)
    )
    yield fy.P4TableEntry(
        "ingress_roles", match=fy.Match(ingress_port=UPLINK_PORT), action=fy.Action("set_ingress_role", role=2)
    )
    yield fy.P4TableEntry(
        "egress_roles", match=fy.Match(egress_port=UPLINK_PORT), action=fy.Action("set_egress_role", role=2)
    )
    yield fy.P4TableEntry(
        "learn",
        match=fy.Match(src_addr=STATION_MAC, ingress_port=STATION_PORT, outer_vid=0, inner_vid=0),
        action=fy.Action("known_source"),
    )
    yield fy.P4TableEntry(
        "forward",
        match=fy.Match(dst_addr=SERVER_MAC, outer_vid=0, inner_vid=0),
        action=fy.Action("forward_to", egress_port=UPLINK_PORT),
    )
    yield fy.P4TableEntry(
        "ack_priority", match=fy.Match(egress_port=UPLINK_PORT), action=fy.Action("prioritise", queue=7, filter=1)
    )
    for direction, pure_ack, class_id in ((1, 0, 2), (1, 1, 1), (2, 0, 1), (2, 1, 2)):
        yield fy.P4TableEntry(
            "classify",
            match=fy.Match(direction=direction, pure_ack=pure_ack),
            action=fy.Action("set_class", class_id=class_id, queue=0, regulated=1),
            priority=10,
        )
    for class_id in (1, 2):
        yield fy.P4TableEntry(
            "class_feedback",
            match=fy.Match(egress_port=UPLINK_PORT, class_id=class_id, ecn=2),
            action=fy.Action("add_class_feedback", feedback=0, mark_only=0),
        )
    yield fy.P4TableEntry(
        "port_feedback",
        match=fy.Match(egress_port=UPLINK_PORT, ecn=2),
        action=fy.Action("add_port_feedback", feedback=0),
    )
    for index in range(flows):
        src, dst, sport, dport = five_tuple(index)
        place = {"ingress_port": STATION_PORT, "egress_port": UPLINK_PORT, "outer_vid": 0, "inner_vid": 0}
        yield fy.P4TableEntry(
            "flows_ipv4",
            match=fy.Match(src_addr=src, dst_addr=dst, protocol=6, src_port=sport, dst_port=dport, **place),
            action=fy.Action(
                "set_flow_ipv4", flow_index=index, generation=0, flow_class=0, feedback=0, scalable_feedback=0
            ),
        )


async def install(address: str, flows: int, compiled: Path = ROOT / "p4src/compiled") -> None:
    """Push the pipeline and the entries; errors are finsy's (P4ClientError)."""
    options = fy.SwitchOptions(p4info=compiled / "ap.p4info.txtpb", p4blob=compiled / "ap.json")
    async with fy.Switch("bench", address, options) as switch:
        batch: list[fy.P4TableEntry] = []
        for entity in entities(flows):
            batch.append(entity)
            if len(batch) == BATCH:
                await switch.insert(batch)
                batch = []
        await switch.insert(batch)


if __name__ == "__main__":
    asyncio.run(install(sys.argv[1], int(sys.argv[2]), *(Path(folder) for folder in sys.argv[3:])))
