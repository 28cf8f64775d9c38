# SPDX-License-Identifier: Apache-2.0
"""Throughput of ten terminals of one cell with the CWND middleware, compared with none, at 4, 64 and 256 ms.

The cell is wired: an uplink of 19 Mbit/s (paper 002's BW_max), where nothing contends for the air. Its buffer lets the
RTT ratio cross 6 at 256 ms, as it did in the paper, whose RTTs were up to 12 s. BW_max and f(n) come from
`hosts cwnd calibrate` in the same cell without the middleware, with one terminal and with ten.
"""

import json
import tempfile
import time
from pathlib import Path

from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.hosts.cell import HOSTS, Cell
from accesspoint.topologies.namespaces.namespace import Namespace

TERMINALS = 10
RATE, ROOM = "19mbit", 4000  # packets: 2.5 s
DELAYS = (4, 64, 256)  # ms, there and back
SETTLE, SPAN = 20.0, 20.0  # s
FAIR = 0.97


def carried(delay: int, terminals: int, *options: str) -> list[float]:
    """Mbit/s that each of the terminals gets acknowledged; options of the middleware, none: without it."""
    with Cell(terminals, rate=RATE, delay=f"{delay / 2}ms", limit=ROOM) as cell:
        if options:
            for terminal in cell.terminals:
                terminal.middleware(*options)
        flows = [flow.go() for flow in [terminal.connect() for terminal in cell.terminals]]
        time.sleep(SETTLE)
        before, start = [flow.info()[0]["acked"] for flow in flows], time.monotonic()
        time.sleep(SPAN)
        after, seconds = [flow.info()[0]["acked"] for flow in flows], time.monotonic() - start
    return [(now - then) * 8e-6 / seconds for now, then in zip(after, before, strict=True)]


def jain(rates: list[float]) -> float:
    return sum(rates) ** 2 / len(rates) / sum(rate**2 for rate in rates)


def measure(step: Step) -> Raw:
    """Return Mbit/s of each terminal, one alone, all without and all with the middleware, and its calibration, by
    delay. Raises LabError."""
    raw = {}
    with tempfile.TemporaryDirectory() as folder, Namespace() as here:
        for delay in DELAYS:
            step(f"{delay} ms: one terminal, without")
            alone = carried(delay, 1)
            step(f"{delay} ms: {TERMINALS} terminals, without")
            plain = carried(delay, TERMINALS)
            measured = [{"terminals": len(rates), "mbit_per_s": sum(rates)} for rates in (alone, plain)]
            file, calibration = Path(folder, "measured.json"), Path(folder, "cell.json")
            file.write_text(json.dumps(measured))
            calibration.write_text(here.run(HOSTS, "cwnd", "calibrate", "--measured", file, "--json"))
            step(f"{delay} ms: {TERMINALS} terminals, with the middleware")
            held = carried(delay, TERMINALS, "--calibration", str(calibration))
            fit = json.loads(calibration.read_text())
            raw[str(delay)] = {"alone": alone, "plain": plain, "held": held, "fit": fit}
    return raw


def rows(raw: Raw) -> list[Row]:
    """Make rows: the sum over the terminals, and their fairness, at each delay."""
    found = []
    for delay, of in raw.items():
        plain, held = of["plain"], of["held"]
        text = f"{TERMINALS} terminals at {delay} ms with the middleware"
        without = f"{sum(held):.2f} Mbit/s, of {sum(plain):.2f} without"
        found += [
            Row(f"cwnd_of_plain_{delay}_ms", f"what {text} carry: {without}", sum(held) / sum(plain), 1.0),
            Row(f"cwnd_jain_{delay}_ms", f"Jain's index of {text}; {jain(plain):.3f} without", jain(held), FAIR),
        ]
    return found
