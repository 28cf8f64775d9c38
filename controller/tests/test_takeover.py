# SPDX-License-Identifier: Apache-2.0
"""Controllers come and go while packets pass: restart, failover, a primary that is cut off, faults at random."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.harness.switches import SwitchLab, wait_for

from .faults import Numbered, Proxy, survive, unlike

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(1800)]

FAILOVER_SECONDS = 5.0
"""A loaded machine is slow to start anything; the benchmark says how long it takes on a quiet one."""

FLOWS = 1000


def flows(controller: Any) -> dict[tuple[str, int], Any]:
    return {(entry["src_addr"], entry["src_port"]): entry for entry in controller.get("flows")}


def indices(found: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    """Return the indices of an answer's flows."""
    return {(flow["src_addr"], flow["src_port"]): flow["flow_index"] for flow in found}


def test_a_restart_loses_no_packet(any_lab: SwitchLab) -> None:
    first = any_lab.controller()
    any_lab.introduce(first)
    with Numbered(any_lab.wires) as traffic:
        wait_for(lambda: sum(entry["packets"] > 5 for entry in flows(first).values()) >= 4)
        before, arrived = flows(first), first.counter("arrived", 2)
        first.process.kill()
        first.process.wait()
        second = any_lab.controller()
        wait_for(lambda: sum(entry["packets"] > 5 for entry in flows(second).values()) >= 4)
        after = flows(second)
        assert second.counter("arrived", 2) > arrived
        assert second.get()["stations"] >= 2
    assert len(traffic.got) == traffic.sent
    assert traffic.got == sorted(traffic.got)
    for key, flow in before.items():
        # The entry stayed: it has its index and goes on counting.
        assert after[key]["flow_index"] == flow["flow_index"]
        assert after[key]["packets"] > flow["packets"]
        assert after[key]["since"] == flow["since"]
    assert unlike(any_lab) == []


def test_a_changed_configuration_is_all_that_changes(link_lab: SwitchLab) -> None:
    link_lab.start_switch()
    first = link_lab.controller()
    link_lab.introduce(first)
    changed: dict[str, Any] = {"features": {"sparse": False}, "rules": [{"name": "mine", "dscp": 46, "class_id": 5}]}
    with Numbered(link_lab.wires) as traffic:
        wait_for(lambda: len(flows(first)) >= 4)
        first.process.kill()
        first.process.wait()
        second = link_lab.controller(**changed)
        assert {entry["class_id"] for entry in second.get("classes")} == {0, 1, 2, 5}
    assert len(traffic.got) == traffic.sent
    assert unlike(link_lab, **changed) == []
    assert unlike(link_lab) != []


def test_the_backup_takes_over(any_lab: SwitchLab) -> None:
    primary = any_lab.controller(election_id=2)
    any_lab.introduce(primary)
    backup = any_lab.controller(election_id=1, ready=False)
    wait_for(lambda: backup.get()["state"] == "backup")
    with Numbered(any_lab.wires, FLOWS, per_second=FLOWS / 4) as traffic:
        wait_for(lambda: primary.get()["flows"] >= FLOWS)
        before = indices(primary.get("flows?limit=500"))
        start = time.monotonic()
        primary.process.kill()
        wait_for(lambda: backup.get()["loop"]["ticks"] > 2)
        took = time.monotonic() - start
        known = backup.get()["flows"]
        after = indices(backup.get("flows?limit=500"))
    primary.process.wait()
    assert took < FAILOVER_SECONDS
    assert known >= FLOWS
    assert before == {key: after.get(key) for key in before}
    assert len(traffic.got) == traffic.sent
    assert unlike(any_lab) == []
    # Who comes back with the old id does not push the new primary aside.
    again = any_lab.controller(election_id=2, ready=False)
    assert wait_for(lambda: (answer := again.get())["state"] == "backup" and answer)["problem"]
    assert backup.get()["state"] == "ready"


def test_a_backup_notices_that_its_switch_is_gone(link_lab: SwitchLab) -> None:
    """B2: a switch without power does not even end its connections."""
    link_lab.start_switch()
    primary = link_lab.controller(election_id=2)
    proxy = Proxy(link_lab.grpc)
    try:
        backup = link_lab.controller(election_id=1, ready=False, address=f"127.0.0.1:{proxy.port}")
        wait_for(lambda: backup.get()["state"] == "backup")
        proxy.cut()
        gone = wait_for(lambda: (seen := backup.get())["state"] == "connecting" and seen)
        assert "does not answer" in gone["problem"]
        primary.process.kill()
        proxy.release()
        wait_for(lambda: backup.get()["state"] == "ready")
    finally:
        proxy.close()


def test_a_primary_that_was_cut_off_changes_nothing(link_lab: SwitchLab) -> None:
    """Only its stream is cut: its loop goes on writing, on a connection of its own."""
    link_lab.start_switch("2:rate=1mbit,limit=100")
    proxy = Proxy(link_lab.grpc)
    try:
        old = link_lab.controller(election_id=2, address=f"127.0.0.1:{proxy.port}")
        link_lab.introduce(old)
        new = link_lab.controller(election_id=1, ready=False)
        wait_for(lambda: new.get()["state"] == "backup")
        proxy.cut(0)
        new.wait_ready()
        # The switch refuses what the old one's loop writes, and with that it knows.
        wait_for(lambda: old.get()["state"] != "ready")
        assert old.send("PATCH", "features", {"sparse": False}, wait=0).status_code == 200
        proxy.release()
        wait_for(lambda: old.get()["state"] == "backup")
        assert new.get()["state"] == "ready"
        assert unlike(link_lab) == []
    finally:
        proxy.close()


def test_who_was_not_heard_is_learned_later(link_lab: SwitchLab) -> None:
    """A digest of a station is lost with the session; the next packet causes another one."""
    link_lab.start_switch()
    proxy = Proxy(link_lab.grpc)
    try:
        controller = link_lab.controller(address=f"127.0.0.1:{proxy.port}")
        proxy.cut()
        timer = threading.Timer(4.0, proxy.release)
        timer.start()
        link_lab.introduce(controller)
        timer.join()
        assert unlike(link_lab) == []
    finally:
        proxy.close()


def test_a_trial_that_cannot_begin_ends(link_lab: SwitchLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is left would keep the command from ending, for good."""
    before = threading.enumerate()
    monkeypatch.setattr(SwitchLab, "introduce", lambda *_: pytest.fail("nobody is learned"))
    with pytest.raises(pytest.fail.Exception, match="nobody is learned"):
        survive(link_lab, count=1, seed=11)
    assert threading.enumerate() == before


def test_faults_at_random_are_survived(link_lab: SwitchLab, tmp_path: Path) -> None:
    assert survive(link_lab, count=None, seed=11) >= 8
