# SPDX-License-Identifier: Apache-2.0
"""apctl: what it prints, how it ends, and what it keeps. A controller whose switch is away is enough."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accesspoint.checks.harness.switches import ROOT, Controller, end
from accesspoint.checks.harness.waiting import free_port
from accesspoint.controller.apctl import tables

from .conftest import Apctl
from .test_config import access_point
from .test_entries import PIPELINE


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """One for all tests."""
    path = tmp_path_factory.mktemp("apctl") / "config.json"
    entry = access_point(pipeline=PIPELINE, address=f"127.0.0.1:{free_port()}")
    path.write_text(json.dumps({"access_points": [entry]}))
    made = Controller(path)
    yield made
    end(made.process)


@pytest.fixture
def run(controller: Controller, tmp_path: Path, apctl: Apctl) -> Apctl:
    """Run apctl against it; returns code, output and errors."""

    def run_(*arguments: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
        given = {"APCTL_URL": controller.url, "APCTL_TOKEN": controller.token, "XDG_CONFIG_HOME": str(tmp_path)}
        return apctl(*arguments, stdin=stdin, **{**given, **environment})

    return run_


def test_it_shows_and_changes(run: Apctl) -> None:
    code, output, _ = run("get", "ap")
    lines = output.splitlines()
    assert (code, lines[0].split()[:2], lines[1].split()[:2]) == (0, ["NAME", "STATE"], ["ap1", "connecting"])
    assert run("set", "ncr", "ap1", "queue_target_ms=7")[0] == 0
    assert json.loads(run("get", "ncr", "ap1", "--json")[1])["queue_target_ms"] == 7
    assert run("set", "ncr", "ap1", "queue_target_ms=default")[1].count("15.0") == 1
    assert "900000" in run("set", "port", "ap1", "uplink", "capacity=900kbit")[1]
    night = '[{"start": "18:00", "end": "23:00", "capacity": "800kbit"}]'
    assert run("set", "port", "ap1", "uplink", f"schedule={night}")[0] == 0
    groups = '{"guests": {"limit_down": "2mbit", "limit_up_bps": "300kbit"}}'
    assert run("set", "config", "ap1", f"groups={groups}")[0] == 0
    config = json.loads(run("get", "config", "ap1", "--json")[1])
    assert [period["capacity_bps"] for port in config["ports"] for period in port.get("schedule") or ()] == [800_000]
    guests = config["groups"]["guests"]
    assert (guests["limit_down_bps"], guests["limit_up_bps"]) == (2_000_000, 300_000)
    for text, error in (
        ('{"guests": {"limit_down": "fast"}}', "rate fast: give 8kbit to 10gbit"),
        ('{"guests": {"limit_down": "2mbit", "limit_down_bps": 1}}', "limit_down_bps was given before"),
        ("[" * 900 + "]" * 900, "nested too deeply"),
        ('{"a": ' * 900 + "1" + "}" * 900, "nested too deeply"),
    ):
        code, _, errors = run("set", "config", "ap1", f"groups={text}")
        assert code == 2 and error in errors
    another = access_point(pipeline=PIPELINE, enabled=False) | {"name": "ap2"}
    assert run("add", "-f", "-", stdin=json.dumps(another)) == (0, "ap2 added\n", "")
    code, _, errors = run("delete", "access-point", "ap2")
    assert (code, errors) == (2, "error: remove ap2 and its history? Confirm with --yes\n")
    assert run("delete", "access-point", "ap2", "--yes")[1] == "ap2 removed\n"


def test_set_takes_numbers_and_truth_values_as_people_write_them(run: Apctl) -> None:
    station = ("set", "station", "ap1", "02:00:00:00:00:01")
    assert run(*station, "weight=.5", "blocked=yes", "name=on", "limit_up=300kbit")[0] == 0
    config = json.loads(run("get", "config", "ap1", "--json")[1])
    expected = {"name": "on", "weight": 0.5, "blocked": True, "limit_up_bps": 300_000}
    assert expected.items() <= config["stations"]["02:00:00:00:00:01"].items()
    assert run("set", "features", "ap1", "sparse=Off")[0] == 0
    assert json.loads(run("get", "config", "ap1", "--json")[1])["features"]["sparse"] is False
    # The name of a group is no field, whatever it is, and a number needs no unit.
    groups = '{"limit_up": {"limit_up": "200000"}, "capacity": {"weight": 2}}'
    assert run("set", "config", "ap1", f"groups={groups}")[0] == 0
    found = json.loads(run("get", "config", "ap1", "--json")[1])["groups"]
    assert (found["limit_up"]["limit_up_bps"], found["capacity"]["weight"]) == (200_000, 2)


def test_files_say_what_access_points_shall_be(run: Apctl, controller: Controller, tmp_path: Path) -> None:
    folder = tmp_path / "access-points"
    folder.mkdir()
    ap1 = json.loads(run("get", "config", "ap1", "--json")[1])
    two = access_point(pipeline=PIPELINE, enabled=False) | {"name": "two"}
    three = two | {"name": "three", "device_id": 3}
    (folder / "ap1.json").write_text(json.dumps(ap1))
    (folder / "others.json").write_text(json.dumps({"access_points": [two, three]}))
    code, output, _ = run("diff", "-f", str(folder))
    assert code == 1 and "+++ two (shall be)" in output and "ap1 (is)" not in output
    assert run("apply", "-f", str(folder))[1] == "ap1 unchanged\ntwo added\nthree added\n"
    assert run("diff", "-f", str(folder))[:2] == (0, "")
    # What was changed otherwise is what the files say again.
    assert run("set", "class-weights", "two", "downlink=9")[0] == 0
    code, output, _ = run("diff", "-f", str(folder))
    assert code == 1 and '-    "downlink": 9.0,' in output and '+    "downlink": 4.0,' in output
    assert run("apply", "-f", str(folder))[1] == "ap1 unchanged\ntwo changed\nthree unchanged\n"
    # One mistake, and nothing is done.
    (folder / "others.json").write_text(json.dumps({"access_points": [two | {"device_id": 7}, three | {"ports": []}]}))
    code, output, errors = run("apply", "-f", str(folder))
    assert (code, output, "body.ports" in errors) == (1, "", True)
    assert json.loads(run("get", "config", "two", "--json")[1])["device_id"] == 1
    (folder / "others.json").write_text(json.dumps(two))
    code, _, errors = run("apply", "-f", str(folder), "--prune")
    assert (code, "remove three and their history? Confirm with --yes" in errors) == (2, True)
    assert run("apply", "-f", str(folder), "--prune", "--yes")[1].splitlines()[-1] == "three removed"
    revisions = json.loads(run("get", "revisions", "two", "--json")[1])
    assert run("get", "revisions", "two")[1].split()[:3] == ["REVISION", "TIME", "ACTOR"]
    assert run("rollback", "two", str(revisions[1]["revision"]))[0] == 0
    assert json.loads(run("get", "class-weights", "two", "--json")[1])["downlink"] == 9
    assert run("apply", "-f", "-", stdin=json.dumps(two))[1] == "two changed\n"
    for content, words in (
        ("[]", "neither an access point"),
        ("{", "not JSON"),
        ('{"access_points": [{}]}', "neither an access point"),
        (json.dumps({"access_points": [two, two]}), "duplicate access point"),
    ):
        (folder / "others.json").write_text(content)
        code, output, errors = run("apply", "-f", str(folder))
        assert (code, output, errors.count("\n"), words in errors) == (2, "", 1, True), errors
    assert run("delete", "access-point", "two", "--yes")[0] == 0


def test_login_keeps_a_token_for_its_controller_only(run: Apctl, controller: Controller, tmp_path: Path) -> None:
    away = {"APCTL_URL": "", "APCTL_TOKEN": ""}
    assert run("get", "ap", **away)[0] == 2
    code, output, _ = run("login", controller.url, stdin=controller.token, **away)
    assert (code, output.startswith("admin, admin, until never: kept in")) == (0, True)
    assert (tmp_path / "apctl.json").stat().st_mode & 0o777 == 0o600
    assert run("get", "ap", **away)[0] == 0
    code, _, errors = run("--url", "http://127.0.0.1:1", "get", "ap", **away)
    assert (code, "a token is needed" in errors) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("get", "things"), 2, "get things: one of access-points"),
        (("get", "flows"), 2, "get flows: which ACCESS_POINT?"),
        (("set", "ncr", "ap1", "alpha"), 2, "set ncr: an ACCESS_POINT, then NAME=VALUE"),
        (("set", "ncr", "ap1", "=1"), 2, "=1: not NAME=VALUE"),
        (("set", "flow", "ap1", "x", "weight=1"), 2, "x is no FLOW_INDEX"),
        (("set", "ncr", "ap1"), 2, "set ncr: nothing to set; add NAME=VALUE"),
        (("set", "rule", "ap1", "dscp=46"), 2, "set rule: which rule? Add name=NAME"),
        (("set", "port", "ap1", "wan", "capacity=1mbit"), 2, "port wan: name one of the ports of ap1: 1 (station)"),
        (("set", "port", "ap1", "2", "capacity=1zbit"), 2, "rate 1zbit: give 8kbit to 10gbit"),
        (("set", "port", "ap1", "2", "capacity=1mbit", "capacity_bps=9"), 2, "capacity_bps was given before"),
        (("set", "config", "ap1", 'groups={"a": {}, "a": {}}'), 2, "groups: duplicate name `a` in one object"),
        (("set", "config", "ap1", "groups={a}"), 2, "groups: line 1: not JSON"),
        (("set", "flow", "ap1", "²", "weight=1"), 2, "² is no FLOW_INDEX"),
        (("set", "station", "ap1", "02:00:00:00:00:01", "name=\udcff"), 2, "not UTF-8 text"),
        (("set", "ncr", "ap1", "gamma=1e999"), 1, "body.gamma"),
        (("delete", "rule", "ap1", "..", "--yes"), 1, "'..' is no name"),
        (("token", "create", "a", "--days", "nan"), 1, "the request cannot be sent"),
        (("get", "ports", "ap1", "--sort=-rate_bps"), 2, "`get ports` has no --sort, only flows and stations"),
        (("get", "history", "ap1", "--since=-5"), 2, "--since -5: give seconds above 0"),
        (("get", "stations", "ap1", "--sort=speed"), 1, "query.sort"),
        (("--url", "http://[::1", "get", "ap"), 1, "http://[::1: "),
        (("add", "-f", "/no/such"), 2, "/no/such: no such file"),
        (("completion", "csh"), 2, "one of bash, zsh, fish"),
        (("--url", "somewhere", "get", "ap"), 2, "somewhere: not a URL"),
        (("get", "ports", "ap9"), 1, "no access point ap9; there are: ap1"),
        (("set", "ncr", "ap1", "alpha=-1"), 1, "body.alpha"),
        (("--url", "http://127.0.0.1:1", "get", "ap"), 1, "http://127.0.0.1:1: "),
    ],
)
def test_what_is_wrong_is_one_line(run: Apctl, arguments: tuple[str, ...], code: int, words: str) -> None:
    found, output, errors = run(*arguments)
    assert (found, output) == (code, "")
    assert errors.startswith("error: ") and errors.count("\n") == 1
    assert words in errors


def test_get_after_a_rule_of_dots_is_deleted_has_its_access_point(run: Apctl) -> None:
    run("delete", "rule", "ap1", "..", "--yes")
    assert run("get", "config", "ap1")[0] == 0


def test_set_name_of_digits_is_text(run: Apctl) -> None:
    where = "station", "ap1", "02:00:00:00:00:07"
    for given, kept in (("42", "42"), ('"42"', "42"), ("true", "true"), ("null", None), ("default", None)):
        assert run("set", *where, "weight=2", f"name={given}")[0] == 0
        assert json.loads(run("get", "config", "ap1", "--json")[1])["stations"][where[2]]["name"] == kept
    run("set", *where, "weight=default")


def test_change_that_is_not_in_effect_is_reported(run: Apctl, tmp_path: Path) -> None:
    away = access_point(pipeline=PIPELINE, address=f"127.0.0.1:{free_port()}") | {"name": "ap3"}
    (tmp_path / "ap3.json").write_text(json.dumps(away))
    for command in (("add", "-f", str(tmp_path / "ap3.json")), ("apply", "-f", str(tmp_path / "ap3.json"))):
        code, output, errors = run(*command)
        assert (code, output) == (0, "ap3 added\n")
        assert errors.startswith("ap3: revision ") and "not in effect yet: ap3: no P4Runtime switch answers" in errors
        assert run("delete", "access-point", "ap3", "--yes")[0] == 0
    code, output, errors = run("connect", "ap1")
    assert (code, output, "not in effect yet" in errors) == (0, "ap1 connects\n", True)


def test_completion_knows_the_access_points(run: Apctl) -> None:
    environment = {"_APCTL_COMPLETE": "complete_bash", "COMP_WORDS": "apctl get flows ", "COMP_CWORD": "3"}
    assert run(**environment)[1].split() == ["ap1"]
    assert "_apctl_completion" in run("completion", "bash")[1]


def test_events_are_lines_of_json(run: Apctl, controller: Controller, tmp_path: Path) -> None:
    environment = {**os.environ, "APCTL_URL": controller.url, "APCTL_TOKEN": controller.token}
    with subprocess.Popen([ROOT / "apctl", "events"], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        event = json.loads(process.stdout.readline())
        process.terminate()
    assert (event["event"], event["name"]) == ("access_point", "ap1")


def test_table_of_audit_shows_change_as_json() -> None:
    row = {"time": 0, "actor": "admin", "client": "::1", "action": "PATCH", "path": "/x", "change": {"enabled": True}}
    assert tables.table("audit", [row]).endswith('{"enabled": true}')
    assert tables.table("audit", [row | {"change": None}]).endswith("   -")


def test_numbers_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [tables.rate(value) for value in (0, 950, 1_200_000, 2e12)] == ["0", "950", "1.2M", "2e+03G"]
    assert [tables.size(value) for value in (512, 2048, 3 * 1024**3)] == ["512", "2Ki", "3Gi"]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    assert [tables.ago(now - seconds) for seconds in (5, 600, 10_000, 200_000)] == ["5s", "10m", "3h", "2d"]
    assert tables.ago(None) == "-"
    assert tables.endpoint("fd00::1", 80) == "[fd00::1]:80"
