# SPDX-License-Identifier: Apache-2.0
"""apctl init and uninstall: what they write makes an access point, and nothing of it is left."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from accesspoint.checks.harness.switches import ROOT, end, wait_for
from accesspoint.controller.apctl import doctor, install, installation
from accesspoint.controller.apctl.settings import UsageError
from accesspoint.controller.config import load
from accesspoint.topologies.namespaces.namespace import Namespace

PORTS = (install.Port(1, "radio", 14_000_000), install.Port(2, "uplink", None))
PLAN = install.access_point(PORTS)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Namespace]:
    """A machine with two cables, to a station and to a server."""
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    monkeypatch.setattr(install, "HIDDEN", ())  # wherever this checkout is
    with Namespace() as here:
        for name in ("radio", "uplink"):
            here.ip("link", "add", name, "type", "veth", "peer", "name", f"{name}-far")
        yield here


@pytest.fixture
def hosts(place: Namespace) -> Iterator[list[Namespace]]:
    """10.7.0.1 and 10.7.0.2, at the other ends of the ports."""
    with Namespace() as station, Namespace() as server:
        for far, name, address in ((station, "radio", "10.7.0.1"), (server, "uplink", "10.7.0.2")):
            place.ip("link", "set", f"{name}-far", "netns", str(far.pid))
            far.ip("address", "add", f"{address}/24", "dev", f"{name}-far")
            far.ip("link", "set", f"{name}-far", "up")
        yield [station, server]


def left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def state(place: Namespace) -> str:
    """Return the settings of the ports that a unit may change."""
    shown = "cat /proc/sys/net/ipv6/conf/{0}/disable_ipv6; ethtool -k {0}; ip -o link show {0} | grep -o '[<,]UP[,>]'"
    return "".join(place.run("sh", "-c", f"{shown} || true".format(name)) for name in ("radio", "uplink"))


def commands(root: Path, unit: str, key: str) -> list[str]:
    """Return the commands that systemd makes of a unit's line (systemd.service(5), command lines), for this root."""
    text = (root / f"etc/systemd/system/{unit}.service").read_text().replace("\\\n", " ")
    settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    lines = (root / settings["EnvironmentFile"].lstrip("-/")).read_text().splitlines()
    given = {name: shlex.split(value)[0] for name, _, value in (line.partition("=") for line in lines)}
    given["CREDENTIALS_DIRECTORY"] = f"/{install.KEYS}"
    words = []
    for word in shlex.split(settings[key].lstrip("+")):
        if word.startswith("$") and not word.startswith("${"):
            words += given[word[1:]].split()
        else:
            for name, value in given.items():
                word = word.replace(f"${{{name}}}", value)
            words.append(word.replace("$$", "$"))
    return [
        word.replace("/var/lib/", f"{root}/var/lib/").replace("/etc/access", f"{root}/etc/access") for word in words
    ]


def bounded(root: Path, unit: str) -> list[str]:
    """With the capabilities that the unit leaves."""
    text = (root / f"etc/systemd/system/{unit}.service").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("CapabilityBoundingSet=")]
    names = "".join(f",+{name.removeprefix('CAP_').lower()}" for name in line.partition("=")[2].split())
    return ["setpriv", f"--bounding-set=-all{names}", "--inh-caps=-all", "--no-new-privs", "--"]


def asked(root: Path, path: str = "") -> httpx.Response:
    """Ask the controller that serves this root about its access point."""
    token = (root / install.TOKEN).read_text().strip()
    url = f"{install.URL}/api/v1/access-points/ap1{path}"
    return httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=60).raise_for_status()


def runs(root: Path) -> bool:
    """Tell whether the access point forwards; `/readyz` answers before the switch has its pipeline."""
    try:
        return bool(asked(root).json()["state"] == "ready")
    except (FileNotFoundError, httpx.HTTPError):
        return False


