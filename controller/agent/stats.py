# SPDX-License-Identifier: Apache-2.0
"""A log of the loop, every 100 ms one line of CSV per port, for plots."""

import asyncio
import csv
import time
from collections.abc import Mapping
from pathlib import Path

from ..config import CLASS_DOWNLINK, CLASS_UPLINK
from .access_point import ManagedAccessPoint
from .regulator import PortRegulator

INTERVAL = 0.1

COLUMNS = (
    "time",
    "access_point",
    "port",
    "queue_packets",
    "queue_bytes",
    "delay_ms",
    "target_ms",
    "feedback_device",
    "feedback_downlink",
    "feedback_uplink",
    "feedback_largest_flow",
    "arrived_downlink_bps",
    "sent_downlink_bps",
    "arrived_uplink_bps",
    "sent_uplink_bps",
    "sent_bps",
    "filtered_pps",
    "flows_active",
    "late_ticks",
)


class Stats:
    """Writes the log; rates are those since the line before."""

    def __init__(self, path: Path, access_points: Mapping[str, ManagedAccessPoint]) -> None:
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        self._writer.writerow(COLUMNS)
        self._access_points = access_points
        self._before: dict[tuple[str, int], tuple[float, tuple[int, ...]]] = {}

    async def run(self) -> None:
        """Write for ever."""
        try:
            while True:
                now = time.time()
                for ap in [*self._access_points.values()]:
                    for state in ap.loop.ports.values():
                        self._writer.writerow(self.row(ap, state, now))
                self._file.flush()
                await asyncio.sleep(INTERVAL)
        finally:
            self._file.close()

    def row(self, ap: ManagedAccessPoint, state: PortRegulator, now: float) -> list[object]:
        """Return one line of the log; `now` in seconds since the epoch."""
        volumes = state.volumes
        totals = (
            volumes.arrived_bytes[CLASS_DOWNLINK],
            volumes.sent_bytes[CLASS_DOWNLINK],
            volumes.arrived_bytes[CLASS_UPLINK],
            volumes.sent_bytes[CLASS_UPLINK],
            sum(volumes.sent_bytes),
            sum(volumes.filtered_packets),
        )
        key = (ap.config.name, state.port.port)
        then, before = self._before.get(key, (now, totals))
        self._before[key] = (now, totals)
        elapsed = now - then
        rates = [
            max(0.0, (new - old) / elapsed) if elapsed > 0 else 0.0 for new, old in zip(totals, before, strict=True)
        ]
        of_classes = state.class_feedback
        return [
            f"{now:.3f}",
            ap.config.name,
            state.port.port,
            round(state.estimate.packets, 1),
            round(state.estimate.bytes),
            round(state.delay * 1000, 3),
            round(state.target_delay * 1000, 3),
            round(state.feedback, 5),
            round(of_classes.get(CLASS_DOWNLINK, 0.0), 5),
            round(of_classes.get(CLASS_UPLINK, 0.0), 5),
            round(state.largest_flow_feedback, 5),
            *(round(rate * 8) for rate in rates[:5]),
            round(rates[5], 1),
            len(state.active),
            ap.loop.late,
        ]
