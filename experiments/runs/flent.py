# SPDX-License-Identifier: Apache-2.0
"""Writes an arm as a data file that Flent opens (its file format 4: flent/resultset.py).

The series carry the names of Flent's test `tcp_bidirectional`, so that its plots work: `flent -f totals FILE`.
"""

import gzip
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from accesspoint.experiments.measure.samples import Sample

STEP = 0.2  # s
SERIES = {"TCP download": "downlink_mbps", "TCP upload": "uplink_mbps", "Ping (ms) ICMP": "ping_ms"}
UNITS = {"TCP download": "Mbits/s", "TCP upload": "Mbits/s", "Ping (ms) ICMP": "ms"}


def data(samples: Sequence[Sample], title: str, started: float, seconds: float) -> dict[str, Any]:
    """The file's content. started: s since the epoch."""
    x_values = [round(i * STEP, 3) for i in range(round(seconds / STEP))]
    began = datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "version": 4,
        "metadata": {
            "NAME": "tcp_bidirectional",
            "TITLE": title,
            "TIME": began,
            "T0": began,
            "LENGTH": seconds,
            "TOTAL_LENGTH": seconds,
            "STEP_SIZE": STEP,
            "HOST": "server",
            "HOSTS": ["server"],
            "LOCAL_HOST": "sta1",
            "IP_VERSION": 4,
            "NOTE": "the round trip was probed over UDP",
            "DATA_FILENAME": None,
            "TEST_PARAMETERS": {},
            "SERIES_META": {name: {"UNITS": unit} for name, unit in UNITS.items()},
        },
        "x_values": x_values,
        "results": {name: _steps(samples, quantity, x_values) for name, quantity in SERIES.items()},
        "raw_values": {
            name: [{"t": started + s.time, "val": s.value} for s in samples if s.quantity == quantity]
            for name, quantity in SERIES.items()
        },
    }


def _steps(samples: Sequence[Sample], quantity: str, x_values: Sequence[float]) -> list[float | None]:
    """The quantity at each x: the mean of what was measured within the step, else the sample that spans it."""
    chosen = [s for s in samples if s.quantity == quantity]
    result: list[float | None] = []
    for x in x_values:
        half = STEP / 2
        values = [s.value for s in chosen if abs(s.time - x) <= max(half, s.span / 2)]
        result.append(round(fmean(values), 4) if values else None)
    return result


def write(path: Path, content: dict[str, Any]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(content | {"metadata": content["metadata"] | {"DATA_FILENAME": path.name}}, file)
