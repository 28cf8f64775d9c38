# SPDX-License-Identifier: Apache-2.0
"""Results of a run in the foreground: files that hold what was measured, and only then."""

import csv
import gzip
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from accesspoint.experiments.catalogue.ncr import headline
from accesspoint.experiments.execution import foreground, terminal
from accesspoint.experiments.experiment import Setting
from accesspoint.experiments.render import panels, site
from accesspoint.experiments.runs import flent, plan, registry, store
from accesspoint.experiments.runs.store import Store
from accesspoint.experiments.tests import synthetic
from accesspoint.experiments.verdict import pages, summary
from accesspoint.topologies.links.profiles import PROFILES, link_profile
from accesspoint.topologies.targets import TARGETS


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("headline")
    foreground.write(headline.EXPERIMENT, Setting(), synthetic.runs(), directory)
    return directory


def test_summary(written: Path) -> None:
    summary = json.loads((written / "summary.json").read_text())
    assert summary["experiment"] == "headline"
    assert summary["started"] == "2023-11-14T22:13:20+00:00"
    assert summary["profile"]["down"] == 14_000_000
    assert list(summary["arms"]) == ["fifo", "ack-priority", "ncr"]
    for figures in summary["arms"].values():
        assert set(figures["downlink_mbps"]) == {"before", "during", "after"}
        assert set(figures["uplink_mbps"]) == {"during"}
        assert {"p50", "p99", "max"} <= set(figures["ping_ms"])
    assert all(verdict["met"] for verdict in summary["verdicts"]) and len(summary["verdicts"]) == 4
    assert summary["versions"]["iperf3"].startswith("iperf 3")
    assert not (written / "summary.json.part").exists()


