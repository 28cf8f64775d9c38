# SPDX-License-Identifier: Apache-2.0
"""The page of a fleet's replica in a real browser: an agent announces itself and is adopted there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from accesspoint.checks.harness.browser import Browser
from accesspoint.checks.harness.switches import ROOT, Controller, SwitchLab, end, wait_for
from accesspoint.topologies.namespaces.contain import end_with_parent

from .engines import Server, missing_engine, server
from .test_page import NAMES, chromium, dialog, token, window

__all__ = ["chromium", "window"]  # fixtures

pytestmark = pytest.mark.skipif(missing_engine() is not None, reason=missing_engine() or "")

WAITING = "section[aria-label='Agents that wait to be adopted']"


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path) as made:
        yield made


@pytest.fixture
def replica(link_lab: SwitchLab, nats: Server) -> Controller:
    """It knows an access point, ap1, whose agent never comes."""
    link_lab.start_switch()
    return link_lab.controller("--engine", nats.url, "--engine-keys", str(nats.keys), ready=False)


@pytest.fixture
def agent(link_lab: SwitchLab, nats: Server, replica: Controller, tmp_path: Path) -> Iterator[str]:
    """One beside the lab's switch, which would be the access point `hall`; its key."""
    config = tmp_path / "hall.json"
    config.write_text(json.dumps(link_lab.config(name="hall")))
    command = [
        sys.executable,
        "-m",
        "accesspoint.controller.agent",
        "--name",
        "hall",
        "--state",
        str(tmp_path / "agent"),
    ]
    command += ["--engine", nats.url, "--engine-ca", str(nats.keys / "ca.pem")]
    command += ["--enrol", str(nats.keys / "enrol.creds"), "--config", str(config)]
    with (tmp_path / "agent.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, preexec_fn=end_with_parent)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().split()[1]
    finally:
        end(process)
        process.stdout.close()


def shown(window: Browser) -> bool:
    script = "return [...document.querySelectorAll(arguments[0])].some((section) => section.checkVisibility())"
    return bool(window.run(script, WAITING))


def test_an_admin_adopts_an_agent(replica: Controller, agent: str, window: Browser) -> None:
    window.log_in(replica.url, replica.token)
    window.wait_text(WAITING, lambda text: "hall on " in text)
    # Before the access points, of which there may be a thousand.
    assert window.find(WAITING).rect["y"] < window.find(".overview").rect["y"]
    window.type(f"{WAITING} button[aria-label='Adopt hall']", "\n")
    # The key is there to be compared with what the agent says.
    window.wait_text("dialog[open]", lambda text: agent in text)
    # Nothing of it is out of sight, also on a phone.
    for width in (1360, 390):
        window.size(width, 2000)
        assert window.run("const box = document.querySelector('dialog'); return box.scrollWidth <= box.clientWidth")
    # It is offered under its own name, and may get another one.
    dialog(window, For_the_access_point="the hall")
    assert window.all("dialog[open]") and replica.request("GET", "/api/v1/agents").json()[0]["access_point"] is None
    dialog(window, For_the_access_point="foyer")
    wait_for(lambda: window.run(NAMES) == ["ap1", "foyer"])
    row = ".overview tbody tr:nth-child(2)"
    window.wait_text(row, lambda text: text.startswith("foyer") and "ready" in text)
    window.wait_text(".overview tbody tr:nth-child(1)", lambda text: "no agent announced it" in text)
    wait_for(lambda: not shown(window))
    (known,) = replica.request("GET", "/api/v1/agents").json()
    assert (known["id"], known["access_point"]) == (agent, "foyer")
    # The whole of it is there.
    window.open(f"{replica.url}/#/access-points/foyer")
    window.wait_text("section[aria-label=Ports] tbody", lambda text: "uplink" in text)
    assert window.complaints() == []


def test_others_are_shown_no_agents(replica: Controller, agent: str, window: Browser) -> None:
    wait_for(lambda: replica.request("GET", "/api/v1/agents").json())
    window.log_in(replica.url, token(replica, "operator"))
    wait_for(lambda: window.run(NAMES) == ["ap1"])
    assert not window.all(WAITING)
    assert window.complaints() == []
