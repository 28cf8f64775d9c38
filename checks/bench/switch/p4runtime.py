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

from accesspoint.checks.bench.report import Row, Step, of_medians
from accesspoint.checks.bench.summary import Raw
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.requirements import ROOT

from .lab import VethBench, resident_bytes
from .switching import ADDRESS, targets

NAMES = tuple(
    f"{row}{of}"
    for of in ("", "_of_beside")
    for row in ("inserts_per_s", "modify_200_ms", "read_1000_ms", "million_mb")
)
INSERTS, BATCH, MILLION = 200_000, 2000, 1_000_000  # INSERTS also is the goal per second
FIRST = 0x0A000000  # the flows' source addresses, from 10.0.0.0 on: four bytes each
TABLE = "flows_ipv4"
MODIFIES, COUNTERS, TIMES = 200, 1000, 100
CALLS = {"modify_200_ms": "modify_ms", "read_1000_ms": "read_ms"}  # rows of single calls -> their times
PAIRS = 3  # runs of each of two builds
ELECTION = 100  # above that of bench.program


def measure(step: Step, beside: Path | None) -> Raw:
    """Measure switches that may use every core; return the runs of each build. beside: another build of apswitch, in
    turn with it. Raises LabError."""
    builds = [target for target in targets(beside) if target.name in ("apswitch", "beside")]
    raw: dict[str, list[dict[str, Any]]] = {target.name: [] for target in builds}
    for number in range(PAIRS if beside else 1):
        for target in builds:
            step(f"P4Runtime: speeds, and a million flows: {target.name}, {number + 1}")
            with VethBench() as where:
                process = where.start(*target.command, core=None)
                command = (sys.executable, "-m", "accesspoint.checks.bench.switch.p4runtime", str(process.pid))
                try:
                    raw[target.name].append(json.loads(where.run(*command)))
                finally:
                    stop_process(process)
    return raw


def rows(raw: Raw) -> list[Row]:
    """Make rows: medians over the runs of each build. A run's own times are medians of its calls."""
    median = statistics.median
    values = {
        name: {
            "inserts_per_s": [INSERTS / run["insert_s"] for run in runs],
            "modify_200_ms": [median(run["modify_ms"]) for run in runs],
            "read_1000_ms": [median(run["read_ms"]) for run in runs],
            "million_mb": [run["million_bytes"] / 1e6 for run in runs],
        }
        for name, runs in raw.items()
    }
    own = values["apswitch"]
    calls = {row: tuple(time for run in raw["apswitch"] for time in run[key]) for row, key in CALLS.items()}
    found = [
        Row(name, text, median(own[name]), goal, at_least, calls.get(name, tuple(own[name])))
        for name, text, goal, at_least in (
            ("inserts_per_s", f"entries inserted per second, in batches of {BATCH}", INSERTS, True),
            ("modify_200_ms", f"{MODIFIES} entries changed in one request, ms", 1, False),
            ("read_1000_ms", f"{COUNTERS} direct counters read, ms", 1, False),
            ("million_mb", "resident memory with a million exact entries, MB", 400, False),
        )
    ]
    if other := values.get("beside"):
        text = "times that of the other build"
        found += [of_medians(f"{name}_of_beside", f"{name}, {text}", own[name], other[name]) for name in own]
    return found


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


def milliseconds(call: Callable[[], object]) -> list[float]:
    """Call it repeatedly; return how long each call took, ms."""
    times = []
    for _ in range(TIMES):
        started = time.perf_counter()
        call()
        times.append((time.perf_counter() - started) * 1e3)
    return times


def speeds(switch: int) -> dict[str, Any]:
    """Measure a switch of this process id, once: seconds of all insertions, and ms of each change and each reading."""
    with tempfile.TemporaryDirectory() as directory:
        writer = Writer(larger(Path(directory)), push=True)
    requests = [writer.request(batch) for batch in batches(range(INSERTS))]
    started = time.perf_counter()
    for request in requests:
        writer.write(request)
    inserts = time.perf_counter() - started
    modify = writer.request(range(MODIFIES), b"\x08\x02")
    modify_ms = milliseconds(lambda: writer.write(modify))
    counters = writer.counters(range(COUNTERS))
    read_ms = milliseconds(lambda: list(writer.read(counters)))
    for batch in batches(range(INSERTS, MILLION)):
        writer.write(writer.request(batch))
    million = resident_bytes(switch)
    return {"insert_s": inserts, "modify_ms": modify_ms, "read_ms": read_ms, "million_bytes": million}


if __name__ == "__main__":
    print(json.dumps(speeds(int(sys.argv[1]))))
