# SPDX-License-Identifier: Apache-2.0
"""A measure that is added in one place is in REST, in /metrics, in history and on the page."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from accesspoint.checks.harness.browser import Browser, browser, missing_browser
from accesspoint.checks.harness.switches import ROOT, SwitchLab, wait_for
from accesspoint.controller.observation import MEASURES, history_columns
from accesspoint.controller.state.history import answer_columns

NEW = """
    Measure("port", "answer", "A number for a test", "packets", lambda ap, state: 42, "ap_answer", column="answer"),
    Measure("class", "seen_packets", "Packets for a test", "packets", lambda ap, state, class_id: 7 * ap.loop.ticks,
            "ap_seen_packets", counter=True, column="seen_packets"),
"""


@pytest.fixture
def window() -> Iterator[Browser]:
    reason = missing_browser()
    if reason:
        pytest.skip(reason)
    with browser() as made:
        yield made


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A checkout in which two measures were added, in one place."""
    root = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__", "tests")
    for name in ("controller", "p4src"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    shutil.copytree(ROOT / "accesspoint", root / "accesspoint", ignore=ignored, symlinks=True)
    path = root / "controller/observation.py"
    text = path.read_text()
    before = "MEASURES: tuple[Measure, ...] = ("
    assert text.count(before) == 1
    path.write_text(text.replace(before, before + NEW))
    return root


def test_a_measure_is_added_in_one_place(link_lab: SwitchLab, changed: Path, window: Browser) -> None:
    link_lab.start_switch()
    # The database is one of before.
    before = link_lab.controller()
    before.process.terminate()
    before.process.wait(120)
    database = before.errors.with_suffix(".db")
    token_file = link_lab.directory / "config1.token"
    token_file.write_text(before.token)
    controller = link_lab.controller(
        "--database", f"sqlite:///{database}", "--token-file", str(token_file), root=changed
    )

    port = controller.get("ports/2")
    assert port["answer"] == 42
    assert port["classes"][0]["seen_packets"] % 7 == 0
    document = controller.request("GET", "/openapi.json").json()["components"]["schemas"]
    assert document["PortAnswer"]["properties"]["answer"]["description"] == "A number for a test"

    assert 'ap_answer{access_point="ap1",port="2",role="uplink"} 42.0' in controller.request("GET", "/metrics").text
    # It is counted from the first tick on.
    counted = r'ap_seen_packets_total\{access_point="ap1",class_id="1",port="2",role="uplink"\} [1-9]'
    wait_for(lambda: re.search(counted, controller.request("GET", "/metrics").text))

    def history() -> dict[str, list[float]] | None:
        ports = controller.get("history?start=-600&resolution=1&port=2")["ports"]
        return ports[0]["columns"] if ports and sum(ports[0]["columns"]["seen_packets"]) else None

    columns = wait_for(history)
    assert set(columns["answer"][-3:]) == {42.0}

    window.log_in(controller.url, controller.token)
    window.open(f"{controller.url}/#/access-points/ap1")
    window.find("#measure option[value=answer]")
    window.set("#measure", "answer")
    window.wait_text(".chart.chosen .legend b", lambda text: text == "42.0")
    window.set("#measure", "seen_packets")
    window.wait_text(".chart.chosen .legend b", lambda text: text.endswith("/s") and text != "0/s")
    assert window.complaints() == []


def test_each_measure_is_told_of_once() -> None:
    for names in (
        [(measure.level, measure.name) for measure in MEASURES],
        [measure.metric for measure in MEASURES if measure.metric],
        [column for counter in (False, True) for _, column in history_columns(counter)],
        [name for measure in MEASURES for name in answer_columns(measure)],
    ):
        assert len(names) == len(set(names))
    # What is not in the list of metrics cannot be watched for.
    page = (ROOT / "docs/controller/monitoring.md").read_text()
    for measure in MEASURES:
        if measure.metric:
            assert f"`{measure.metric}{'_total' * measure.counter}`" in page
