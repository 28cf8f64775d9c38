# SPDX-License-Identifier: Apache-2.0
"""The adapter: what differs between targets, and that a program of the wrong one is named before anything starts."""

import re
from pathlib import Path

import finsy as fy
import pytest

from controller.config import AccessPointConfig, ConfigError, Pipeline
from controller.program import Program, rate_meter
from controller.target import TARGETS, Tofino

from .switches import ROOT
from .test_config import PORTS, access_point

P4INFO = ROOT / "p4src/ap.p4info.txtpb"
DEVICE_CONFIG = ROOT / "p4src/ap.json"


def program(p4info: Path, device_config: Path) -> Program:
    return Program(Pipeline(p4info=p4info, device_config=device_config))


def test_a_p4info_of_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    other = tmp_path / "ap.p4info.txtpb"
    other.write_text(P4INFO.read_text().replace('arch: "v1model"', 'arch: "pna"'))
    with pytest.raises(ConfigError, match=re.escape(f"{other}: made for the architecture `pna`")) as caught:
        program(other, DEVICE_CONFIG)
    assert "\n" not in str(caught.value)


def test_a_device_config_of_another_target_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "tofino.bin"
    binary.write_bytes(b"\0\1")
    with pytest.raises(ConfigError, match=r"of the program for v1model .*tofino\.bin is of another target's"):
        program(P4INFO, binary)


@pytest.mark.parametrize(
    ("arch", "number", "there"),
    [("v1model", 0, False), ("v1model", 1, True), ("v1model", 509, True),
     ("tna", 0, True), ("tna", 63, True), ("tna", 64, False), ("tna", 447, True), ("tna", 448, False)],
)  # fmt: skip
def test_a_port_that_the_target_does_not_have_is_named(arch: str, number: int, there: bool) -> None:
    config = AccessPointConfig.model_validate(access_point(ports=[{**PORTS[0], "port": number}]))
    target = TARGETS[arch]
    if there:
        target.check(config)
        return
    with pytest.raises(ConfigError, match=f"ap1: port {number} is none of {re.escape(target.title)}"):
        target.check(config)


def test_the_gate_of_a_tofino_is_a_virtual_queue_and_the_time_of_a_batch() -> None:
    meter, gate = Tofino().gate(5, 8_000_000, buffer=90, batch=10)
    assert isinstance(meter, fy.P4MeterEntry)
    assert (meter.index, meter.config) == (5, rate_meter(8_000_000, 90 * 1514))
    assert isinstance(gate, fy.P4TableEntry)
    assert isinstance(gate.action, fy.P4TableAction)
    # 10 frames of 1514 bytes at 1 byte/us, in units of 1.024 us.
    assert gate.action.args == {"batch": 10, "window": round(15140 / 1.024)}


def test_the_ack_filter_of_a_tofino_has_a_session_in_each_pipe() -> None:
    assert TARGETS["v1model"].ack_sessions([1, 2]) == []
    sessions = Tofino().ack_sessions([3, 130, 131])
    assert [(session.session_id, session.replicas) for session in sessions] == [(32, [68]), (33, [196])]
