# SPDX-License-Identifier: Apache-2.0
"""What a run leaves behind: files that say what was measured, and only then."""

import csv
import gzip
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from experiments import flent, pages, results, tables
from experiments.headline import HEADLINE
from experiments.runner import Setting
from experiments.tests import synthetic
from topologies.profiles import PROFILES, link_profile
from topologies.targets import TARGETS

SETTING = Setting(PROFILES["testbed"], synthetic.SECONDS)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("headline")
    results.write_all(HEADLINE, SETTING, synthetic.runs(), directory)
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


def shown(setting: Setting) -> str:
    summary, decided = results.summarise(HEADLINE, setting, synthetic.runs())
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    tables.show(console, HEADLINE, summary, decided, tables.peers(setting.profile, setting.cc))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_fits_a_terminal_and_says_what_was_met() -> None:
    text = shown(SETTING)
    assert "…" not in text
    assert re.search(r"fifo +13\.00 +2\.00 +13\.00 +15% +0\.92 +582 +583", text)
    assert re.search(r"CAKE with ack-filter +13\.31 +13\.02 +98% +0\.85 +12\.0 +20\.0", text)
    assert text.count("met    ") == 4


def test_peers_are_shown_only_beside_the_links_that_they_were_measured_on() -> None:
    assert "CAKE" not in shown(Setting(link_profile("testbed", rtt="20ms"), synthetic.SECONDS))
    assert "CAKE" not in shown(Setting(PROFILES["testbed"], synthetic.SECONDS, cc="bbr"))
    assert "CAKE" not in shown(Setting(PROFILES["lte"], synthetic.SECONDS))


def test_problems_of_the_lab_are_shown() -> None:
    runs = synthetic.runs()
    assert runs[2].summary
    runs[2].summary |= {"self_check": synthetic.SELF_CHECK | {"problems": ["the CPU was 97% busy"]}}
    summary, decided = results.summarise(HEADLINE, SETTING, runs)
    console = Console(file=io.StringIO(), width=80)
    tables.show(console, HEADLINE, summary, decided, None)
    assert isinstance(console.file, io.StringIO)
    assert "caution  ncr: the CPU was 97% busy" in console.file.getvalue()


def test_a_page_has_a_table_for_each_run(written: Path) -> None:
    other = results.summarise(HEADLINE, Setting(PROFILES["lte"], synthetic.SECONDS), synthetic.runs())[0]
    text = pages.page("Here", [json.loads((written / "summary.json").read_text()), other])
    assert text.startswith("# Here\n") and text.count("| arm |") == 2
    assert "## lte: 30/15 Mb/s, 4 ms, TCP cubic, 24 s an arm" in text
    assert "| fifo | 13.00 | 2.00 | 13.00 | 15% | 0.92 | 581.5 | 583.0 | 583.0 |" in text
    assert text.count("- met: ") == 6 and text.count("- not met: ") == 1
    assert f"apswitch {TARGETS['apswitch'].version()}" in text


def test_an_earlier_runs_results_are_cleared_and_nothing_else(tmp_path: Path) -> None:
    results.write_all(HEADLINE, SETTING, synthetic.runs()[:1], tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    results.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
