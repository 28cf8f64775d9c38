# SPDX-License-Identifier: Apache-2.0
"""Results for other programs: CSV, Parquet and Flent's format."""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from accesspoint.experiments.__main__ import arguments
from accesspoint.experiments.execution import commands
from accesspoint.experiments.tests import synthetic
from accesspoint.topologies.links.profiles import ProfileError


def exported(tmp_path: Path, *words: str) -> list[str]:
    synthetic.run(tmp_path / "out")
    shown = io.StringIO()
    options = arguments(["export", "headline", "--out", f"{tmp_path}/out", "--to", f"{tmp_path}/to", *words])
    assert commands.main(options, Console(file=shown)) == 0
    return sorted(Path(line).name for line in shown.getvalue().splitlines())


def test_every_format_is_written(tmp_path: Path) -> None:
    names = exported(tmp_path)
    runs = [f"headline_{arm}_1.flent.gz" for arm in ("ack-priority", "fifo", "ncr")]
    assert names == ["headline.csv", "headline.parquet", *runs]
    with (tmp_path / "to/headline.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["arm"], row["measure"]) == ("fifo", "download_during")]
    assert [(row["repeat"], row["unit"], float(row["value"])) for row in rows] == [("1", "Mb/s", 2.0)]
    table = pq.read_table(tmp_path / "to/headline.parquet")
    assert {"run", "arm", "repeat", "time_s", "quantity", "source", "value", "span_s"} <= set(table.column_names)
    assert set(table.column("arm").to_pylist()) == {"fifo", "ack-priority", "ncr"}
    with gzip.open(tmp_path / "to/headline_ncr_1.flent.gz", "rt") as file:
        content = json.load(file)
    assert (content["version"], content["metadata"]["NAME"]) == (4, "tcp_bidirectional")
    assert content["results"]["TCP download"][content["x_values"].index(12.0)] == pytest.approx(12.9)


def test_chosen_format_alone_is_written(tmp_path: Path) -> None:
    assert exported(tmp_path, "--formats", "csv") == ["headline.csv"]
    with pytest.raises(ProfileError, match="format 'xls' is unknown: choose of csv, parquet, flent"):
        exported(tmp_path, "--formats", "xls")
