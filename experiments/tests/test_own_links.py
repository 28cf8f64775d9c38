# SPDX-License-Identifier: Apache-2.0
"""Experiments on links of the user's own: limits that scale with them, one run of each arm, and radios."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from accesspoint.experiments.catalogue.ncr import headline
from accesspoint.experiments.experiment import Setting, Value
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.render import panels, site
from accesspoint.experiments.runs import registry
from accesspoint.experiments.runs.store import Store, second
from accesspoint.experiments.scenes.scene import AccessPoint, Walk
from accesspoint.experiments.tests import synthetic
from accesspoint.experiments.tests.synthetic import samples
from accesspoint.experiments.verdict import compare, pages, summary
from accesspoint.experiments.verdict.goals import Table
from accesspoint.topologies import lab_kinds
from accesspoint.topologies.links.profiles import PROFILES, ProfileError, link_profile
from accesspoint.topologies.requirements import LabError


def test_summary_of_single_runs_has_figures_and_verdicts(tmp_path: Path) -> None:
    found = synthetic.run(tmp_path).summary()
    assert (found["experiment"], found["runs"], found["wanted"], found["word"]) == ("headline", 3, 3, "4 inconclusive")
    assert found["started"] == "2023-11-14T22:13:20+00:00"
    assert [verdict["word"] for verdict in found["verdicts"]] == ["inconclusive"] * 4
    table = Table(found["cells"])
    assert (table("download_during", "fifo"), table("kept", "ncr")) == pytest.approx((2.0, 12.9 / 13), abs=1e-5)
    assert (table("ping_p50", "fifo"), table("ping_max", "fifo")) == (581.5, 583.0)


def test_summary_command_names_the_links(tmp_path: Path) -> None:
    kept = synthetic.run(tmp_path, profile="lte", rtt="20ms", cc="bbr", lab="mininet-wifi", wpa2=True)
    assert kept.summary()["command"] == (
        "make experiment NAME=headline PROFILE=lte RTT=20ms CC=bbr LAB=mininet-wifi WPA2=1 CLOCK=real"
    )


def test_under_another_experiment_refuses_links() -> None:
    with pytest.raises(ProfileError, match=r"--rtt is for headline, .*: 'ncr-testbed' names its own links"):
        registry.under("ncr-testbed", {"rtt": "20ms"}, "apswitch")


def shown(tmp_path: Path, /, problems: Mapping[str, Sequence[str]] | None = None, **setting: Value) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    compare.show(synthetic.run(tmp_path, problems, **setting).summary(), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_table_fits_a_terminal(tmp_path: Path) -> None:
    text = shown(tmp_path)
    assert "…" not in text
    assert re.search(r"fifo +13\.00 +2\.00 +13\.00 +15% +0\.92 +581\.5 +583\.0", text)
    assert "CAKE" not in text, "a peer is measured in the same run, or is not there"
    assert text.count("inconclusive ") == 4


def test_single_unfit_run_counts_with_a_caution(tmp_path: Path) -> None:
    text = shown(tmp_path, {"ncr": ["the CPU was 97% busy"]})
    assert "caution      ncr_1: the CPU was 97% busy" in text and "unfit" not in text
    assert re.search(r"ncr +13\.00 +12\.90", text) and text.count("inconclusive ") == 4
    found = Store(tmp_path, "headline", False).summary()
    assert found["runs"] == 2
    assert "counted for want of others: ncr_1 (the CPU was 97% busy)" in pages.experiment_page(found, tmp_path)


def test_repeated_unfit_run_does_not_count(tmp_path: Path) -> None:
    """On links of the user's own, as anywhere."""
    made, kept = synthetic.planned(tmp_path)
    made = replace(made, repeats=3)
    kept.begin(made)
    kept.write_machine()
    for order in made.orders():
        problems = ["timers were late"] if (order.arm, order.repeat) == ("ncr", 2) else []
        synthetic.keep(kept, order, problems)
        if problems:
            synthetic.keep(kept, second(order), problems)
    done = summary.write(made, kept)
    assert (done["runs"], done["word"], len(done["verdicts"])) == (8, "pass", 4)
    assert [one["counted"] for one in done["unfit"]] == [False, False]
    site.build([kept], tmp_path)
    page = (kept.directory / "index.html").read_text()
    assert 'src="overview.svg"' in page and 'src="ping-cdf.svg"' in page
    assert "controller.svg" not in page, "nothing was fed back"


def test_controllers_figure_is_drawn_where_it_fed_back(tmp_path: Path) -> None:
    made, kept = synthetic.planned(tmp_path)
    for order in made.orders():
        synthetic.keep(kept, order)
    run = kept.runs(made)[-1]
    run.logs.mkdir()
    rows = [
        f"ap1,{synthetic.STARTED + at},{port},{5 * port},5,{port - 1},0,0,0" for at in range(-2, 30) for port in (1, 2)
    ]
    names = "feedback_device,feedback_uplink,feedback_downlink,feedback_largest_flow"
    (run.logs / "controller.csv").write_text("\n".join([f"access_point,time,port,delay_ms,target_ms,{names}", *rows]))
    uplink = panels.uplink(run)
    assert [row["time"] for row in uplink] == list(range(synthetic.SECONDS)) and {row["port"] for row in uplink} == {2}
    summary.write(made, kept)
    site.build([kept], tmp_path)
    assert "<svg" in (kept.directory / "controller.svg").read_text()[:1000]
    assert "The uplink&#39;s queue" in (kept.directory / "index.html").read_text()


