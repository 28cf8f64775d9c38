# SPDX-License-Identifier: Apache-2.0
"""Every sample behind a page of docs/results, in one file with a checksum: `raw/NAME.parquet` beside the page where
that is small enough for the checkout, else `raw.parquet` beside the runs.

Columns: run, time_s, quantity, source, value, span_s. `runs` in the file's metadata has what else a measure needs: run
-> arm, point, repeat, seconds, scale.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from accesspoint.experiments.measure.run_data import Raw, Value
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.runs.store import Run

FOLDER = "raw"
MAX_BYTES = 2_500_000  # in the checkout
RUNS = b"runs"
COLUMNS = ("time_s", "quantity", "value", "span_s", "source")  # as `Sample` takes them


def keep(runs: Sequence[Run], name: str, results: Path, beside: Path) -> dict[str, Any]:
    """Writes the samples of fit runs into docs/results, or beside the runs where they are too large for it. -> file (as
    seen from docs/results; None: it is not there), bytes, sha256."""
    import pyarrow.parquet as pq

    published = results / FOLDER / f"{name}.parquet"
    published.parent.mkdir(exist_ok=True)
    pq.write_table(table(runs), published, compression="zstd", compression_level=19)
    content = published.read_bytes()
    small = len(content) < MAX_BYTES
    if not small:
        (beside / "raw.parquet").write_bytes(content)
        published.unlink()
    return {
        "file": f"{FOLDER}/{name}.parquet" if small else None,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def table(runs: Sequence[Run], columns: bool = False) -> Any:
    """Return every sample of the runs, an Arrow table; columns: arm, point and repeat as columns, too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for run in runs:
        own = pq.read_table(run.directory / "samples.parquet", use_threads=False)
        words: dict[str, Value] = {"run": run.order.id}
        if columns:
            words |= {"arm": run.order.arm, "repeat": run.order.repeat, **run.order.point}
        for name, value in words.items():
            of_run = pa.array([value] * own.num_rows, pa.scalar(value).type)  # also where it measured nothing
            own = own.append_column(name, of_run.dictionary_encode())
        tables.append(own)
    facts = {run.order.id: _facts(run) for run in runs}
    return pa.concat_tables(tables).unify_dictionaries().replace_schema_metadata({RUNS: json.dumps(facts)})


def _facts(run: Run) -> dict[str, Any]:
    order = run.order
    return {
        "arm": order.arm, "point": dict(order.point), "repeat": order.repeat,
        "seconds": run.facts["seconds"], "scale": run.facts["scale"],
    }  # fmt: skip


def read(path: Path) -> Iterator[tuple[Mapping[str, Any], Raw]]:
    """Every run of a file: what it was, and what it measured."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["run", *COLUMNS], use_threads=False).unify_dictionaries().combine_chunks()
    runs, *columns = (_values(table.column(name)) for name in ("run", *COLUMNS))
    ends = dict(zip(runs, itertools.count(1), strict=False))  # `table` wrote run after run
    firsts = dict(zip(ends, (0, *ends.values()), strict=False))
    for run, facts in json.loads(table.schema.metadata[RUNS]).items():
        rows = slice(firsts.get(run, 0), ends.get(run, 0))  # a run that measured nothing has no rows
        samples = [Sample(*row) for row in zip(*(column[rows] for column in columns), strict=True)]
        yield facts, Raw(samples, facts["seconds"], facts["scale"], facts["point"], facts["arm"])


def _values(column: Any) -> list[Any]:
    """Return the values of an Arrow column of one chunk; its `to_pylist` takes many times as long."""
    if not column.num_chunks:
        return []
    chunk = column.chunk(0)
    if not hasattr(chunk, "dictionary"):
        return list(chunk.to_numpy().tolist())
    words = chunk.dictionary.to_pylist()
    return [words[index] for index in chunk.indices.to_numpy().tolist()]
