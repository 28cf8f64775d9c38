# SPDX-License-Identifier: Apache-2.0
"""The configuration file: what is right is taken, what is wrong is one line."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from accesspoint.checks.harness.switches import ROOT, Controller, end, wait_for
from accesspoint.controller.config import AccessPointConfig, Config, ConfigError, load

PORTS = [
    {"port": 1, "role": "station", "capacity_bps": 14_000_000, "queue_limit": 1000},
    {"port": 2, "role": "uplink", "capacity_bps": 1_000_000, "queue_limit": 1000},
]


def access_point(**fields: Any) -> dict[str, Any]:
    return {"name": "ap1", "ports": PORTS, **fields}


def write(path: Path, *access_points: dict[str, Any]) -> Path:
    file = path / "config.json"
    file.write_text(json.dumps({"access_points": access_points}))
    return file


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in a configuration are relative to the working directory."""
    monkeypatch.chdir(ROOT)


def test_a_whole_file(tmp_path: Path) -> None:
    config = load(
        write(
            tmp_path,
            access_point(
                address="127.0.0.1:9559",
                device_id=1,
                pipeline={"p4info": "p4src/compiled/ap.p4info.txtpb", "device_config": "p4src/compiled/ap.json"},
                features={
                    "ack_priority": True,
                    "ack_filter": True,
                    "sparse": True,
                    "ncr": True,
                    "gate": {"2": {"buffer": 90, "batch": 16}},
                },
                ncr={"law": "paper", "alpha": 0.03, "queue_target_ms": 20},
                class_weights={"downlink": 4, "uplink": 1},
            ),
        )
    )
    ap = config.access_points[0]
    assert ap.features.gate is not None
    assert ap.features.gate[2].batch == 16
    assert (ap.ncr.law, ap.ncr.queue_target_ms) == ("paper", 20)
    assert ap.direction(1, 2) == "uplink"
    assert ap.direction(2, 1) == "downlink"
    assert ap.direction(1, 1) == "local"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"features": {"ncrr": True}}, "features.ncrr: unknown field; did you mean `ncr`?"),
        ({"features": {"gate": {"2": {"buffer": 9, "bach": 3}}}}, "gate.2.bach: unknown field; did you mean `batch`?"),
        ({"features": {"zzz": 1}, "ncr": {"alhpa": 1}}, "zzz: unknown field; access_points.0.ncr.alhpa: unknown"),
        (
            {"ports": [PORTS[0], PORTS[0]], "stations": {"02:00:00:00:00:01": {"locked_port": 7}}},
            "duplicate port 1 in `ports`; `stations` locks 02:00:00:00:00:01 to port 7",
        ),
        # A group's address sends nothing, and a name is shown in terminals.
        ({"stations": {"ff:ff:ff:ff:ff:ff": {"weight": 2}}}, "stations.ff:ff:ff:ff:ff:ff"),
        ({"stations": {"01:00:5e:00:00:01": {"blocked": True}}}, "stations.01:00:5e:00:00:01"),
        ({"stations": {"02:00:00:00:00:01": {"name": "a\x9b2J"}}}, "stations.02:00:00:00:00:01.name"),
        *(
            ({"address": address}, f"{address!r} is not HOST:PORT")
            for address in ("a b:1", "a:\u0661", "h:65536", ":1")
        ),
        ({"sparse": {"min_rate_bps": 32_000}}, "sparse.min_rate_bps: unknown field"),
        ({"sparse": {"burst_bytes": 3_028}}, "sparse.burst_bytes: unknown field"),
        ({"queue_shares": {"new_flows": 0.1}}, "queue_shares.new_flows: unknown field"),
        ({"ncr": {"queue_target_ms": 0}}, "ncr.queue_target_ms: Input should be greater than 0"),
        ({"ncr": {"law": "pi3"}}, "ncr.law: there is no law 'pi3', only paper, pi2"),
        ({"ncr": {"own": {"slope": 1.0}}}, "ncr: law 'pi2' has no parameter 'slope' of its own; it has none"),
        ({"ncr": {"device_limit": 1.5}}, "ncr.device_limit: Input should be less than or equal to 1"),
        ({"ports": []}, "ports: List should have at least 1 item"),
        ({"ports": [PORTS[0], PORTS[0]]}, "duplicate port 1"),
        ({"ports": [{**PORTS[0], "role": "laptop"}]}, "ports.0.role: Input should be 'station' or 'uplink'"),
        ({"ports": [{**PORTS[0], "port": 510}]}, "ports.0.port: Input should be less than 510"),
        ({"ports": [{**PORTS[0], "capacity_bps": 0}]}, "ports.0.capacity_bps: Input should be greater"),
        ({"features": {"gate": {"7": {"buffer": 9, "batch": 3}}}}, "`gate` names port 7"),
        ({"features": {"gate": {"2": {"buffer": 9, "batch": 30}}}}, "batch 30 is larger than buffer 9"),
        ({"features": {"gate": {"2": {"buffer": 2000, "batch": 3}}}}, "buffer 2000 is above queue_limit 1000"),
        ({"address": "somewhere"}, "address: 'somewhere' is not HOST:PORT"),
        ({"pipeline": {"p4info": "no/such"}}, "pipeline.p4info: no/such: no such file"),
        ({"class_weights": {"downlink": 0}}, "class_weights.downlink: Input should be greater than 0"),
        ({"name": ".."}, "name: String should match pattern"),
        ({"rules": [{"name": "..", "class_id": 3}]}, "rules.0.name: String should match pattern"),
        ({"pipeline": {"p4info": "p4src/" + 300 * "a"}}, "file name too long"),
        ({"address": "127.0.0.1:²"}, "address: '127.0.0.1:²' is not HOST:PORT"),
        ({"rules": [{"name": "a", "class_id": 9}]}, "rules.0.class_id: Input should be less than or equal to 7"),
        ({"rules": [{"name": "a", "class_id": 3, "src_port": [9, 1]}]}, "[9, 1] is not a range of ports"),
        ({"rules": [{"name": "a", "class_id": 3, "regulated": 0}]}, "regulated: Input should be a valid boolean"),
        ({"features": {"sparse": "yes"}}, "features.sparse: Input should be a valid boolean"),
        ({"rules": [{"name": "a", "class_id": "3"}]}, "class_id: Input should be a valid integer"),
        ({"rules": [{"name": "a", "class_id": True}]}, "class_id: Input should be a valid integer"),
        ({"ncr": {"queue_target_ms": "7"}}, "ncr.queue_target_ms: Input should be a valid number"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, access_point(**fields)))
    text = str(caught.value)
    assert words in text
    assert "\n" not in text
    assert "config.json: access_points.0" in text


