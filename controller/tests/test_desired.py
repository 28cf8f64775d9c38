# SPDX-License-Identifier: Apache-2.0
"""Desired and running: they differ only as long as the access point says so, and a session is not ended for a rate."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest
from finsy.proto import p4r, rpc_code

from accesspoint.checks.harness.waiting import until
from accesspoint.controller.agent import reconciler
from accesspoint.controller.agent.access_point import is_live
from accesspoint.controller.agent.connection import State
from accesspoint.controller.agent.flow import Flow
from accesspoint.controller.agent.local_backend import LocalBackend
from accesspoint.controller.agent.program import DIGEST_SOURCE, ECT0, FlowKey
from accesspoint.controller.agent.reconciler import Refused, Standing
from accesspoint.controller.agent.transport import RpcError
from accesspoint.controller.api.service import Service
from accesspoint.controller.config import AccessPointConfig, Day, Period, Rule, Station
from accesspoint.controller.state.database import connect
from accesspoint.controller.state.store import document

from .application import CHANGE
from .test_agent import IPV4, MEMBERS, Two
from .test_entries import config

RULE = Rule(name="voice", dscp=46, class_id=3)


@pytest.fixture
async def two(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Two]:
    monkeypatch.setattr(reconciler, "MAX_PAUSE", 0.1)
    async with Two() as made:
        await until(lambda: made.backend.standing("bad") == Standing(1, 1))
        yield made


def refuse(two: Two, code: int = rpc_code.RESOURCE_EXHAUSTED) -> None:
    two.switch.fails = lambda method: code if method == "Write" else 0


def accept(two: Two) -> None:
    two.switch.fails = lambda method: 0


def is_rule(update: p4r.Update, two: Two, dscp: int | None = None) -> bool:
    """Return True for an entry of one of the operator's rules."""
    entry = update.entity.table_entry
    if entry.table_id != two.program.schema.tables["classify"].id or entry.priority != RULE.priority:
        return False
    return dscp is None or bytes([dscp]) in [field.ternary.value for field in entry.match]


def with_rule(of: AccessPointConfig, rule: Rule = RULE) -> AccessPointConfig:
    return of.model_copy(update={"rules": [rule]})


def with_capacity(of: AccessPointConfig, number: int, capacity_bps: int) -> AccessPointConfig:
    ports = [
        port.model_copy(update={"capacity_bps": capacity_bps}) if port.port == number else port for port in of.ports
    ]
    return of.model_copy(update={"ports": ports})


async def test_desired_revision_that_is_refused_is_in_effect_as_soon_as_it_can(two: Two) -> None:
    ap = two.backend.access_points["bad"]
    refuse(two)
    two.backend.desire("bad", 2, with_rule(two.configs[0]))
    await until(lambda: two.backend.standing("bad").reason)
    first = two.backend.standing("bad")
    assert (first.revision, first.in_effect, ap.config.rules) == (2, 1, [])
    assert "RESOURCE_EXHAUSTED" in str(first.reason) and two.of("bad")["problem"] == first.reason
    await asyncio.sleep(0.2)
    assert two.backend.standing("bad") == first
    accept(two)
    await until(lambda: two.backend.standing("bad") == Standing(2, 2))
    assert (ap.config.rules, two.of("bad")["problem"]) == ([RULE], None)
    assert two.backend.access_points["bad"] is ap


async def test_later_revision_takes_the_place_of_one_that_waits(two: Two) -> None:
    refuse(two)
    two.backend.desire("bad", 2, with_rule(two.configs[0]))
    await until(lambda: two.backend.standing("bad").reason)
    since = two.backend.standing("bad").since
    two.backend.desire("bad", 3, with_rule(two.configs[0], RULE.model_copy(update={"name": "later"})))
    assert two.backend.standing("bad").since == since
    accept(two)
    await until(lambda: two.backend.standing("bad") == Standing(3, 3))
    assert [rule.name for rule in two.backend.access_points["bad"].config.rules] == ["later"]


