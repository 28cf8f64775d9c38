# SPDX-License-Identifier: Apache-2.0
"""Results on disk, what is made of them, and pages."""

import io
import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from experiments import figures, pages, registry, site, store, summary
from experiments.experiment import Timeline
from experiments.store import Store
from experiments.tests import finished
from experiments.tests.test_declared import documented
from experiments.theme import LIGHT
from topologies.requirements import LabError


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("out")
    _, kept = finished.full(out)
    site.build([kept], out)
    return out


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    planned, _ = finished.made(tmp_path)
    samples = finished.samples(planned.orders()[0])
    store.write_samples(samples, tmp_path / "samples.parquet")
    assert store.read_samples(tmp_path / "samples.parquet") == samples


def test_what_is_missing_is_what_is_left_to_run(tmp_path: Path) -> None:
    planned, kept = finished.made(tmp_path, ("fifo", "ours"))
    orders = planned.orders()
    assert kept.missing(planned) == orders
    finished.keep(kept, orders[0])
    finished.keep(kept, orders[1], ("timers were late",))
    kept.keep_failure(orders[2], "the switch ended")
    again = [store.second(order) for order in orders[1:3]]
    assert kept.missing(planned) == [*again, *orders[3:]]
    finished.keep(kept, again[0], ("timers were late again",))
    assert kept.missing(planned) == [again[1], *orders[3:]]
    finished.keep(kept, again[1])
    assert kept.missing(planned) == orders[3:]
    assert [run.fit for run in kept.runs(planned)] == [True, False, False, False, True]


def test_half_a_run_is_none(tmp_path: Path) -> None:
    planned, kept = finished.made(tmp_path, ("ours",))
    first, second, third = planned.orders()
    part = kept.part(first)
    (part / "run.json").write_text('{"self_check": {"problems": []}}')  # killed before the folder was moved
    finished.keep(kept, second)
    (kept.directory / "runs" / second.id / "run.json").write_text('{"self_')  # a disk that lost power
    assert kept.missing(planned) == [first, second, third]
    kept.discard_parts()
    assert not part.exists()


def test_a_run_travels_packed(tmp_path: Path) -> None:
    planned, kept = finished.made(tmp_path / "here", ("ours",))
    order = planned.orders()[0]
    finished.keep(kept, order)
    other = Store(tmp_path / "there", planned.experiment, planned.quick)
    other.begin(planned)
    run = other.keep(order, other.unpack(order, store.pack(kept.directory / "runs" / order.id)))
    assert run.fit and run.samples() == finished.samples(order)


@pytest.mark.parametrize("name, kind", [("../out", b"0"), ("/tmp/out", b"0"), ("link", b"2"), ("device", b"3")])
def test_what_is_no_file_of_a_run_is_not_unpacked(tmp_path: Path, name: str, kind: bytes) -> None:
    planned, kept = finished.made(tmp_path, ("ours",))
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(member)
    with pytest.raises(LabError, match="which is no file of a run"):
        kept.unpack(planned.orders()[0], packed.getvalue())
    assert not (tmp_path / "out").exists() and not Path("/tmp/out").exists()


def test_a_damaged_plan_is_told(tmp_path: Path) -> None:
    _, kept = finished.made(tmp_path)
    (kept.directory / "plan.json").write_text("{}")
    with pytest.raises(LabError, match="is damaged: remove"):
        kept.plan()


def test_results_of_an_arm_that_is_gone_are_told(tmp_path: Path) -> None:
    planned, kept = finished.made(tmp_path)
    with pytest.raises(LabError, match="has results of arm 'gone', which ncr-testbed has no more"):
        summary.write(replace(planned, arms=("ours", "gone")), kept)


def test_damaged_raw_data_is_told(tmp_path: Path) -> None:
    planned, kept = finished.made(tmp_path, ("ours",))
    order = planned.orders()[0]
    finished.keep(kept, order)
    (kept.directory / "runs" / order.id / "samples.parquet").write_bytes(b"PAR1, or not")
    with pytest.raises(LabError, match=r"is damaged .* remove its folder, then `resume`"):
        summary.write(planned, kept)


def test_the_interval_is_that_of_the_median() -> None:
    assert summary.interval([5.0]) == (5.0, 5.0)
    assert summary.interval([1.0, 2.0, 9.0]) == (1.0, 9.0)
    values = list(np.random.default_rng(7).normal(10, 1, 200))
    low, high = summary.interval(values)
    # The median of 200 normal values has a standard error of 1.25 / sqrt(200) = 0.09.
    assert 9.6 < low < np.median(values) < high < 10.4 and 0.2 < high - low < 0.6