def test_numbers_may_be_written_with_a_point(tmp_path: Path) -> None:
    """JSON has one type of number."""
    rule = {"name": "a", "class_id": 3.0, "src_port": [80.0, 90]}
    gate = {"2": {"buffer": 9.0, "batch": 3}}
    config = load(write(tmp_path, access_point(rules=[rule], features={"gate": gate}, ncr={"queue_target_ms": 7})))
    found = config.access_points[0]
    assert found.rules[0].class_id == 3 and found.rules[0].src_port == (80, 90)
    assert found.features.gate and found.features.gate[2].buffer == 9 and found.ncr.queue_target_ms == 7.0


def test_a_name_that_stands_twice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="duplicate access point ap1"):
        load(write(tmp_path, access_point(), access_point()))


def test_no_json(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"access_points": [\n')
    with pytest.raises(ConfigError, match="line 2: not JSON"):
        load(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"access_points": [], "access_points": []}', "duplicate name `access_points` in one object"),
        ('{"stations": {"a": {"blocked": true}, "a": {"weight": 2}}}', "duplicate name `a` in one object"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "a number has 5000 digits"),
        ("NaN", "NaN is not a number"),
        ("1e999", "the number 1e999 is too large"),
    ],
)
def test_json_that_has_no_one_meaning_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: {words}"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or directory"):
        load(tmp_path / "missing.json")


