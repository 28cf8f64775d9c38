# SPDX-License-Identifier: Apache-2.0
"""Results on disk, their summaries and pages."""

import argparse
import hashlib
import io
import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from rich.console import Console

from accesspoint.experiments.execution import commands
from accesspoint.experiments.experiment import Goal, Medians, Timeline
from accesspoint.experiments.render import figures, site
from accesspoint.experiments.runs import archive, plan, registry, store
from accesspoint.experiments.runs.store import Store
from accesspoint.experiments.tests import finished
from accesspoint.experiments.tests.test_declared import documented
from accesspoint.experiments.verdict import claims, pages, summary
from accesspoint.experiments.verdict.goals import Table
from accesspoint.topologies.requirements import ROOT, LabError


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


def test_runs_that_go_on_say_of_which_code_and_claims_they_are(tmp_path: Path) -> None:
    """Runs of other claims than those before them make a summary of none, and what comes of it is not judged."""
    planned, kept = finished.made(tmp_path, ("ours",))
    first, second, third = planned.orders()[:3]
    finished.keep(kept, first, commit="a", stand="1" * 64)
    assert summary.write(planned, kept)["claims"] == "1" * 64
    finished.keep(kept, second, commit="b-dirty", stand="1" * 64)
    found = summary.write(planned, kept)
    assert (found["claims"], found["versions"]["commit"]) == ("1" * 64, "a, b-dirty")
    finished.keep(kept, third, commit="a", stand="2" * 64)
    assert summary.write(planned, kept)["claims"] == ""
    assert "Claims: of more than one version" in pages.experiment_page(kept.summary(), tmp_path)
    kept.begin(planned)
    assert not (kept.directory / "machine.json").exists()


def test_medians_and_verdicts(out: Path) -> None:
    found = Store(out, "ncr-testbed", True).summary()
    table = Table(found["cells"])
    assert table("download_during", "ours") == pytest.approx(13.32)  # repeats 1, 2, 3
    assert table("download_during", "fifo") == pytest.approx(1.92)  # repeats 1 and 3: 2 is unfit
    cell = table.cell("download_during", "ours", {})
    assert cell and cell["values"] == pytest.approx({"1": 13.31, "2": 13.32, "3": 13.33})
    # Three values lie on both sides of their median in three of four cases.
    assert (cell["low"], cell["high"], cell["confidence"]) == pytest.approx((13.31, 13.33, 0.75))
    cell = table.cell("download_during", "ours", {})
    assert cell and cell["n"] == 3 and cell["low"] == pytest.approx(13.31) and cell["high"] == pytest.approx(13.33)
    assert [unfit["run"] for unfit in found["unfit"]] == ["fifo_2", "fifo_2+again"]
    assert (found["runs"], found["wanted"]) == (26, 27)
    # Three repeats, two of an arm, decide no claim.
    assert {verdict["word"] for verdict in found["verdicts"]} == {"not measured"}
    assert found["word"] == f"{len(found['verdicts'])} not measured"


def kept(least: float, arm: str = "ours") -> Goal:
    def value(medians: Medians) -> float:
        return float(medians("download_during", arm) / medians("download_alone", arm))

    return Goal("it keeps {value} (at least {limit})", value, at_least=least)


def test_goals_of_comparisons(out: Path) -> None:
    made = Store(out, "ncr-testbed", True)
    planned = made.plan()
    assert planned
    runs = made.runs(planned)

    def word(*goals: Goal) -> str:
        experiment = replace(registry.find("ncr-testbed"), goals=goals)
        return str(summary.summarise(experiment, planned, runs)["word"])

    assert word(kept(0.9)) == "pass" and word(kept(1.1)) == "1 fail"
    assert word(kept(0.9), kept(1.1)) == "1 pass, 1 fail"
    # A figure of an arm that was not run.
    assert word(kept(0.9), kept(0.9, "cake")) == "1 pass, 1 not run"


def test_a_report_built_twice_is_the_same(out: Path) -> None:
    before = {path: path.read_bytes() for path in out.rglob("*") if path.suffix in (".html", ".svg")}
    assert len(before) == 2 + len(registry.find("ncr-testbed").figures)
    planned = Store(out, "ncr-testbed", True)
    made = planned.plan()
    assert made
    summary.write(made, planned)
    site.build([planned], out)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.suffix in (".html", ".svg")}


def test_links_of_the_pages_lead_somewhere(out: Path) -> None:
    for page in (out / "index.html", out / "ncr-testbed/quick/index.html"):
        links = re.findall(r'(?:href|src)="([^"]*)"', page.read_text())
        assert links and not [link for link in links if not (page.parent / unquote(link)).exists()]


