# SPDX-License-Identifier: Apache-2.0
"""Packets at full rate while flows are written: what is lost.

Full rate is the throughput of RFC 2544 (section 26.1), the fastest rate at which nothing is lost, here to the part in a
thousand that the goal allows, and in trials of 3 s in place of 60. At the peak of what a switch carries it has begun to
lose. Frames are injected: a sender on a packet socket fills a core, and two have to do for it, the switch and the
writer.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.requirements import ROOT, LabError

from .lab import VethBench, on
from .p4runtime import BATCH, INSERTS, Writer, batches
from .program import write_frames
from .switching import FLOWS, FRAME_BYTES, INJECTOR, SENDER_CORE, find_peak, offer, running, targets

NAMES = ("loss_beside_writes", "throughput_beside_writes")
LOADS = (1.1, 1.05, 1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)  # of the peak with the sender
OFFERED = 0.99  # of what shall be offered, at least: else the machine had no time to
TRIALS = 5
SECONDS = 3.0
PACE = 1.02 * INSERTS  # writes per second: at least INSERTS shall come of it
LOSS = 0.001
STOP_SECONDS = 30  # until what writes has ended: a request that is under way is answered first
LATE_SECONDS = 0.02  # so much of a delay is caught up with; more is missing in the writes per second


class NotOfferedError(LabError):
    """The machine cannot offer so many packets/s."""


def lost(where: VethBench, frames: Path, rate: float) -> float:
    """The part of so many packets/s that does not arrive. Raises NotOfferedError."""
    offered, carried = offer(where, frames, rate, SECONDS, INJECTOR)
    if offered < OFFERED * rate:
        raise NotOfferedError(f"only {offered:,.0f} of {rate:,.0f} packets/s could be offered")
    return 1 - carried / offered


def lost_beside(where: VethBench, frames: Path, rate: float) -> tuple[float, float]:
    """(lost, writes/s): the same while flows are written, from the sender's core: a controller has its own machine."""
    command = (*on(SENDER_CORE), sys.executable, "-m", "accesspoint.checks.bench.switch.beside_writes")
    writer = where.popen(*command, stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        try:
            part = lost(where, frames, rate)
        finally:  # also after a rate that could not be offered: it takes back what it has written
            writer.send_signal(signal.SIGINT)
            said, _ = writer.communicate(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise LabError(
            f"the writer has not ended within {STOP_SECONDS} s: the switch does not "
            "answer, or other work leaves it no time; run the benchmark again, with nothing else on the machine"
        ) from None
    finally:
        stop_process(writer)
    if writer.returncode:
        raise LabError("the writer has failed: its output is above")
    return part, float(said)


@dataclass
class Trials:
    """Parts of the packets that were lost at one load, alone and beside writes, and the writes per second."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)

    def full(self) -> bool:
        """Return whether the switch loses LOSS at most without writes."""
        return statistics.median(self.alone) <= LOSS


def measure(step: Step, _beside: Path | None) -> Raw:
    """Down from the peak until nothing is lost alone, and from there until nothing is lost beside writes. At each rate
    the two take turns, so that a slow minute of the machine hits both. A rate that the machine cannot offer is no rate
    to be judged by: the next lower one is."""
    switch = targets()[1]
    trials: dict[float, Trials] = {}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch, VethBench() as where:
        frames = Path(scratch) / "frames.pcap"
        write_frames(frames, FLOWS, FRAME_BYTES[0])
        step("packets during writes: the peak")
        with running(where, switch, FLOWS, core=None):
            _, peak = find_peak(where, frames, offer(where, frames, 0, 1.0)[0])
            for load in LOADS:
                step(f"packets during writes: {load:g} of the peak")
                one = Trials()
                try:
                    for _ in range(TRIALS):
                        one.alone.append(lost(where, frames, load * peak))
                        part, number = lost_beside(where, frames, load * peak)
                        one.beside.append(part)
                        one.writes.append(number)
                except NotOfferedError as error:
                    missing[f"{load:g}"] = str(error)
                    step(f"packets during writes: {load:g} of the peak: {error}")
                    continue
                trials[load] = one
                if any(other.full() for other in trials.values()) and statistics.median(one.beside) <= LOSS:
                    break
    return {
        "peak_pps": peak,
        "not_offered": missing,
        "trials": {f"{load:g}": asdict(one) for load, one in trials.items()},
    }


def rows(raw: Raw) -> list[Row]:
    """Make rows of the trials at each load, the highest first, and of the reasons why there are none at others."""
    trials = {float(load): Trials(**one) for load, one in raw["trials"].items()}
    missing: Mapping[str, str] = raw["not_offered"]
    full = next((load for load, one in trials.items() if one.full()), None)
    if full is None:
        why = f"packets are lost at {min(trials):g} of the peak already" if trials else min(missing.values())
        text = f"not measured: {why}: the machine is too busy"
        return [
            Row("loss_beside_writes", text, None, LOSS, at_least=False),
            Row("throughput_beside_writes", text, None),
        ]
    most = next((load for load, one in trials.items() if load <= full and statistics.median(one.beside) <= LOSS), 0.0)
    at_full = trials[full]
    without = f"; {', '.join(missing)} could not be offered" if missing else ""
    text = (
        f"packets lost at full rate, {full:g} of the peak, during {statistics.median(at_full.writes):,.0f} writes/s "
        f"(worst of {TRIALS} trials {max(at_full.beside):.4f}, alone {max(at_full.alone):.4f}{without})"
    )
    return [
        Row("loss_beside_writes", text, statistics.median(at_full.beside), LOSS, False, tuple(at_full.beside)),
        Row("throughput_beside_writes", "of the full rate, carried without loss during writes", most / full),
    ]


def main() -> None:
    """Inserts and removes flows that send nothing, PACE a second; SIGINT ends it, and it says how many it were."""
    from accesspoint.checks.harness.p4runtime import Program

    writer = Writer(Program(ROOT / "p4src/compiled/ap.json", ROOT / "p4src/compiled/ap.p4info.txtpb"), push=False)
    flows = range(1 << 20, (1 << 20) + 20_000)
    inserts = [writer.request(batch) for batch in batches(flows)]
    deletes = [writer.request(batch, b"\x08\x03") for batch in batches(flows)]
    ended = False

    def end(*_: object) -> None:
        # No exception: one that comes within a gRPC call may be lost there.
        nonlocal ended
        ended = True

    signal.signal(signal.SIGINT, end)
    written, rate, start = 0, 0.0, time.monotonic()
    due = start
    print("begun", flush=True)
    while not ended:
        # All of them: the next writer finds the table as this one did.
        for request in (*inserts, *deletes):
            writer.write(request)
            now = time.monotonic()
            if not ended:
                written += BATCH
                rate = written / (now - start)
            due = max(due + BATCH / PACE, now - LATE_SECONDS)
            time.sleep(max(0.0, due - now))
    print(rate)
    writer.client.close()


if __name__ == "__main__":
    main()
