# SPDX-License-Identifier: Apache-2.0
"""P4Runtime at work on ap.p4: insertions, changes, counters, a million flows.

Requests are built before the clock starts and sent as bytes, so that the server is measured and not Python.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from accesspoint.checks.bench.report import Measured, Row, Step
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.requirements import ROOT

from .lab import VethBench, resident_bytes
from .switching import ADDRESS, targets

INSERTS, BATCH, MILLION = 200_000, 2000, 1_000_000  # INSERTS also is the goal per second
FIRST = 0x0A000000  # the flows' source addresses, from 10.0.0.0 on: four bytes each
TABLE = "flows_ipv4"
MODIFIES, COUNTERS, TIMES = 200, 1000, 100
PAIRS = 3  # runs of each of two builds
ELECTION = 100  # above that of bench.program


def measure(step: Step, beside: Path | None = None) -> Measured:
    """Measure all rows, on a switch that may use every core. beside: another build of apswitch, in turn with it."""
    builds = [target for target in targets(beside) if target.name in ("apswitch", "beside")]
    found: dict[str, list[dict[str, float]]] = {target.name: [] for target in builds}
    for number in range(PAIRS if beside else 1):
        for target in builds:
            step(f"P4Runtime: speeds, and a million flows: {target.name}, {number + 1}")
            with VethBench() as where:
                process = where.start(*target.command, core=None)
                try:
                    found[target.name].append(
                        json.loads(
                            where.run(
                                sys.executable, "-m", "accesspoint.checks.bench.switch.p4runtime", str(process.pid)
                            )
                        )
                    )
                finally:
                    stop_process(process)
    raw, *others = ({key: statistics.median(run[key] for run in runs) for key in runs[0]} for runs in found.values())
    rows = [
        Row("inserts_per_s", f"entries inserted per second, in batches of {BATCH}", raw["inserts_per_s"], INSERTS),
        Row("modify_200_ms", f"{MODIFIES} entries changed in one request, ms", raw["modify_ms"], 1, at_least=False),
        Row("read_1000_ms", f"{COUNTERS} direct counters read, ms", raw["read_ms"], 1, at_least=False),
        Row("million_mb", "resident memory with a million exact entries, MB", raw["million_mb"], 400, at_least=False),
    ]  # fmt: skip
    rows += [
        Row(f"{row.name}_of_beside", f"{row.name}, times that of the other build", raw[key] / other[key])
        for other in others
        for row, key in zip(rows, raw, strict=True)
    ]
    return Measured(rows, dict(found))


class Writer:
    """A primary on the switch with ap.p4, its flow table long enough."""

    def __init__(self, program: Any, push: bool) -> None:
        from finsy.proto import U128, p4r

        from accesspoint.checks.harness.p4runtime import Client, exact, insert

        self.client = Client(ADDRESS, program).become_primary(ELECTION)
        if push:
            self.client.push(program=program)
        rpc = self.client.channel.unary_unary
        self.write = rpc("/p4.v1.P4Runtime/Write", request_serializer=None, response_deserializer=None)
        self.read = self.client.channel.unary_stream("/p4.v1.P4Runtime/Read", None, None)
        fields = [exact(1, FIRST), exact(2, 0xC0000201), exact(3, 6), exact(4, 5001), exact(5, 5001)]
        fields += [exact(6, 1), exact(7, 2), exact(8, 0), exact(9, 0)]
        entry = program.entry(TABLE, fields, ("set_flow_ipv4", 1, 0, 0, 0, 0))
        self._header = p4r.WriteRequest(device_id=1, election_id=U128.encode(ELECTION)).SerializeToString()
        part = p4r.WriteRequest(updates=[insert(entry)]).SerializeToString()
        self._part = part
        key = program.entry(TABLE, fields)  # a counter is asked for by its entry's key alone
        self._entity = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key))

    def request(self, numbers: range, operation: bytes = b"\x08\x01") -> bytes:
        """A WriteRequest for these flows. operation: the field `type` of an update: INSERT, MODIFY or DELETE."""
        return self._header + repeated(self._part.replace(b"\x08\x01", operation, 1), numbers)

    def counters(self, numbers: range) -> bytes:
        """A ReadRequest for these flows' counters."""
        from finsy.proto import p4r

        part = p4r.ReadRequest(entities=[self._entity]).SerializeToString()
        return p4r.ReadRequest(device_id=1).SerializeToString() + repeated(part, numbers)


def repeated(part: bytes, numbers: range) -> bytes:
    """A part of a message that names flow 0, for each of these flows."""
    before, address, after = part.partition(FIRST.to_bytes(4, "big"))
    assert address and part.count(address) == 1
    return b"".join(before + (FIRST + n).to_bytes(4, "big") + after for n in numbers)


def larger(directory: Path) -> Any:
    """ap.p4 with room for a million flows."""
    from accesspoint.checks.harness.p4runtime import Program

    document = json.loads((ROOT / "p4src/compiled/ap.json").read_text())
    for pipeline in document["pipelines"]:
        for table in pipeline["tables"]:
            if table["name"].endswith(f".{TABLE}"):
                table["max_size"] = MILLION
    (directory / "ap.json").write_text(json.dumps(document))
    program = Program(directory / "ap.json", ROOT / "p4src/compiled/ap.p4info.txtpb")
    next(table for table in program.p4info.tables if table.preamble.alias == TABLE).size = MILLION
    return program


def batches(numbers: range) -> Iterator[range]:
    for start in range(numbers.start, numbers.stop, BATCH):
        yield range(start, min(start + BATCH, numbers.stop))


def median_ms(call: Callable[[], object]) -> float:
    times = []
    for _ in range(TIMES):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def speeds(switch: int) -> dict[str, float]:
    """switch: its process id."""
    with tempfile.TemporaryDirectory() as directory:
        writer = Writer(larger(Path(directory)), push=True)
    requests = [writer.request(batch) for batch in batches(range(INSERTS))]
    started = time.perf_counter()
    for request in requests:
        writer.write(request)
    inserts = INSERTS / (time.perf_counter() - started)
    modify = writer.request(range(MODIFIES), b"\x08\x02")
    modify_ms = median_ms(lambda: writer.write(modify))
    counters = writer.counters(range(COUNTERS))
    read_ms = median_ms(lambda: list(writer.read(counters)))
    for batch in batches(range(INSERTS, MILLION)):
        writer.write(writer.request(batch))
    million = resident_bytes(switch) / 1e6
    return {"inserts_per_s": inserts, "modify_ms": modify_ms, "read_ms": read_ms, "million_mb": million}


if __name__ == "__main__":
    print(json.dumps(speeds(int(sys.argv[1]))))
