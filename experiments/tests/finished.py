# SPDX-License-Identifier: Apache-2.0
"""A store with runs whose figures are known, in place of measurements."""

import json
from pathlib import Path

from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs import plan, registry, store
from accesspoint.experiments.runs.plan import Order, Plan
from accesspoint.experiments.runs.store import Store
from accesspoint.experiments.verdict import claims, summary

MACHINE = {"processor": "a processor", "cores": 2, "memory": "4096 MiB", "system": "Debian"}
CHECK = {"cpu_busy": 0.2, "timer_late_p99_ms": 0.2, "runner_cpu": 0.01, "problems": []}
RATES = {  # download beside the upload, upload
    "fifo": (1.9, 0.9), "fifo-reno": (0.1, 0.9), "ncr-uplink": (11.0, 0.3), "ncr-paper": (7.0, 0.3),
    "ncr-mark": (11.0, 0.4),
    "ncr-drop": (11.0, 0.4), "ack-priority": (13.3, 0.63), "ack-filter": (13.3, 0.87), "ours": (13.3, 0.87),
}  # fmt: skip


def samples(order: Order) -> list[Sample]:
    """A run of ncr-testbed; every repeat is a little better than the one before."""
    step, down, up = order.seconds / 180, *RATES[order.arm]
    result = []
    for i in range(round(order.seconds * 4)):
        time = i / 4 + 0.125
        busy = 60 * step <= time < 120 * step
        result.append(Sample(time, "rate_mbps", (down if busy else 13.3) + order.repeat / 100, 0.25, "download"))
        if busy:
            result.append(Sample(time, "rate_mbps", up, 0.25, "upload"))
        result.append(Sample(time, "ping_ms", 9.0 if busy else 4.0))
    return result


def keep(kept: Store, order: Order, problems: tuple[str, ...] = (), commit: str = "a", stand: str = "") -> None:
    """Puts a run into a store. stand: the claims that it was made for; empty: those that stand now."""
    part = kept.part(order)
    store.write_samples(samples(order), part / "samples.parquet")
    facts = {
        "seconds": order.seconds,
        "scale": order.seconds / 180,
        "started": 1_700_000_000.0,
        "clock": "virtual",
        "claims": stand or claims.sha256(),
        "versions": {"kernel": "6.1", "apswitch": "0.1.0", "commit": commit},
        "self_check": CHECK | {"problems": list(problems)},
    }
    (part / "run.json").write_text(json.dumps(facts))
    kept.keep(order, part)


def made(out: Path, arms: tuple[str, ...] | None = None) -> tuple[Plan, Store]:
    """A plan of ncr-testbed, three repeats of these arms or of all, and an empty store for it."""
    planned = plan.make(registry.find("ncr-testbed"), True, arms or tuple(RATES), repeats=3)
    kept = Store(out, planned.experiment, planned.quick)
    kept.begin(planned)
    (kept.directory / "machine.json").write_text(json.dumps(MACHINE))
    return planned, kept


def full(out: Path) -> tuple[Plan, Store]:
    """All its runs, one of them unfit at both attempts; summarised."""
    planned, kept = made(out)
    for order in planned.orders():
        unfit = (order.arm, order.repeat) == ("fifo", 2)
        keep(kept, order, ("the CPU was 97% busy",) if unfit else ())
        if unfit:
            keep(kept, store.second(order), ("the CPU was 96% busy",))
    summary.write(planned, kept)
    return planned, kept
