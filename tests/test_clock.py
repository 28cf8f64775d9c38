# SPDX-License-Identifier: Apache-2.0
"""The program's clocks: no flow changes its treatment because one of them wrapped. Times are those of the packets, by
`apswitch explain`."""

import json
import os
import struct
import subprocess
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from accesspoint.topologies.requirements import ROOT

APSWITCH = Path(os.environ.get("APSWITCH", ROOT / "target/release/apswitch"))
PROGRAM = ROOT / "p4src/compiled/ap.json"
MACS = bytes.fromhex("020000000003"), bytes.fromhex("020000000001")
SRC, DST = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.3")
ECT1, CE = 1, 3
WRAP = 2**32 / 1e6
"""Time at which microseconds in 32 bits wrap around, in s."""
SPARSE, SCALABLE = 4, 3
"""Queues."""


def datagram(ecn: int = 0) -> bytes:
    """Return a UDP datagram of 86 bytes from station to server."""
    head = struct.pack(">BBHHHBBH4s4s", 0x45, ecn, 72, 0, 0, 64, 17, 0, SRC.packed, DST.packed)
    return MACS[0] + MACS[1] + b"\x08\x00" + head + struct.pack(">HHHH", 1111, 2222, 52, 0) + bytes(44)


def entries(**flow_fields: int) -> dict[str, Any]:
    """Return the entries of one flow whose sparse and scalable packets have queues of their own."""
    key = {"src_addr": str(SRC), "dst_addr": str(DST), "protocol": 17, "src_port": 1111, "dst_port": 2222}
    key |= {"ingress_port": 1, "egress_port": 3, "outer_vid": 0, "inner_vid": 0}
    flow = {"flow_index": 3, "generation": 1, "flow_class": 0, "feedback": 0, "scalable_feedback": 0} | flow_fields

    def queue(priority: int, match: dict[str, list[int]], queue: int) -> dict[str, Any]:
        params = {"class_id": 1, "queue": queue, "regulated": 0}
        return {
            "table": "classify",
            "match": match,
            "priority": priority,
            "action_name": "set_class",
            "action_params": params,
        }

    return {
        "table_entries": [
            {
                "table": "forward",
                "match": {"dst_addr": "02:00:00:00:00:03", "outer_vid": 0, "inner_vid": 0},
                "action_name": "forward_to",
                "action_params": {"egress_port": 3},
            },
            {"table": "flows_ipv4", "match": key, "action_name": "set_flow_ipv4", "action_params": flow},
            queue(10, {"sparse": [1, 1]}, SPARSE),
            queue(20, {"scalable": [1, 1]}, SCALABLE),
        ]
    }


def queues(tmp_path: Path, packets: list[tuple[float, bytes]], written: dict[str, Any]) -> list[int]:
    """Return the queue of each packet, given with its time in s."""
    pcap = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for at, data in packets:
        pcap += struct.pack("<IIII", int(at), round(at % 1 * 1e6), len(data), len(data)) + data
    (tmp_path / "packets.pcap").write_bytes(pcap)
    (tmp_path / "entries.json").write_text(json.dumps(written))
    told = subprocess.run(
        [APSWITCH, "explain", PROGRAM, tmp_path / "packets.pcap", "--entries", tmp_path / "entries.json", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    ).stdout
    return [queue_of(json.loads(line)) for line in told.splitlines()]


def queue_of(told: Any) -> int:
    """Return the queue of the one copy that leaves."""
    found = [int(value) for value in _values(told, "queue")]
    assert len(set(found)) == 1, told
    return found[0]


def _values(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == name and isinstance(inner, int):
                yield inner
            yield from _values(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, name)


@pytest.mark.parametrize("around", [0, WRAP, 2 * WRAP, 2**31 / 1e6])
def test_a_flow_that_was_never_busy_is_sparse_whatever_the_clock_says(tmp_path: Path, around: float) -> None:
    times = [1.0, *(at for at in (around + 0.03, around + 0.5, around + 0.9) if at > 1)]
    assert queues(tmp_path, [(at, datagram()) for at in times], entries()) == [SPARSE] * len(times)


def test_a_flow_that_was_never_above_its_meter_is_scalable_whatever_the_clock_says(tmp_path: Path) -> None:
    times = [1.0, WRAP - 0.5, WRAP + 0.03, WRAP + 0.5, 2 * WRAP + 0.1]
    assert queues(tmp_path, [(at, datagram(ECT1)) for at in times], entries()) == [SCALABLE] * len(times)
