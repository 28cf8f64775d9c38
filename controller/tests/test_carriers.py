# SPDX-License-Identifier: Apache-2.0
"""Carriers of ports, of switches that say whatever they like."""

import pytest
from finsy import GNMIPath
from finsy.proto import gnmi, rpc_code

from accesspoint.checks.harness.waiting import until
from accesspoint.controller.agent.carriers import GET, carriers

from .test_agent import Two


def answer(*leaves: tuple[str, int | str], prefix: str = "") -> bytes:
    """Return an answer: paths behind a prefix, and values."""
    update = [
        gnmi.Update(
            path=GNMIPath(path).path,
            val=gnmi.TypedValue(uint_val=value) if isinstance(value, int) else gnmi.TypedValue(string_val=value),
        )
        for path, value in leaves
    ]
    notification = gnmi.Notification(prefix=GNMIPath(prefix).path, update=update)
    return gnmi.GetResponse(notification=[notification]).SerializeToString()


ONE, TWO = (f"/interfaces/interface[name={name}]/state" for name in ("s1", "s2"))


def test_each_port_has_its_carrier() -> None:
    leaves = (f"{ONE}/id", 1), (f"{TWO}/id", 7), (f"{TWO}/oper-status", "DOWN"), (f"{ONE}/oper-status", "UP")
    assert carriers(answer(*leaves)) == {1: True, 7: False}
    assert carriers(answer(("id", 1), ("oper-status", "DOWN"), prefix=ONE)) == {1: False}


@pytest.mark.parametrize(
    "said", [b"", b"\xff", answer((f"{ONE}/id", 1)), answer(("/interfaces/id", 1), ("/interfaces/oper-status", "DOWN"))]
)
def test_answer_that_describes_no_port_has_none(said: bytes) -> None:
    assert carriers(said) == {}


async def test_switch_that_refuses_is_asked_once_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accesspoint.controller.agent.access_point.CARRIER_SECONDS", 0.01)
    two = Two()
    asked: list[str] = []

    def fails(method: str) -> int:
        asked.append(method)
        return rpc_code.UNIMPLEMENTED if method == GET else 0

    two.switch.fails = fails
    async with two:
        before = two.of("bad")["ticks"]
        await until(lambda: two.of("bad")["ticks"] > before + 20)
        assert (two.of("bad")["state"], two.of("bad")["ports"][0]["link"]) == ("ready", "idle")
    assert asked.count(GET) == two.switch.sessions == 1
