# SPDX-License-Identifier: Apache-2.0
"""Tables for people: plain text, aligned, one heading; and formats of times, rates and sizes."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Column = tuple[str, Callable[[Mapping[str, Any]], object]]


def field(name: str) -> Callable[[Mapping[str, Any]], object]:
    """Return a column that is a field."""
    return lambda row: row[name]


def rate(bps: float) -> str:
    """Format bits per second."""
    for unit in ("", "k", "M", "G"):
        if abs(bps) < 1000 or unit == "G":
            return f"{bps:.3g}{unit}"
        bps /= 1000
    raise AssertionError("unreachable")


def size(octets: float) -> str:
    """Format bytes."""
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if abs(octets) < 1024 or unit == "Ti":
            return f"{octets:.4g}{unit}"
        octets /= 1024
    raise AssertionError("unreachable")


def ago(when: float | None) -> str:
    """Format the time since `when`."""
    if when is None:
        return "-"
    seconds = max(0.0, time.time() - when)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def until(when: float | None) -> str:
    """Format a time of expiry."""
    return "never" if when is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


def probability(value: float) -> str:
    """Format a probability."""
    return f"{value * 100:.2f}%" if value else "0"


def endpoint(address: str, port: int) -> str:
    """Format an address with its port."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def standing(row: Mapping[str, Any]) -> str:
    """Describe the group, lock and block of a station, and its limits that are missed, in words."""
    missed = [f"limit {way} missed" for way in ("down", "up") if row[f"limit_{way}_missed"]]
    locked = "" if row["locked_port"] is None else f"locked to {row['locked_port']}"
    group = f"in {row['group']}" if row["group"] else ""
    return ", ".join(filter(None, (group, *missed, "blocked" if row["blocked"] else "", locked))) or "-"


