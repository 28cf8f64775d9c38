# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a controller; its rules are tested, and every panel of the dashboard shows something."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from accesspoint.checks.harness.switches import ROOT, SERVER, STATION, SwitchLab, end, udp, wait_for
from accesspoint.checks.harness.waiting import free_port

MONITORING = ROOT / "controller/monitoring"
DASHBOARD = json.loads((MONITORING / "grafana.json").read_text())


@pytest.fixture(autouse=True)
def prometheus() -> None:
    for command in ("prometheus", "promtool"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is missing: apt-get install prometheus")


def promtool(*arguments: str, directory: Path = MONITORING, text: str | None = None) -> str:
    """Run promtool, which must succeed; return its output."""
    command = ["promtool", *arguments]
    done = subprocess.run(command, cwd=directory, input=text, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_alerts_tell_what_they_are_for() -> None:
    told = promtool("test", "rules", "alerts_test.yml")
    assert "SUCCESS" in told
    # Each of them is tried.
    names = re.findall(r"alert: (\w+)", (MONITORING / "alerts.yml").read_text())
    tried = re.findall(r'alertname="(\w+)"', (MONITORING / "alerts_test.yml").read_text())
    assert sorted(names) == sorted(tried)


def expressions() -> list[tuple[str, str]]:
    """(panel, expression) of the dashboard, with all access points chosen."""
    return [
        (panel["title"], target["expr"].replace("$access_point", ".*").replace("$__rate_interval", "30s"))
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ]


def test_a_prometheus_scrapes_and_the_dashboard_shows(link_lab: SwitchLab, tmp_path: Path) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    link_lab.introduce(controller)
    made = controller.request("POST", "/api/v1/tokens", json={"name": "prometheus", "role": "viewer"})
    (tmp_path / "prometheus.token").write_text(made.json()["token"])
    # Names and units are what Prometheus' own check asks for.
    assert promtool("check", "metrics", text=controller.request("GET", "/metrics").text) == ""

    shutil.copy(MONITORING / "alerts.yml", tmp_path)
    settings = (MONITORING / "prometheus.yml").read_text()
    settings = settings.replace("127.0.0.1:8080", controller.url.removeprefix("http://")).replace(": 10s", ": 3s")
    (tmp_path / "prometheus.yml").write_text(settings)
    promtool("check", "config", "prometheus.yml", directory=tmp_path)
    port = free_port()
    command = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)

    def ask(expression: str) -> list[Any]:
        # Traffic goes on meanwhile.
        link_lab.wires[1].send(udp(STATION, SERVER, 1000, 2000))
        link_lab.wires[2].send(udp(SERVER, STATION, 2000, 1000))
        try:
            url = f"http://127.0.0.1:{port}/api/v1/query"
            answer = httpx.get(url, params={"query": expression}, timeout=60)
        except httpx.TransportError:
            return []
        if answer.status_code == 503:
            return []
        assert answer.status_code == 200, answer.text
        return list(answer.json()["data"]["result"])

    try:
        wait_for(lambda: ask('up{job="access-points"} == 1'))
        for title, expression in expressions():
            assert wait_for(lambda asked=expression: ask(asked)), title  # type: ignore[misc]
        wait_for(lambda: ask('sum(rate(ap_sent_packets_total{role="uplink"}[30s])) > 0'))
        assert wait_for(lambda: ask("ap_ready"))[0]["metric"] == {
            "__name__": "ap_ready",
            "access_point": "ap1",
            "instance": controller.url.removeprefix("http://"),
            "job": "access-points",
        }
    finally:
        end(process)


def test_the_dashboard_is_whole() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        mine = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not mine & cells and place["x"] + place["w"] <= 24, panel["title"]
        cells |= mine
        assert panel["fieldConfig"]["defaults"]["unit"] and panel["description"]