def test_a_station_walks_through_its_part_of_the_timeline() -> None:
    class Stage:
        scale, seconds = 0.5, 30.0

        def __init__(self) -> None:
            self.found: dict[str, Any] = {}
            self.at_end: list[tuple[float, Any]] = []
            self.ways: list[float] = []
            self.time, self.where, self.lab = -1.0, "ap1", self

        def associations(self) -> dict[str, str]:
            return {"sta1": self.where}

        def walk(self, way: float) -> None:
            self.ways.append(way)

        def now(self) -> float:
            return self.time

        def always(self, action: Any) -> None:
            self.action = action

        def at(self, second: float, action: Any) -> None:
            self.at_end.append((second, action))

    stage = Stage()
    Walk(20, 40).prepare(stage)  # type: ignore[arg-type]
    for stage.time in (-1.0, 10.0, 15.0, 20.0, 29.0):
        stage.action()
    assert stage.ways == [0.0, 0.0, 0.5, 1.0, 1.0]
    ((second, action),) = stage.at_end
    stage.where = "ap2"
    action()
    assert (second, stage.found) == (60.0, {"from": {"sta1": "ap1"}, "to": {"sta1": "ap2"}})


def test_who_walks_needs_radios() -> None:
    experiment = registry.find("handover")
    scene = experiment.scene_of({}, experiment.arms[0])
    with pytest.raises(LabError, match="needs more than one access point: give LAB=mininet-wifi"):
        scene.require(experiment.arms[0], "apswitch")
    assert experiment.under
    scene = experiment.under(Setting(lab=lab_kinds.WIRELESS, air="wmediumd")).scene_of({}, experiment.arms[0])
    assert isinstance(scene, AccessPoint)
    assert (scene.kind, scene.access_points, scene.air, scene.early) == (lab_kinds.WIRELESS, 2, "wmediumd", 4.0)


def test_radios_are_asked_for_as_they_were_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def lab(*_: Any, **named: Any) -> None:
        asked.update(named)

    monkeypatch.setattr(lab_kinds, "lab_class", lambda kind: lab)
    declared = registry.find("handover")
    assert declared.under
    for kind, air in ((lab_kinds.WIRED, "plain"), (lab_kinds.WIRELESS, "wmediumd")):
        experiment = declared.under(Setting(lab=kind, air=air))
        asked.clear()
        experiment.scene_of({}, experiment.arms[0]).lab(experiment.arms[0], "bmv2", tmp_path, seed=7)
        assert (asked["target"], asked["seed"], asked["stats"]) == ("bmv2", 7, True)
        radios = {name: value for name, value in asked.items() if name in ("access_points", "air")}
        assert radios == ({} if kind == lab_kinds.WIRED else {"access_points": 2, "air": "wmediumd"})


def without_pings() -> list[Sample]:
    return [s for s in samples() if s.quantity != "ping_ms"]


def verdicts(setting: Setting, **of: Sequence[Sample]) -> list[dict[str, Any]]:
    """The goals' verdicts from two runs of each of these arms."""
    experiment = headline.under(setting)
    return [summary.verdict(goal, synthetic.cells(experiment, of)) for goal in experiment.goals]


def decide(target: str = "apswitch", /, **changes: float) -> list[bool]:
    figures = {"during": 12.9, "up": 0.87, "ping": 9.0} | changes
    of = {"fifo": samples(during=2.0, up=0.92, ping=580.0), "ncr": samples(**figures)}
    return [verdict["word"] == "pass" for verdict in verdicts(Setting(target=target), **of)]


@pytest.mark.parametrize(
    ("changes", "met"),
    [
        ({}, [True, True, True, True]),
        ({"during": 13 * 0.98}, [True, True, True, True]),
        ({"during": 13 * 0.97}, [True, False, True, True]),
        ({"up": 0.80}, [True, True, True, True]),
        ({"up": 0.79}, [True, True, False, True]),
        ({"ping": 18.5}, [True, True, True, True]),
        ({"ping": 19.0}, [True, True, True, False]),
    ],
)
def test_the_limits_of_the_testbed(changes: dict[str, float], met: list[bool]) -> None:
    assert decide(**changes) == met


def test_bmv2_has_limits_of_its_own() -> None:
    assert decide("bmv2", during=13 * 0.95, up=0.58) == [True, True, True, True]
    assert decide("bmv2", during=13 * 0.94, up=0.57) == [True, False, False, True]


def test_the_collapse_is_asked_for_only_where_it_was_measured() -> None:
    assert len(headline.goals(Setting())) == 4
    assert len(headline.goals(Setting(PROFILES["lte"]))) == 3
    assert len(headline.goals(Setting(link_profile("testbed", up="600kbit")))) == 2
    assert len(headline.goals(Setting(cc="bbr"))) == 2


def test_the_limits_scale_with_the_link() -> None:
    run = samples(during=12.9, up=11.9, ping=9.0)
    download, upload, ping = verdicts(Setting(PROFILES["lte"]), ncr=run)
    assert (download["word"], upload["word"], ping["word"]) == ("pass", "fail", "pass")
    assert "at least 12.00 Mb/s" in upload["text"] and "at most 14.0 ms" in ping["text"]
    download, ping = verdicts(Setting(link_profile("testbed", up="500kbit", rtt="20ms"), "bbr"), ncr=run)
    assert "at most 52.0 ms" in ping["text"]


def test_an_arm_without_probes_meets_nothing_about_the_ping() -> None:
    found = verdicts(Setting(), fifo=samples(during=2.0), ncr=without_pings())
    assert [verdict["word"] for verdict in found] == ["pass", "pass", "pass", "not run"]