async def test_removed_access_point_is_not_tried_again(two: Two) -> None:
    refuse(two)
    two.backend.desire("bad", 2, with_rule(two.configs[0]))
    await until(lambda: two.backend.standing("bad").reason)
    two.backend.desire("bad", 0, None)
    await until(lambda: "bad" not in two.backend.access_points)
    await asyncio.sleep(0.2)
    with pytest.raises(Refused):
        two.of("bad")
    accept(two)


async def test_removed_access_point_that_is_desired_again_runs(two: Two) -> None:
    two.backend.desire("bad", 0, None)
    await asyncio.sleep(0)
    two.backend.desire("bad", 3, with_rule(two.configs[0]))
    await until(lambda: two.backend.standing("bad") == Standing(3, 3))
    assert two.backend.access_points["bad"].config.rules == [RULE]


async def test_two_parts_that_are_valid_together_change_together(two: Two) -> None:
    """Without `ncr` there are no limits: of a change of both, neither comes first."""
    ap, limited = two.backend.access_points["bad"], {"02:00:00:00:00:01": Station(limit_down_bps=1_000_000)}
    two.backend.desire("bad", 2, two.configs[0].model_copy(update={"stations": limited}))
    await until(lambda: two.backend.standing("bad") == Standing(2, 2))
    off = two.configs[0].features.model_copy(update={"ncr": False})
    two.backend.desire("bad", 3, two.configs[0].model_copy(update={"features": off}))
    await until(lambda: two.backend.standing("bad") == Standing(3, 3))
    assert (ap.config.features.ncr, ap.config.stations) == (False, {})


async def test_write_that_was_done_in_part_is_completed(two: Two) -> None:
    """Keep account of the accepted part, so that the next try asks for the rest only."""
    refused = RULE.model_copy(update={"name": "refused", "dscp": 10})
    two.switch.refuses = lambda update: is_rule(update, two, 10)
    two.backend.desire("bad", 2, two.configs[0].model_copy(update={"rules": [RULE, refused]}))
    await until(lambda: two.backend.standing("bad").reason)
    assert [entry for entry in two.switch.entries if is_rule(entry, two, 46)] == []
    two.switch.refuses = lambda update: False
    await until(lambda: two.backend.standing("bad") == Standing(2, 2))
    assert len([entry for entry in two.switch.entries if is_rule(entry, two)]) == 2


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Two, Service]]:
    """Two access points and a service over them, all in effect."""
    monkeypatch.setattr(reconciler, "MAX_PAUSE", 0.1)
    two = Two()
    service = Service(connect(f"sqlite:///{tmp_path / 'state.db'}"), two.backend)
    await service.load(two.configs)
    service.start()
    assert await service.in_effect(["bad", "well"], 60)
    yield two, service
    await two.backend.stop()
    await service.close()


async def test_defaults_reach_all_although_one_switch_refuses(served: tuple[Two, Service]) -> None:
    two, service = served
    running = two.backend.access_points
    refuse(two)
    defaults = service.defaults.model_copy(update={"step_ms": 5.0})
    assert await service.change_defaults(CHANGE, lambda: defaults) == defaults
    await until(lambda: service.standing("well").since is None and service.standing("bad").reason)
    assert running["well"].config.ncr.step_ms == 5.0 and service.standing("well").since is None
    assert running["bad"].config.ncr.step_ms != 5.0 and service.standing("bad").since is not None
    assert not await service.in_effect(["bad", "well"], 0.1)
    accept(two)
    assert await service.in_effect(["bad", "well"], 60)
    assert running["bad"].config.ncr.step_ms == 5.0


async def test_reload_that_a_switch_refuses_is_in_effect_later(served: tuple[Two, Service]) -> None:
    two, service = served
    refuse(two)
    await service.reload([with_rule(two.configs[0]), two.configs[1]])
    await until(lambda: service.standing("bad").reason)
    assert service.config("bad").rules == [RULE] and service.standing("well").since is None
    accept(two)
    assert await service.in_effect(["bad"], 60)
    assert two.backend.access_points["bad"].config.rules == [RULE]