COLUMNS: dict[str, list[Column]] = {
    "access-points": [
        ("NAME", field("name")),
        ("STATE", field("state")),
        ("ADDRESS", field("address")),
        ("STATIONS", field("stations")),
        ("FLOWS", field("flows")),
        ("LATE", lambda row: row["loop"]["late"]),
        ("TICK P99", lambda row: f"{row['loop']['tick_ms_p99']:.1f} ms"),
        ("PROBLEM", lambda row: row["problem"] or ""),
    ],
    "ports": [
        ("PORT", field("port")),
        ("ROLE", field("role")),
        ("LINK", field("link")),
        ("CAPACITY", lambda row: "-" if row["capacity_used_bps"] is None else rate(row["capacity_used_bps"])),
        ("QUEUE", lambda row: f"{row['queue_packets']:.0f}"),
        ("DELAY", lambda row: f"{row['delay_ms']:.1f} ms"),
        ("TARGET", lambda row: f"{row['target_ms']:.1f} ms"),
        ("FLOWS", field("flows_active")),
        ("DEVICE TERM", lambda row: probability(row["device"])),
        ("SENT", lambda row: size(sum(entry["sent_bytes"] for entry in row["classes"]))),
        ("MARKED", lambda row: sum(entry["marked_packets"] for entry in row["classes"])),
        ("DROPPED", lambda row: sum(entry["dropped_packets"] for entry in row["classes"])),
        ("ACKS FILTERED", lambda row: sum(entry["filtered_packets"] for entry in row["classes"])),
    ],
    "stations": [
        ("ADDRESS", field("address")),
        ("NAME", lambda row: row["name"] or row["host_name"] or "-"),
        ("PORT", field("port")),
        ("ROLE", field("role")),
        ("DOWN", lambda row: rate(row["rate_down_bps"])),
        ("UP", lambda row: rate(row["rate_up_bps"])),
        ("USED DOWN", lambda row: size(row["bytes_down"])),
        ("USED UP", lambda row: size(row["bytes_up"])),
        ("WEIGHT", lambda row: f"{row['weight_used']:g}"),
        ("LIMIT DOWN", lambda row: "-" if row["limit_down_used_bps"] is None else rate(row["limit_down_used_bps"])),
        ("LIMIT UP", lambda row: "-" if row["limit_up_used_bps"] is None else rate(row["limit_up_used_bps"])),
        ("STATE", standing),
        ("MOVES", field("moves")),
        ("AGE", lambda row: ago(row["since"])),
    ],
    "flows": [
        ("INDEX", field("flow_index")),
        ("PROTOCOL", lambda row: {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp6"}.get(row["protocol"], row["protocol"])),
        ("FROM", lambda row: endpoint(row["src_addr"], row["src_port"])),
        ("TO", lambda row: endpoint(row["dst_addr"], row["dst_port"])),
        ("DIRECTION", field("direction")),
        ("CLASS", field("class_id")),
        ("WEIGHT", lambda row: f"{row['weight']:g}"),
        ("RATE", lambda row: rate(row["rate_bps"])),
        ("FLOW", lambda row: probability(row["feedback"])),
        ("CLASS TERM", lambda row: probability(row["feedback_class"])),
        ("DEVICE", lambda row: probability(row["feedback_device"])),
        ("TOTAL", lambda row: probability(row["feedback_total"])),
        ("AGE", lambda row: ago(row["since"])),
    ],
    "classes": [
        ("CLASS", field("class_id")),
        ("NAME", field("name")),
        ("WEIGHT", lambda row: f"{row['weight']:g}"),
        ("SHARE", lambda row: probability(row["share"])),
        ("SENT", lambda row: size(row["sent_bytes"])),
        ("MARKED", field("marked_packets")),
        ("DROPPED", field("dropped_packets")),
        ("ACKS FILTERED", field("filtered_packets")),
    ],
    "feedback": [
        ("PORT", field("port")),
        ("DEVICE", lambda row: probability(row["device"])),
        ("CLASSES", lambda row: ", ".join(f"{c['class_id']}: {probability(c['feedback'])}" for c in row["classes"])),
        ("LARGEST FLOW", lambda row: probability(row["largest_flow"])),
    ],
    "counters": [(name.upper(), field(name)) for name in ("counter", "port", "index", "packets", "bytes")],
    "rules": [
        ("NAME", field("name")),
        ("PRIORITY", field("priority")),
        ("CLASS", field("class_id")),
        ("QUEUE", field("queue")),
        ("REGULATED", field("regulated")),
        (
            "MATCH",
            lambda row: ", ".join(
                f"{name}={value}"
                for name, value in row.items()
                if value is not None and name not in ("name", "priority", "class_id", "queue", "regulated")
            ),
        ),
    ],
    "revisions": [
        ("REVISION", field("revision")),
        ("TIME", lambda row: until(row["time"])),
        ("ACTOR", field("actor")),
    ],
    "agents": [
        ("ID", field("id")),
        ("ACCESS POINT", lambda row: row["access_point"] or f"- (would be {row['name']})"),
        ("HOST", lambda row: row["host"] or "-"),
        ("HEARD", lambda row: ago(row["heard"])),
        ("ADOPTED", lambda row: ago(row["adopted"])),
    ],
    "tokens": [
        ("ID", field("id")),
        ("NAME", field("name")),
        ("ROLE", field("role")),
        ("AGE", lambda row: ago(row["created"])),
        ("EXPIRES", lambda row: "revoked" if row["revoked"] else until(row["expires"])),
    ],
    "audit": [
        ("TIME", lambda row: until(row["time"])),
        ("ACTOR", field("actor")),
        ("FROM", field("client")),
        ("ACTION", field("action")),
        ("PATH", field("path")),
        ("CHANGE", lambda row: printed(row["change"])),
    ],
    "history": [
        ("TIME", lambda row: time.strftime("%H:%M:%S", time.localtime(row["time"]))),
        ("PORT", field("port")),
        ("DELAY", lambda row: f"{row['delay_ms']:.1f} ms"),
        ("MAX", lambda row: f"{row['delay_max_ms']:.1f} ms"),
        ("DOWN", lambda row: rate(row["sent_downlink_bps"])),
        ("UP", lambda row: rate(row["sent_uplink_bps"])),
        ("DEVICE TERM", lambda row: probability(row["feedback_device"])),
        ("MARKED", lambda row: f"{row['marked_packets']:.0f}"),
        ("DROPPED", lambda row: f"{row['dropped_packets']:.0f}"),
        ("ACKS FILTERED", lambda row: f"{row['filtered_packets']:.0f}"),
    ],
}


def table(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows under their headings."""
    columns = COLUMNS[kind]
    cells = [[heading for heading, _ in columns], *([str(value(row)) for _, value in columns] for row in rows)]
    widths = [max(len(row[number]) for row in cells) for number in range(len(columns))]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(lines)


def pairs(content: Mapping[str, Any]) -> str:
    """Format one object: a field a line, nested ones as JSON."""
    width = max((len(name) for name in content), default=0)
    return "\n".join(f"{name.ljust(width)}   {printed(value)}" for name, value in content.items())


def printed(value: object) -> str:
    """Format one value: `-` for none, JSON for what is nested, true or false."""
    return "-" if value is None else json.dumps(value) if isinstance(value, dict | list | bool) else str(value)