def test_the_page_shows_the_paper_beside_ours(out: Path) -> None:
    page = (out / "ncr-testbed/quick/index.html").read_text()
    assert re.search(r'<li class="not-measured"><b>not measured</b> \d+ claims of the paper take 5 repeats', page)
    assert "10.70 to 11.60" in page and "13.32" in page and "the CPU was 97% busy" in page
    svg = (out / "ncr-testbed/quick/during.svg").read_text()
    assert svg.count("<path") > 20


def test_picture_has_a_dark_colour_for_each_light_one(out: Path) -> None:
    svg = (out / "ncr-testbed/quick/during.svg").read_text()
    sheet, _, drawn = svg.partition("</style>")
    assert sheet.count("@media (prefers-color-scheme: dark)") == 1
    used = set(re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", drawn))
    inside_of_lines = {"fill: #1f77b4"}  # matplotlib's own, of error bars' caps: there is nothing to fill
    assert used - inside_of_lines == set(re.findall(r'\[style\*="([^"]+)"\]', sheet))


def test_curves_have_a_line_for_each_arm_and_the_papers_points() -> None:
    experiment = documented()
    values = {"fifo": {1: 1.0, 2: 0.8, 4: 0.6}, "ours": {1: 1.0, 2: 0.99, 4: 0.97}}
    cells = [
        {"arm": arm, "point": {"n": n}, "measure": "jain", "median": value, "low": value - 0.02, "high": value, "n": 3}
        for arm, at in values.items()
        for n, value in at.items()
    ]
    found = {"arms": ["fifo", "ours"], "points": [{"n": n} for n in (1, 2, 4)], "cells": cells}
    drawn = figures.Drawing(experiment, found, [], experiment.figures[0]).draw()
    (axes,) = drawn.axes
    lines = [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.lines]
    curves = [(xs.tolist(), ys.tolist()) for xs, ys in lines if xs.size]
    for at in values.values():
        assert ([1, 2, 4], list(at.values())) in curves
    assert ([4], [0.7]) in curves  # the paper's


def test_the_table_for_the_docs(out: Path, tmp_path: Path) -> None:
    summary = Store(out, "ncr-testbed", True).summary()
    text = pages.experiment_page(summary, tmp_path)
    assert "medians of 3 repeats" in text
    assert "one repeat, which says nothing of chance" in pages.experiment_page(summary | {"repeats": 1}, tmp_path)
    assert "kernel 6.1" in text and "commit a." in text and "The runs were in virtual time." in text
    seeds = [str(order.seed) for order in plan.make(registry.find("ncr-testbed"), True, ["ours"], repeats=3).orders()]
    assert f"the same seed for all arms of a repeat: {', '.join(seeds)}." in text
    assert "`out/ncr-testbed/quick/runs/ARM_REPEAT/`" in text and "[summary](summaries/ncr-testbed.json)" in text
    assert "| the paper (ncr-paper) |  | 10.70 to 11.60 |  | 11.00 to 11.70 |\n" in text
    assert re.search(
        r"\| \*\*ours\*\*: this access point \| 13\.\d\d<br>[^|]+ \| 13.32<br>13.31 to 13.33 \(75%\) \| 0.87<br>", text
    )
    assert f"NAME=ncr-testbed QUICK=1 REPEATS=3 ARMS={','.join(finished.RATES)} CLOCK=virtual` makes it again" in text
    assert f"Claims: checksum `{claims.sha256()[:16]}`" in text
    assert re.search(r"^- not measured: \d+ claims of the paper take 5 repeats, and this is 3$", text, re.M)
    assert "[the paper's claims](claims.md)" in text and "Unfit and left out: fifo_2 (the CPU was 97% busy)" in text
    assert json.dumps(text)


def test_a_timeline_has_a_line_for_each_source_that_its_pattern_matches(out: Path) -> None:
    kept = Store(out, "ncr-testbed", True)
    made = kept.plan()
    assert made is not None
    done = json.loads((kept.directory / "summary.json").read_text())
    figure = Timeline("throughput", "Throughput.", ("*load",), arms=("ours",))
    drawing = figures.Drawing(registry.find("ncr-testbed"), done, kept.runs(made), figure)
    (panel,) = drawing.draw().axes
    # Download and upload of each of three runs.
    lines = [np.asarray(line.get_ydata(), float) for line in panel.lines]
    assert len(lines) == 6 and all(line.size for line in lines)
    assert max(line.max() for line in lines) < panel.get_ylim()[1]


def test_names_stand_beside_each_other_and_what_was_not_measured_is_not_drawn() -> None:
    settings = registry.find("cell-settings")
    done = json.loads((ROOT / "docs/results/summaries/cell-settings.json").read_text())
    drawings = {figure.name: figures.Drawing(settings, done, [], figure) for figure in settings.figures}
    assert [name for name, drawing in drawings.items() if drawing.arms] == ["total-256-256"]
    (panel,) = drawings["total-256-256"].draw().axes
    assert [label.get_text() for label in panel.get_xticklabels()] == [*settings.sweep["manager"]]
    places = [place for line in panel.lines for place in np.asarray(line.get_xdata(), float)]
    assert len(set(places)) >= 8, "a place for each arm and name"


def test_a_page_that_its_summary_does_not_make_is_told(out: Path, tmp_path: Path) -> None:
    options = argparse.Namespace(names=["ncr-testbed"], quick=True, out=out, pages=tmp_path)
    commands._report(options, Console(quiet=True))
    # As after an interruption while other experiments still ran.
    (out / "ncr-testbed/quick/summary.json").unlink()
    commands._report(options, Console(quiet=True))
    page = tmp_path / "ncr-testbed.md"
    assert (tmp_path / "summaries/ncr-testbed.json").exists() and pages.stale(tmp_path) == []
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text())
    assert "plots/ncr-testbed/during.svg" in pictures and "plots/ncr-testbed/throughput.svg" in pictures
    assert all((tmp_path / picture).stat().st_size > 1000 for picture in pictures)
    page.write_text(page.read_text().replace("13.32", "13.99", 1))
    assert pages.stale(tmp_path) == [page]
    page.unlink()
    assert pages.stale(tmp_path) == [page]


