# SPDX-License-Identifier: Apache-2.0
"""The adapter: what differs between targets, and that a program of the wrong one is named before anything starts."""

import re
from pathlib import Path

import finsy as fy
import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from accesspoint.checks.harness.switches import ROOT
from accesspoint.controller.agent import classes, ports, queue_meters
from accesspoint.controller.agent.entries import EntrySet
from accesspoint.controller.agent.program import FlowKey, Program, rate_meter
from accesspoint.controller.agent.target import TARGETS, Tofino
from accesspoint.controller.config import AccessPointConfig, ConfigError, Pipeline

from .test_config import PORTS, access_point

P4INFO = ROOT / "p4src/compiled/ap.p4info.txtpb"
DEVICE_CONFIG = ROOT / "p4src/compiled/ap.json"


TOFINO_P4INFO = ROOT / "p4src/compiled/ap_tna.p4info.txtpb"
OF_ONE_TARGET = {"gate", "batch_gate", "batch_window", "virtual_queue", "step", "mark_above", "add_port_feedback_above"}
"""Objects that an architecture has in its own form, or alone; the adapter knows them."""

Shape = dict[tuple[str, str], object]


def shape(path: Path) -> Shape:
    """Return the shape of each object by kind and alias, except registers, which a controller does not use."""
    info = text_format.Parse(path.read_text(), p4i.P4Info())
    names = {action.preamble.id: action.preamble.alias for action in info.actions}
    structs = info.type_info.structs
    found: Shape = {}
    for table in info.tables:
        keys = [(field.id, field.name, field.bitwidth, field.match_type) for field in table.match_fields]
        actions = {names[ref.id] for ref in table.action_refs} - OF_ONE_TARGET
        # A Tofino's flow tables have no idle timeout; the controller goes by their counters.
        timeout = table.preamble.alias.startswith("flows_") or table.idle_timeout_behavior
        found["table", table.preamble.alias] = (keys, actions, timeout)
    for action in info.actions:
        found["action", action.preamble.alias] = [(param.id, param.name, param.bitwidth) for param in action.params]
    for kind in ("counter", "direct_counter", "meter", "direct_meter"):
        for array in getattr(info, f"{kind}s"):
            found[kind, array.preamble.alias] = (getattr(array, "size", 0), array.spec.unit)
    for digest in info.digests:
        members = structs[digest.type_spec.struct.name].members
        found["digest", digest.preamble.alias] = [
            (member.name, member.type_spec.bitstring.bit.bitwidth) for member in members
        ]
    for header in info.controller_packet_metadata:
        found["packet", header.preamble.alias] = [(field.id, field.name, field.bitwidth) for field in header.metadata]
    return {key: value for key, value in found.items() if key[1] not in OF_ONE_TARGET}


def test_every_target_has_the_same_objects() -> None:
    assert shape(TOFINO_P4INFO) == shape(P4INFO)


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
    with pytest.raises(ConfigError, match=f"ap1: port {number} does not exist on {re.escape(target.title)}"):
        target.check(config)


def test_the_gate_of_a_tofino_is_a_virtual_queue_and_the_time_of_a_batch() -> None:
    meter, gate = Tofino().gate(5, 8_000_000, buffer=90, batch=10)
    assert isinstance(meter, fy.P4MeterEntry)
    assert (meter.index, meter.config) == (5, rate_meter(8_000_000, 90 * 1514))
    assert isinstance(gate, fy.P4TableEntry)
    assert isinstance(gate.action, fy.P4TableAction)
    # 10 frames of 1514 bytes at 1 byte/us, in units of 0.256 us.
    assert gate.action.args == {"batch": 10, "window": round(15140 / 0.256)}


def test_the_ack_filter_of_a_tofino_has_a_session_in_each_pipe() -> None:
    assert TARGETS["v1model"].ack_sessions([1, 2]) == []
    sessions = Tofino().ack_sessions([3, 130, 131])
    assert [(session.session_id, session.replicas) for session in sessions] == [(32, [68]), (33, [196])]


@pytest.mark.parametrize("prefix", ["", "pipe."])
def test_what_the_managers_want_is_known_to_a_tofino(prefix: str, tmp_path: Path) -> None:
    """The vendor's compiler puts the pipe's name, as TDI has it, before every object's; p4c's does not."""
    binary = tmp_path / "tofino.bin"
    binary.write_bytes(b"\0\1")
    p4info = tmp_path / "ap_tna.p4info.txtpb"
    p4info.write_text(TOFINO_P4INFO.read_text().replace('name: "Ap', f'name: "{prefix}Ap'))
    tofino = program(p4info, binary)
    config = AccessPointConfig.model_validate(access_point(features={"gate": {"2": {"buffer": 90, "batch": 16}}}))
    wanted = [*ports.entities(config, tofino.target), *classes.entities(config, tofino), *queue_meters.entities(config)]
    updates = EntrySet(tofino).updates(wanted)
    assert len(updates) == len(wanted)
    key = FlowKey(bytes(4), bytes(4), 6, 80, 8080, 1, 2)
    flow = tofino.flow_entry(key, (1, 1, 0, 0, 0), rate_meter(32_000, 3_028), 30).table_entry
    assert flow.meter_config.cir == 4_000
    assert flow.idle_timeout_ns == 0
    assert tofino.target.cpu_port == 320