def test_a_live_change_is_checked_like_a_file() -> None:
    config = Config.model_validate({"access_points": [access_point()]})
    ap: AccessPointConfig = config.access_points[0]
    with pytest.raises(ValueError, match="less than or equal to 1"):
        ap.ncr.device_limit = 2.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rest", "nowhere"], "--rest nowhere: not HOST:PORT"),
        (["--rest", "127.0.0.1:²"], "not HOST:PORT"),
        (["--rest", "127.0.0.1:99999"], "not HOST:PORT"),
        (["--rest", "192.0.2.1:80"], "--rest 192.0.2.1:80: cannot assign requested address"),
        (["--stats", "/no/such/folder/log.csv"], "--stats /no/such/folder/log.csv: no such file or directory"),
    ],
)
def test_a_wrong_option_is_one_line_and_code_2(tmp_path: Path, arguments: list[str], words: str) -> None:
    command = [
        sys.executable,
        "-m",
        "accesspoint.controller",
        "--config",
        str(write(tmp_path, access_point())),
        *arguments,
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: ")


def check(path: Path) -> tuple[int, str, str]:
    """`--check` of a file: code, output, errors."""
    command = [sys.executable, "-m", "accesspoint.controller", "--config", str(path), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_file_is_checked_without_starting_anything(tmp_path: Path) -> None:
    path = write(tmp_path, access_point(), access_point() | {"name": "ap2"})
    assert check(path) == (0, f"{path}: in order: ap1, ap2\n", "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.json"]
    for wrong, words in (
        (access_point(ports=[{**PORTS[0], "port": 0}]), "port 0 does not exist on"),
        (
            access_point(pipeline={"device_config": "p4src/v1model/ap.p4"}),
            "but p4src/v1model/ap.p4 is of another target's",
        ),
        (
            access_point(pipeline={"device_config": "no/such"}),
            "access_points.0.pipeline.device_config: no/such: no such",
        ),
        (access_point(features={"sprase": True}), "access_points.0.features.sprase"),
    ):
        code, output, errors = check(write(tmp_path, wrong))
        assert (code, output, errors.count("\n")) == (2, "", 1)
        assert errors.startswith(f"error: {path}: ") and words in errors


def test_the_file_is_taken_in_again_on_sighup(tmp_path: Path) -> None:
    path = write(tmp_path, access_point(enabled=False))
    controller = Controller(path)

    def reload(*access_points: dict[str, Any]) -> None:
        write(tmp_path, *access_points)
        controller.process.send_signal(signal.SIGHUP)

    def names() -> list[str]:
        return [entry["name"] for entry in controller.request("GET", "/api/v1/access-points").json()]

    try:
        assert controller.send("PATCH", "class-weights", {"downlink": 9}).status_code == 200
        two = access_point(enabled=False, device_id=2) | {"name": "ap2"}
        reload(access_point(enabled=False), two)
        assert controller.line() == f"reloaded {path}"
        assert names() == ["ap1", "ap2"]
        assert controller.get("class-weights")["downlink"] == 9, "its part of the file is as it was"
        # A mistake is told, and nothing changes.
        reload(access_point(enabled=False), two | {"ports": [{**PORTS[0], "port": 0}]})
        wait_for(lambda: "port 0 does not exist on" in controller.errors.read_text())
        reload(access_point(enabled=False), two | {"ports": []})
        wait_for(lambda: "not reloaded: " in controller.errors.read_text().splitlines()[-1])
        (tmp_path / "config.json").write_text("[" * 100_000)
        controller.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "nested too deeply" in controller.errors.read_text())
        reload(access_point(enabled=False), two | {"pipeline": {"p4info": 300 * "a"}})
        wait_for(lambda: "file name too long" in controller.errors.read_text())
        assert names() == ["ap1", "ap2"]
        reload(two | {"device_id": 3})
        assert controller.line() == f"reloaded {path}"
        assert names() == ["ap2"]
        assert controller.request("GET", "/api/v1/access-points/ap2").json()["device_id"] == 3
    finally:
        end(controller.process)


@pytest.mark.parametrize("text", ["not a protobuf {", "tables { preamble { id: 1 name: 'x' alias: 'x' } }", ""])
def test_the_wrong_p4info_is_one_line_and_code_2(tmp_path: Path, text: str) -> None:
    info = tmp_path / "other.txtpb"
    info.write_text(text)
    path = write(tmp_path, access_point(pipeline={"p4info": str(info)}))
    result = subprocess.run(
        [sys.executable, "-m", "accesspoint.controller", "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 2
    assert str(info) in result.stderr
    assert result.stderr.count("\n") == 1


def test_two_rules_of_one_match_are_refused() -> None:
    """B10: the switch has one place for both."""
    rule = {"dst_port": [5, 9], "class_id": 3}
    rules = [{"name": "a", **rule}, {"name": "b", **rule, "src_port": [0, 65535], "queue": 6}]
    with pytest.raises(ValidationError, match="rules a and b match the same packets"):
        AccessPointConfig.model_validate(access_point(rules=rules))
    rules[1]["priority"] = 2000
    assert len(AccessPointConfig.model_validate(access_point(rules=rules)).rules) == 2