async def test_start_with_a_revision_that_the_switch_refuses_runs_the_one_before(
    served: tuple[Two, Service], tmp_path: Path
) -> None:
    """Also a session that begins anew while it is refused; without one before, nothing is said to run."""
    two, first = served
    keeping = asyncio.create_task(first.keep_in_effect())
    await first.change("bad", CHANGE, lambda: document(two.configs[0]) | {"flow_idle_timeout": 9.0})
    assert await first.in_effect(["bad"], 60)
    good = first.standing("bad").revision
    await until(lambda: first._kept_in_effect.get("bad") == good)
    two.switch.refuses = lambda update: is_rule(update, two)
    changed = document(with_rule(two.configs[0])) | {"flow_idle_timeout": 9.0}
    await first.change("bad", CHANGE, lambda: changed)
    await until(lambda: first.standing("bad").reason)
    keeping.cancel()
    await two.backend.stop()
    again = LocalBackend(lambda name: None, two._connect)
    second = Service(connect(f"sqlite:///{tmp_path / 'state.db'}"), again)
    await second.load(None)
    second.start()
    await until(lambda: "refuses" in str(second.standing("bad").reason))
    standing, ap = second.standing("bad"), again.access_points["bad"]
    assert (standing.in_effect, standing.since is None) == (good, False) and standing.revision > good
    assert (ap.connection.state, ap.config.rules, ap.config.flow_idle_timeout) == (State.READY, [], 9.0)
    two.switch.refuses = lambda update: False
    assert await second.in_effect(["bad"], 60)
    assert ap.config.rules == [RULE]
    await again.stop()
    await second.close()


async def test_session_that_begins_with_a_refused_revision_is_reported() -> None:
    two = Two()
    refuse(two)
    two.backend.desire("bad", 7, with_rule(two.configs[0]))
    two.backend.start()
    await until(lambda: "RESOURCE_EXHAUSTED" in str(two.backend.standing("bad").reason))
    assert two.backend.standing("bad").in_effect is None
    accept(two)
    await until(lambda: two.backend.standing("bad") == Standing(7, 7))
    await two.backend.stop()


async def test_revision_that_cannot_be_used_here_is_reported(served: tuple[Two, Service]) -> None:
    """Another controller, of a machine with other files, has stored it: the one before stays in effect."""
    two, service = served
    before = service.standing("bad")
    other = {"p4info": "elsewhere.p4info.txtpb", "device_config": "elsewhere.json"}
    there = AccessPointConfig.model_validate({**document(two.configs[0]), "pipeline": other})
    revision = service.store.put(there, before.revision, CHANGE)
    await service._follow_all()
    standing = service.standing("bad")
    assert (standing.revision, standing.in_effect, standing.since is None) == (revision, before.revision, False)
    assert "elsewhere.p4info.txtpb: no such file" in str(standing.reason)
    await service._follow_all()
    assert service.standing("bad") == standing
    whole = document(with_rule(two.configs[0]))
    await service.change("bad", CHANGE, lambda: whole, whatever=True)
    assert await service.in_effect(["bad"], 60)
    assert service.standing("bad").since is None


async def test_rate_of_a_port_changes_within_the_session(two: Two) -> None:
    ap = two.backend.access_points["bad"]
    regulator, ticks, sessions = ap.loop.ports[2], ap.loop.ticks, ap.connection.sessions
    device = regulator.device
    two.switch.written.clear()
    two.backend.desire("bad", 2, with_capacity(two.configs[0], 2, 900_000))
    await until(lambda: two.backend.standing("bad") == Standing(2, 2))
    await until(lambda: ap.loop.ticks > ticks + 2)
    assert (regulator.capacity, regulator.estimate.capacity) == (112_500, 112_500)
    assert (ap.loop.ports[2], regulator.device, ap.connection.sessions) == (regulator, device, sessions)
    meters = [update.entity.meter_entry for update in two.switch.written if update.entity.HasField("meter_entry")]
    assert {meter.index.index >> 3 for meter in meters} >= {2}
    assert max(meter.config.cir for meter in meters if meter.index.index >> 3 == 2) <= 112_500 / 0.5