def test_a_run_that_measured_nothing_is_kept_beside_the_others(tmp_path: Path) -> None:
    planned, kept = finished.full(tmp_path / "out")
    runs = [run for run in kept.runs(planned) if run.fit]
    store.write_samples([], runs[1].directory / "samples.parquet")
    archive.keep(runs, "ncr-testbed", tmp_path, kept.directory)
    samples = [len(raw.samples) for _, raw in archive.read(tmp_path / "raw/ncr-testbed.parquet")]
    assert len(samples) == len(runs) and [place for place, count in enumerate(samples) if not count] == [1]


def test_the_samples_behind_a_page_make_its_figures_again(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = argparse.Namespace(names=["ncr-testbed"], quick=True, out=out, pages=tmp_path)
    commands._report(options, Console(quiet=True))
    assert unlike(tmp_path, "ncr-testbed") == []
    kept = tmp_path / "raw/ncr-testbed.parquet"
    assert f"sha256 `{hashlib.sha256(kept.read_bytes()).hexdigest()}`" in (tmp_path / "ncr-testbed.md").read_text()
    # Samples that are too large for the checkout stay beside the runs.
    monkeypatch.setattr(archive, "MAX_BYTES", 1000)
    commands._report(options, Console(quiet=True))
    assert not kept.exists() and (out / "ncr-testbed/quick/raw.parquet").stat().st_size > 1000
    assert "too large for the checkout" in (tmp_path / "ncr-testbed.md").read_text()


def unlike(results: Path, name: str) -> list[str]:
    """Figures of a summary that the samples beside it do not give."""
    made = json.loads((results / f"summaries/{name}.json").read_text())
    if not made.get("raw", {}).get("file"):
        return []
    file = results / made["raw"]["file"]
    found = [] if hashlib.sha256(file.read_bytes()).hexdigest() == made["raw"]["sha256"] else ["its checksum"]
    figures = {
        (cell["arm"], str(cell["point"]), cell["measure"], repeat): value
        for cell in made["cells"]
        for repeat, value in cell["values"].items()
    }
    for run, raw in archive.read(file):
        for measure in registry.find(name).measures:
            place = (run["arm"], str(run["point"]), measure.name, str(run["repeat"]))
            value = measure.of(raw)
            if value is not None and figures.pop(place, None) != float(f"{value:.6g}"):
                found.append(str(place))
    return [*found, *map(str, figures)]


def with_samples() -> list[str]:
    """Experiments whose summary names a file of samples beside it."""
    kept = {path.stem: json.loads(path.read_text()) for path in (ROOT / "docs/results/summaries").glob("*.json")}
    return sorted(name for name, one in kept.items() if one.get("raw", {}).get("file"))


def test_every_file_of_samples_is_a_summarys() -> None:
    assert sorted(path.stem for path in (ROOT / "docs/results/raw").glob("*.parquet")) == with_samples() != []


def test_the_committed_pages_are_what_the_committed_summaries_make() -> None:
    assert pages.stale(ROOT / "docs/results") == [], "`report --pages docs/results` writes both"


@pytest.mark.parametrize("name", ["peers.md", "experiments.md"])
def test_pages_about_experiments_leave_figures_to_the_results(name: str) -> None:
    """A table of figures is a program's, or stands where its summary is."""
    text = re.sub(r"<!-- made by .*?<!-- end -->", "", (ROOT / "docs" / name).read_text(), flags=re.S)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    figure = re.compile(r"\|\s*[\d.]+(?: / [\d.]+)?(?: Mb/s| ms)?\s*(?=\|)")
    assert rows and not [row for row in rows if figure.search(row)]