def apctl(place: Namespace, *words: str) -> "subprocess.CompletedProcess[str]":
    """As a user calls it; wherever this checkout is, it does as one that services may read."""
    code = (
        "import sys; from accesspoint.controller.apctl import install, __main__; "
        "install.HIDDEN = (); sys.exit(__main__.main())"
    )
    with place.entered():
        return subprocess.run(
            [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, timeout=240
        )


def test_what_it_writes_is_an_access_point_and_nothing_of_it_is_left(
    place: Namespace, hosts: list[Namespace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.run("ethtool", "-K", "uplink", "tso", "off")
    # As a radio: what merges packets is off for want of something else, and asked for all the same.
    place.run("ethtool", "-K", "radio", "tx", "off", "sg", "off")
    (tmp_path / "var/lib").mkdir(parents=True)
    before = state(place)
    plan = install.access_point([PORTS[0], install.Port(2, "uplink", 1_000_000)])
    with place.entered():
        assert [str(finding) for finding in install.problems(plan, tmp_path, here=True, start=False)] == []
        install.install(plan, tmp_path, here=True)
        (again,) = install.problems(plan, tmp_path, here=True, start=False)
    assert "`apctl uninstall` removes it" in again.fix
    (configured,) = load(tmp_path / install.CONFIG).access_points
    assert [(port.role, port.capacity_bps) for port in configured.ports] == [
        ("station", 14_000_000),
        ("uplink", 1_000_000),
    ]

    (tmp_path / install.STATE).mkdir()
    switch, controller = install.SWITCH, install.CONTROLLER
    place.run(*commands(tmp_path, switch, "ExecStartPre"))
    running: list[subprocess.Popen[Any]] = []
    try:
        for unit in (switch, controller):
            with (tmp_path / "said").open("ab") as said:
                words = [*bounded(tmp_path, unit), *commands(tmp_path, unit, "ExecStart")]
                running.append(place.popen(*words, cwd=ROOT, stdout=said, stderr=said))

        def ready() -> bool:
            with place.entered():
                return runs(tmp_path)

        wait_for(ready)
        assert " 0% packet loss" in hosts[0].run("ping", "-c", "5", "-l", "5", "-i", "60", "-W", "60", "10.7.0.2")
        with place.entered():
            assert [str(finding) for port in PORTS for finding in doctor.interface(port.name)] == []
            assert "uplink" in asked(tmp_path, "/ports").text
    finally:
        for process in running:
            end(process)
        said_text = (tmp_path / "said").read_text()
    assert "panicked" not in said_text
    (tmp_path / "said").unlink()
    assert state(place) != before
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(install, "_systemctl", lambda *words: called.append(words))
    with place.entered():
        assert len(install.remove(tmp_path, running=True)) >= 5
    assert called == [("disable", "--now", install.SWITCH, install.CONTROLLER), ("daemon-reload",)]
    assert left(tmp_path) == ["var", "var/lib"] and state(place) == before


@pytest.mark.parametrize("on_path", [True, False])
def test_init_prints_a_login_that_can_be_typed(
    on_path: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install.shutil, "which", lambda name: f"/usr/bin/{name}" if on_path else None)
    monkeypatch.setattr(installation, "_installed", lambda *plan: True)
    monkeypatch.setattr(installation, "_await_ready", lambda token_file: None)
    installation.init("radio", "uplink", "14mbit", "auto")
    name = shlex.split(capsys.readouterr().out.splitlines()[-1])[0]
    assert name == ("apctl" if on_path else str(ROOT / "apctl"))


def test_an_image_is_made_elsewhere(place: Namespace, tmp_path: Path) -> None:
    """Its interfaces are none of this machine's, and nothing of this machine is touched."""
    before = state(place)
    given = ("--radio", "wlan7", "--uplink", "uplink", "--down", "14mbit", "--up", "auto", "--root", str(tmp_path))
    done = apctl(place, "init", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"wrote {tmp_path}/etc/access-point/access-point.json" in done.stdout and "not started" in done.stdout
    again = apctl(place, "init", *given)
    assert again.returncode == 1 and "`apctl uninstall` removes it" in again.stdout
    done = apctl(place, "uninstall", "--root", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert left(tmp_path) == [] and state(place) == before
    done = apctl(place, "uninstall", "--root", str(tmp_path))
    assert done.returncode == 2 and "nothing to uninstall" in done.stderr
    full = tmp_path / "full"
    full.write_text("no folder")
    done = apctl(place, "init", *given[:-1], str(full))
    assert done.returncode == 2 and done.stderr.startswith("error: ") and "not a directory" in done.stderr


def test_what_was_half_written_is_taken_away(place: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(install, "_systemctl", lambda *words: called.append(words))
    with place.entered():
        install.install(PLAN, tmp_path, here=True)
        for unit in PLAN.units:
            (tmp_path / f"etc/systemd/system/{unit}.service").unlink()
        install.remove(tmp_path, running=True)
    assert called == [("daemon-reload",)] and left(tmp_path) == []


def test_an_earlier_controllers_state_is_not_taken_over(place: Namespace, tmp_path: Path) -> None:
    (tmp_path / install.STATE).mkdir(parents=True)
    with place.entered():
        (found,) = install.problems(PLAN, tmp_path, here=True, start=False)
    assert "an earlier controller's state" in found.text and "move it away" in found.fix


@pytest.mark.parametrize(
    ("prepare", "ports", "text"),
    [
        ("ip address add 10.9.8.7/24 dev radio", PORTS, "radio has addresses (10.9.8.7/24)"),
        ("ip link add br0 type bridge && ip link set uplink master br0", PORTS, "uplink is also a port of br0"),
        ("true", (PORTS[0], install.Port(2, "radio", None)), "cannot be both radio and uplink"),
        ("true", (PORTS[0], install.Port(2, "wlan7", None)), "wlan7: this machine has no such interface"),
        ("ip link add '$(id)' type bridge", (PORTS[0], install.Port(2, "$(id)", None)), "has other characters than"),
    ],
)
def test_what_stands_in_the_way_is_told(
    place: Namespace, tmp_path: Path, prepare: str, ports: tuple[install.Port, ...], text: str
) -> None:
    place.run("sh", "-c", prepare)
    plan = install.access_point(ports)
    with place.entered():
        bad = [
            finding for finding in install.problems(plan, tmp_path, here=True, start=False) if finding.level == "error"
        ]
    assert len(bad) == 1 and text in bad[0].text and bad[0].fix


def test_services_see_no_checkout_in_a_home(place: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "HIDDEN", (str(ROOT.parent),))
    with place.entered():
        (found,) = install.problems(PLAN, tmp_path, here=True, start=False)
    assert "systemd services cannot read" in found.text and "git clone" in found.fix


def test_what_is_not_its_own_stays(place: Namespace, tmp_path: Path) -> None:
    own = tmp_path / "etc/default/access-point-switch"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    with place.entered(), pytest.raises(UsageError, match="is not apctl's: move it away"):
        install.install(PLAN, tmp_path, here=True)
    assert left(tmp_path) == ["etc", "etc/default", "etc/default/access-point-switch"]
    own.unlink()
    with place.entered():
        install.install(PLAN, tmp_path, here=True)
        kept = json.loads((tmp_path / install.MANIFEST).read_text())
        (tmp_path / "etc/passwd").write_text("theirs")
        wrong: list[dict[str, Any]] = [
            {"files": ["etc/passwd"]},
            {"files": [str(tmp_path / "etc/passwd")]},
            {"folders": ["../.."]},
            {"interfaces": {"../lo": {}}},
            {"interfaces": {"lo": {}}},
            {"interfaces": ["radio"]},
        ]
        for odd in ("{", "[]", *(json.dumps(kept | one) for one in wrong)):
            (tmp_path / install.MANIFEST).write_text(odd)
            with pytest.raises(UsageError, match="cannot be read: remove its units and files by hand"):
                install.remove(tmp_path, running=False)
    assert (tmp_path / "etc/passwd").read_text() == "theirs" and (tmp_path / install.CONFIG).exists()


def test_services_may_read_what_is_written(place: Namespace, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with place.entered():
            written = install.install(PLAN, tmp_path, here=True)
    finally:
        os.umask(before)
    assert all(path.stat().st_mode & 0o004 and path.parent.stat().st_mode & 0o001 for path in written)


@pytest.mark.parametrize("text", ["", "14", "14 furlongs", "7kbit", "11gbit", "-1mbit", "1e9mbit", "9999999gbit"])
def test_a_rate_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape("give 8kbit to 10gbit, e.g. 14mbit, or auto")):
        install.parse_rate(text)


def test_rates() -> None:
    assert [install.parse_rate(text) for text in ("auto", "14mbit", "1.5Mbit")] == [None, 14_000_000, 1_500_000]
    assert PORTS[0].link == "--link 1:rate=14000000bit,limit=100" and PORTS[1].link == ""
    assert PORTS[1].as_config()["capacity_bps"] == "auto"


def test_init_without_a_terminal_names_the_option_that_is_missing() -> None:
    words = [sys.executable, "-m", "accesspoint.controller.apctl", "init", "--radio", "lo"]
    done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2 and done.stderr.startswith("error: --uplink is missing: Interface of the uplink (one")