def test_changes_within_a_session_and_others() -> None:
    of = config()
    for name, value in (("enabled", False), ("address", "127.0.0.1:1"), ("device_id", 7)):
        assert not is_live(of, of.model_copy(update={name: value}))
    assert is_live(of, with_capacity(of, 2, 900_000)) and is_live(of, with_rule(of))
    assert is_live(of, of.model_copy(update={"flow_idle_timeout": 5.0}))
    for fields, live in (({"isolated": False}, True), ({"role": "uplink"}, False)):
        changed = [of.ports[0].model_copy(update=fields), *of.ports[1:]]
        assert is_live(of, of.model_copy(update={"ports": changed})) is live
    assert is_live(of, of.model_copy(update={"ports": of.ports[:1]})) and is_live(of, with_port(of))


def with_port(of: AccessPointConfig) -> AccessPointConfig:
    return of.model_copy(update={"ports": [*of.ports, of.ports[0].model_copy(update={"port": 3})]})


async def learn(two: Two) -> None:
    """Let the switch report a station behind port 3, and a flow that it sends."""
    two.tell(DIGEST_SOURCE, b"\x02\0\0\0\0\x01", b"\3", b"\0", b"\0")
    two.tell(IPV4, *MEMBERS[:5], b"\3", b"\2", *MEMBERS[7:])
    ap = two.backend.access_points["bad"]
    await until(lambda: ap.stations.by_number and ap.flows.by_index)


async def test_ports_come_and_go_within_the_session(two: Two) -> None:
    ap = two.backend.access_points["bad"]
    others, sessions = dict(ap.loop.ports), ap.connection.sessions
    two.backend.desire("bad", 2, with_port(two.configs[0]))
    await until(lambda: two.backend.standing("bad") == Standing(2, 2))
    ticks = ap.loop.ticks
    await until(lambda: ap.loop.ticks > ticks + 2)
    assert [port["port"] for port in two.of("bad")["ports"]] == [1, 2, 3]
    await learn(two)
    await ap.loop._write([ap.loop._entry((3, None, ECT0), 500)])
    of_third = len([entry for entry in two.switch.entries if is_of_port(entry, 3)])
    two.backend.desire("bad", 3, two.configs[0])
    await until(lambda: two.backend.standing("bad") == Standing(3, 3))
    await until(lambda: not [entry for entry in two.switch.entries if is_of_port(entry, 3)])
    assert of_third >= 4, "roles, a station, a flow, feedback"
    assert ([port["port"] for port in two.of("bad")["ports"]], ap.stations.by_number, ap.flows.by_index) == (
        [1, 2],
        {},
        {},
    )
    assert (two.backend.access_points["bad"], ap.connection.sessions, ap.loop.ports) == (ap, sessions, others)
    assert {number: id(each) for number, each in ap.loop.ports.items()} == {n: id(each) for n, each in others.items()}


def is_of_port(update: p4r.Update, number: int) -> bool:
    """Return True for an entry with this port in its key or action."""
    entry = update.entity.table_entry
    values = [field.exact.value for field in entry.match] + [each.value for each in entry.action.action.params[:1]]
    return bytes([number]) in values


