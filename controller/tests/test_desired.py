# SPDX-License-Identifier: Apache-2.0
"""Desired and running: they differ only as long as the access point says so, and a session is not ended for a rate."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from finsy.proto import rpc_code

from accesspoint.checks.harness.waiting import until
from accesspoint.controller.agent import local_backend
from accesspoint.controller.agent.flow import Flow
from accesspoint.controller.agent.local_backend import Refused, is_live
from accesspoint.controller.agent.program import FlowKey
from accesspoint.controller.agent.transport import RpcError
from accesspoint.controller.api.service import Service
from accesspoint.controller.config import AccessPointConfig, Rule
from accesspoint.controller.state.database import connect

from .test_agent import Two
from .test_entries import config
from .test_rest import CHANGE

RULE = Rule(name="voice", dscp=46, class_id=3)


@pytest.fixture
async def two(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Two]:
    monkeypatch.setattr(local_backend, "RETRY_SECONDS", 0.05)
    async with Two() as made:
        yield made


def refuse(two: Two, code: int = rpc_code.RESOURCE_EXHAUSTED) -> None:
    two.switch.fails = lambda method: code if method == "Write" else 0


def accept(two: Two) -> None:
    two.switch.fails = lambda method: 0


def with_rule(of: AccessPointConfig, rule: Rule = RULE) -> AccessPointConfig:
    return of.model_copy(update={"rules": [rule]})


def with_capacity(of: AccessPointConfig, number: int, capacity_bps: int) -> AccessPointConfig:
    ports = [
        port.model_copy(update={"capacity_bps": capacity_bps}) if port.port == number else port for port in of.ports
    ]
    return of.model_copy(update={"ports": ports})


async def test_desired_configuration_that_is_refused_runs_as_soon_as_it_can(two: Two) -> None:
    ap = two.backend.access_points["bad"]
    refuse(two)
    await two.backend.bring(with_rule(two.configs[0]))
    seen = two.of("bad")
    assert "what is desired does not run yet" in seen["problem"] and "RESOURCE_EXHAUSTED" in seen["problem"]
    assert seen["differs_since"] is not None and not ap.config.rules
    await asyncio.sleep(0.2)
    assert two.of("bad")["differs_since"] == seen["differs_since"]
    accept(two)
    await until(lambda: two.of("bad")["differs_since"] is None)
    assert (ap.config.rules, two.of("bad")["problem"]) == ([RULE], None)
    assert two.backend.access_points["bad"] is ap


async def test_later_change_takes_the_place_of_one_that_waits(two: Two) -> None:
    refuse(two)
    await two.backend.bring(with_rule(two.configs[0]))
    later = with_rule(two.configs[0], RULE.model_copy(update={"name": "later"}))
    with pytest.raises(Refused):
        await two.backend.attempt(later)
    assert two.of("bad")["differs_since"] is not None
    accept(two)
    await two.backend.attempt(later)
    await asyncio.sleep(0.2)
    assert [rule.name for rule in two.backend.access_points["bad"].config.rules] == ["later"]
    assert two.of("bad")["differs_since"] is None


async def test_removed_access_point_is_not_tried_again(two: Two) -> None:
    refuse(two)
    await two.backend.bring(with_rule(two.configs[0]))
    await two.backend.remove("bad")
    await asyncio.sleep(0.2)
    with pytest.raises(Refused):
        two.of("bad")
    accept(two)


async def test_defaults_reach_all_although_one_switch_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_backend, "RETRY_SECONDS", 0.05)
    two = Two()
    service = Service(connect(f"sqlite:///{tmp_path / 'state.db'}"), two.backend)
    await service.load(two.configs)
    service.start()
    running = two.backend.access_points
    await until(lambda: all(two.of(name)["ticks"] > 1 for name in running))
    refuse(two)
    defaults = service.defaults.model_copy(update={"step_ms": 5.0})
    assert await service.change_defaults(CHANGE, lambda: defaults) == defaults
    assert running["well"].config.ncr.step_ms == 5.0 and two.of("well")["differs_since"] is None
    assert running["bad"].config.ncr.step_ms != 5.0 and two.of("bad")["differs_since"] is not None
    accept(two)
    await until(lambda: two.of("bad")["differs_since"] is None)
    assert running["bad"].config.ncr.step_ms == 5.0
    await two.backend.stop()
    await service.close()


async def test_rate_of_a_port_changes_within_the_session(two: Two) -> None:
    ap = two.backend.access_points["bad"]
    regulator, ticks, sessions = ap.loop.ports[2], ap.loop.ticks, ap.connection.sessions
    device = regulator.device
    two.switch.written.clear()
    await two.backend.attempt(with_capacity(two.configs[0], 2, 900_000))
    await until(lambda: ap.loop.ticks > ticks + 2)
    assert (regulator.capacity, regulator.estimate.capacity) == (112_500, 112_500)
    assert (ap.loop.ports[2], regulator.device, ap.connection.sessions) == (regulator, device, sessions)
    meters = [update.entity.meter_entry for update in two.switch.written if update.entity.HasField("meter_entry")]
    assert {meter.index.index >> 3 for meter in meters} >= {2}
    assert max(meter.config.cir for meter in meters if meter.index.index >> 3 == 2) <= 112_500 / 0.75


def test_changes_within_a_session_and_others() -> None:
    of = config()
    for name, value in (("flow_idle_timeout", 5.0), ("address", "127.0.0.1:1"), ("device_id", 7)):
        assert not is_live(of, of.model_copy(update={name: value}))
    assert is_live(of, with_capacity(of, 2, 900_000)) and is_live(of, with_rule(of))
    isolated = [port.model_copy(update={"isolated": not port.isolated}) for port in of.ports]
    assert not is_live(of, of.model_copy(update={"ports": isolated}))
    assert not is_live(of, of.model_copy(update={"ports": of.ports[:1]}))


async def test_flow_indices_are_free_again_when_a_session_ends_while_flows_age(two: Two) -> None:
    flows = two.backend.access_points["bad"].flows
    free, keys = flows.free, [FlowKey(b"\x0a\0\0\1", b"\x0a\0\0\2", 17, number, 5, 1, 2) for number in range(100)]

    def learned(key: FlowKey) -> Flow:
        taken = flows._indices.take()
        assert taken is not None
        made = flows._made(key, taken, flow_class=0)
        flows._keep(made)
        flows.by_index[made.index] = made
        return made

    for key in keys:
        learned(key)
    assert flows.free == free - 100
    refuse(two, rpc_code.UNAVAILABLE)
    with pytest.raises(RpcError):
        await flows.age(two.backend.access_points["bad"].connection, keys)
    assert (flows.free, flows.by_key, flows.by_index) == (free, {}, {})
    accept(two)


async def test_feedback_of_a_flow_that_is_not_regulated_is_none(two: Two) -> None:
    ap = two.backend.access_points["bad"]
    taken = ap.flows._indices.take()
    assert taken is not None
    flow = ap.flows._made(FlowKey(b"\x0a\0\0\1", b"\x0a\0\0\2", 17, 9, 5, 1, 2), taken, flow_class=0)
    ap.flows._keep(flow)
    ap.flows.by_index[flow.index] = flow
    ap.loop.add([flow], asyncio.get_running_loop().time())
    ap.loop.ports[2].feedback = 0.2

    async def total(rate: float) -> float:
        ap.loop.flows.rates.value[flow.index] = rate
        found: float = (await two.backend.flow("bad", flow.index))["feedback_total"]
        return found

    sparse = ap.loop.flows.sparse_rate[flow.index]
    assert await total(sparse / 2) == 0.0
    assert await total(sparse * 2) == pytest.approx(0.2)