def test_samples(written: Path) -> None:
    with (written / "samples.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["arm"] for row in rows} == {"fifo", "ack-priority", "ncr"}
    during = [float(row["value"]) for row in rows if row["arm"] == "fifo" and row["quantity"] == "uplink_mbps"]
    assert during == [0.92] * 32


def test_pictures_in_both_formats_for_both_pages(written: Path) -> None:
    for name in ("overview", "ping-cdf"):
        for suffix in ("", "-dark"):
            assert (written / f"{name}{suffix}.png").read_bytes().startswith(b"\x89PNG")
            assert "<svg" in (written / f"{name}{suffix}.svg").read_text()[:1000]


def test_the_report_holds_everything_and_its_links_lead_somewhere(written: Path) -> None:
    page = (written / "report.html").read_text()
    for source in re.findall(r'(?:src|srcset)="([^"]*)"', page):
        assert source.startswith("data:image/svg+xml;base64,")
    links = re.findall(r'href="([^"]*)"', page)
    assert len(links) >= 9 and all((written / link).is_file() for link in links)
    assert page.count(">met</b>") == 4 and "not met" not in page
    assert "CAKE with ack-filter" in page


def test_flent_files(written: Path) -> None:
    """The form that flent/resultset.py of Flent 2.x reads."""
    with gzip.open(written / "ncr.flent.gz", "rt") as file:
        content = json.load(file)
    assert content["version"] == 4
    assert content["metadata"]["NAME"] == "tcp_bidirectional"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", content["metadata"]["T0"])
    assert set(content["results"]) == set(content["raw_values"]) == set(flent.SERIES)
    for series in content["results"].values():
        assert len(series) == len(content["x_values"])
    at = content["x_values"].index(12.0)
    assert content["results"]["TCP download"][at] == pytest.approx(12.9)
    assert content["results"]["TCP upload"][0] is None
    assert content["raw_values"]["TCP upload"][0] == {"t": 1_700_000_008.125, "val": 0.87}


def shown(setting: Setting, runs: list[foreground.Made]) -> str:
    experiment = headline.under(setting)
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    terminal.show(console, experiment, synthetic.summarised(runs, setting), synthetic.cells(experiment, runs))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_fits_a_terminal_and_says_what_was_met() -> None:
    text = shown(Setting(), synthetic.runs())
    assert "…" not in text
    assert re.search(r"fifo +13\.00 +2\.00 +13\.00 +15% +0\.92 +582 +583", text)
    assert re.search(r"CAKE with ack-filter +13\.31 +13\.02 +98% +0\.85 +12\.0 +20\.0", text)
    assert text.count("met    ") == 4


def test_peers_are_shown_only_beside_the_links_that_they_were_measured_on() -> None:
    runs = synthetic.runs()
    assert "CAKE" not in shown(Setting(link_profile("testbed", rtt="20ms")), runs)
    assert "CAKE" not in shown(Setting(cc="bbr"), runs)
    assert "CAKE" not in shown(Setting(PROFILES["lte"]), runs)


def test_problems_of_the_lab_are_shown() -> None:
    *others, ncr = headline.EXPERIMENT.arms
    busy = synthetic.made(ncr, synthetic.samples(), problems=["the CPU was 97% busy"])
    assert "caution  ncr: the CPU was 97% busy" in shown(Setting(), [*synthetic.runs()[: len(others)], busy])


def test_a_page_has_a_table_for_each_run(written: Path) -> None:
    other = synthetic.summarised(synthetic.runs(), Setting(PROFILES["lte"]))
    text = pages.page("Here", [json.loads((written / "summary.json").read_text()), other])
    assert text.startswith("# Here\n") and text.count("| arm |") == 2
    assert "## lte: 30/15 Mb/s, 4 ms, TCP cubic, 24 s an arm" in text
    assert "| fifo | 13.00 | 2.00 | 13.00 | 15% | 0.92 | 581.5 | 583.0 | 583.0 |" in text
    assert text.count("- met: ") == 6 and text.count("- not met: ") == 1
    assert f"apswitch {TARGETS['apswitch'].version()}" in text


def test_the_controllers_figures_are_drawn_where_it_fed_something_back(tmp_path: Path) -> None:
    *_, ncr = synthetic.runs()
    ncr = replace(ncr, directory=tmp_path / "logs")
    ncr.logs.mkdir()
    rows = [
        f"ap1,{ncr.facts['started'] + second},{port},{5 * port},5,{port - 1},0,0,0"
        for second in range(-2, 30)
        for port in (1, 2)
    ]
    names = "feedback_device,feedback_uplink,feedback_downlink,feedback_largest_flow"
    (ncr.logs / "controller.csv").write_text("\n".join([f"access_point,time,port,delay_ms,target_ms,{names}", *rows]))
    uplink = panels.uplink(ncr)
    assert [row["time"] for row in uplink] == list(range(synthetic.SECONDS)) and {row["port"] for row in uplink} == {2}
    foreground.write(headline.EXPERIMENT, Setting(), [ncr], tmp_path)
    assert "<svg" in (tmp_path / "controller.svg").read_text()[:1000]
    assert "The uplink&#39;s queue" in (tmp_path / "report.html").read_text()


def test_an_earlier_runs_results_are_cleared_and_nothing_else(tmp_path: Path) -> None:
    foreground.write(headline.EXPERIMENT, Setting(), synthetic.runs()[:1], tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    foreground.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_it_runs_some_times_as_any_other(tmp_path: Path) -> None:
    """On the links of its profile, with medians and their intervals."""
    planned = plan.make(registry.find("headline"), quick=True, repeats=3)
    kept = Store(tmp_path, "headline", quick=True)
    kept.begin(planned)
    kept.write_machine()
    for order in planned.orders():
        part, of_arm = kept.part(order), planned.arms.index(order.arm)
        run = synthetic.runs()[of_arm]
        store.write_samples(run.samples(), part / "samples.parquet")
        problems = ["timers were late"] if (order.arm, order.repeat) == ("ncr", 2) else []
        check = run.facts["self_check"] | {"problems": problems}
        (part / "run.json").write_text(json.dumps(run.facts | {"self_check": check}))
        kept.keep(order, part)
    done = summary.write(planned, kept)
    assert (done["runs"], done["word"], len(done["verdicts"])) == (8, "met", 4)
    site.build([kept], tmp_path)
    page = (kept.directory / "index.html").read_text()
    assert "before: CAKE with ack-filter" in page or "before (CAKE with ack-filter)" in page
    for name in ("overview", "ping-cdf"):
        assert f'src="{name}.svg"' in page and (kept.directory / f"{name}-dark.svg").exists()
    assert "controller.svg" not in page, "nothing was fed back"