def test_medians_and_verdicts(out: Path) -> None:
    found = Store(out, "ncr-testbed", True).summary()
    table = summary.Table(found["cells"])
    assert table("download_during", "ours") == pytest.approx(13.32)  # repeats 1, 2, 3
    assert table("download_during", "fifo") == pytest.approx(1.92)  # repeats 1 and 3: 2 is unfit
    cell = table.cell("download_during", "ours", {})
    assert cell and cell["n"] == 3 and cell["low"] == pytest.approx(13.31) and cell["high"] == pytest.approx(13.33)
    assert [unfit["run"] for unfit in found["unfit"]] == ["fifo_2", "fifo_2+again"]
    assert (found["runs"], found["wanted"]) == (23, 24)
    assert [verdict["word"] for verdict in found["verdicts"]] == ["met", "met", "beaten", "beaten"]
    assert found["word"] == "beaten"


def test_a_missing_arm_leaves_goals_open(tmp_path: Path) -> None:
    planned, kept = finished.made(tmp_path, ("fifo-reno",))
    for order in planned.orders():
        finished.keep(kept, order)
    found = summary.write(planned, kept)
    assert [verdict["word"] for verdict in found["verdicts"]] == ["met", *["not measured"] * 3]
    assert found["word"] == "not measured"


def test_a_report_built_twice_is_the_same(out: Path) -> None:
    before = {path: path.read_bytes() for path in out.rglob("*") if path.suffix in (".html", ".svg")}
    assert len(before) == 2 + 2 * len(registry.find("ncr-testbed").figures)
    planned = Store(out, "ncr-testbed", True)
    made = planned.plan()
    assert made
    summary.write(made, planned)
    site.build([planned], out)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.suffix in (".html", ".svg")}


def test_links_of_the_pages_lead_somewhere(out: Path) -> None:
    for page in (out / "index.html", out / "ncr-testbed/quick/index.html"):
        links = re.findall(r'(?:href|src|srcset)="([^"]*)"', page.read_text())
        assert links and not [link for link in links if not (page.parent / unquote(link)).exists()]


def test_the_page_shows_the_paper_beside_ours(out: Path) -> None:
    page = (out / "ncr-testbed/quick/index.html").read_text()
    assert '<span class="word beaten">beaten</span>' in page
    assert "10.70 to 11.60" in page and "13.32" in page and "the CPU was 97% busy" in page
    svg = (out / "ncr-testbed/quick/during.svg").read_text()
    assert svg.count("<path") > 20


def test_curves_have_a_line_for_each_arm_and_the_papers_points() -> None:
    experiment = documented()
    values = {"fifo": {1: 1.0, 2: 0.8, 4: 0.6}, "ours": {1: 1.0, 2: 0.99, 4: 0.97}}
    cells = [
        {"arm": arm, "point": {"n": n}, "measure": "jain", "median": value, "low": value - 0.02, "high": value, "n": 3}
        for arm, at in values.items()
        for n, value in at.items()
    ]
    found = {"arms": ["fifo", "ours"], "points": [{"n": n} for n in (1, 2, 4)], "cells": cells}
    drawn = figures.Drawing(experiment, found, [], experiment.figures[0]).draw(LIGHT)
    (axes,) = drawn.axes
    lines = [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.lines]
    curves = [(xs.tolist(), ys.tolist()) for xs, ys in lines if xs.size]
    for at in values.values():
        assert ([1, 2, 4], list(at.values())) in curves
    assert ([4], [0.7]) in curves  # the paper's


def test_the_table_for_the_docs(out: Path) -> None:
    text = pages.experiment_page(Store(out, "ncr-testbed", True).summary())
    assert "The runs were in Linux 6.1, in virtual time." in text
    assert "| the paper (ncr-mark) |  | 10.70 to 11.60 |  | 11.00 to 11.70 |  |  |" in text
    assert re.search(r"\| \*\*ours\*\*: our access point \| 13\.\d\d \| 13.32 \| 0.87 \|", text)
    assert "In a word: **beaten**." in text and "Unfit and left out: fifo_2 (the CPU was 97% busy)" in text
    assert json.dumps(text)


def test_a_timeline_has_a_line_for_each_source_that_its_pattern_matches(out: Path) -> None:
    kept = Store(out, "ncr-testbed", True)
    made = kept.plan()
    assert made is not None
    done = json.loads((kept.directory / "summary.json").read_text())
    figure = Timeline("throughput", "Throughput.", ("*load",), arms=("ours",))
    drawing = figures.Drawing(registry.find("ncr-testbed"), done, kept.runs(made), figure)
    (panel,) = drawing.draw(LIGHT).axes
    # Download and upload of each of three runs.
    lines = [np.asarray(line.get_ydata(), float) for line in panel.lines]
    assert len(lines) == 6 and all(line.size for line in lines)
    assert max(line.max() for line in lines) < panel.get_ylim()[1]