async def test_group_traffic_of_a_removed_port_is_no_queue_of_others(two: Two) -> None:
    loop = two.backend.access_points["bad"].loop
    two.backend.desire("bad", 2, with_port(two.configs[0]))
    await until(lambda: two.backend.standing("bad") == Standing(2, 2) and not loop._added)
    for number, packets in ((1, 5), (2, 7), (3, 11)):
        loop.ports[number].volumes.group_arrived_packets[0] = packets
    loop._count_group()
    assert loop.ports[2].volumes.others_packets == 16
    two.backend.desire("bad", 3, two.configs[0])
    await until(lambda: two.backend.standing("bad") == Standing(3, 3))
    loop._count_group()
    assert loop.ports[2].volumes.others_packets == 16
    # A port that comes back has counted before; it is no burst of now.
    two.backend.desire("bad", 4, with_port(two.configs[0]))
    await until(lambda: two.backend.standing("bad") == Standing(4, 4) and not loop._added)
    loop._added = {3}
    loop.ports[3].volumes.group_arrived_packets[0] = 20
    loop._begin_added()
    loop._count_group()
    assert loop.ports[2].volumes.others_packets == 16


async def test_idle_timeouts_change_within_the_session(two: Two) -> None:
    ap, sessions = two.backend.access_points["bad"], two.switch.sessions
    two.backend.desire("bad", 2, with_port(two.configs[0]))
    await until(lambda: two.backend.standing("bad") == Standing(2, 2))
    await learn(two)
    timeouts = {"flow_idle_timeout": 5.0, "station_idle_timeout": 60.0}
    two.backend.desire("bad", 3, with_port(two.configs[0]).model_copy(update=timeouts))

    def of_table(name: str) -> int:
        entries = [update.entity.table_entry for update in two.switch.entries]
        (found,) = [entry for entry in entries if entry.table_id == two.program.schema.tables[name].id]
        return int(found.idle_timeout_ns)

    await until(lambda: (of_table("flows_ipv4"), of_table("learn")) == (5_000_000_000, 60_000_000_000))
    assert (two.backend.access_points["bad"], two.switch.sessions) == (ap, sessions)


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


async def test_rate_follows_its_schedule_within_the_session(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [datetime(2026, 3, 2, 17, 59)]
    monkeypatch.setattr(reconciler, "now", lambda: clock[0])
    monkeypatch.setattr(reconciler, "LOOK_SECONDS", 0.05)
    ap = two.backend.access_points["bad"]
    evening = Period(start="18:00", end="23:00", capacity_bps=400_000)
    ports = [
        port.model_copy(update={"schedule": [evening]}) if port.port == 2 else port for port in two.configs[0].ports
    ]
    usual = ap.loop.ports[2].capacity
    two.backend.desire("bad", 2, two.configs[0].model_copy(update={"ports": ports}))
    await until(lambda: two.backend.standing("bad") == Standing(2, 2))
    assert ap.loop.ports[2].capacity == usual
    for hour, expected in ((18, 50_000.0), (23, usual)):
        clock[0] = datetime(2026, 3, 2, hour, 0)
        await until(lambda expected=expected: ap.loop.ports[2].capacity == expected)  # type: ignore[misc]
    assert two.backend.access_points["bad"] is ap and two.backend.standing("bad") == Standing(2, 2)


@pytest.mark.parametrize(
    ("start", "end", "days", "when", "holds"),
    [
        ("18:00", "23:00", None, datetime(2026, 3, 2, 18, 0), True),
        ("18:00", "23:00", None, datetime(2026, 3, 2, 23, 0), False),
        # Over midnight: a Monday's night ends on Tuesday.
        ("22:00", "06:00", ["mon"], datetime(2026, 3, 2, 22, 30), True),
        ("22:00", "06:00", ["mon"], datetime(2026, 3, 3, 5, 59), True),
        ("22:00", "06:00", ["mon"], datetime(2026, 3, 2, 5, 59), False),
        ("00:00", "00:00", ["sun"], datetime(2026, 3, 1, 12, 0), True),
    ],
)
def test_period_holds_from_its_start_to_its_end(
    start: str, end: str, days: list[Day] | None, when: datetime, holds: bool
) -> None:
    assert Period(start=start, end=end, days=days, capacity_bps="auto").holds(when) is holds
