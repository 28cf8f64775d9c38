# SPDX-License-Identifier: Apache-2.0
"""A table of faults: each part of a fleet is killed or stopped before, during and after every kind of change.

Soon after all are back both replicas say that the desired revision is in effect, it has what was confirmed, and the
switch has it; and no packet was lost, unless the switch itself was away.
"""

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from accesspoint.checks.harness.switches import STATION, End
from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.fleet import Fleet, Part, missing
from accesspoint.topologies.processes import family
from accesspoint.topologies.requirements import ROOT

from .databases import answers, missing_postgresql, prepared
from .faults import Numbered
from .fleet_faults import LOOK

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing() or missing_postgresql()), reason=str(missing() or missing_postgresql())),
]

AP = "/access-points/ap1"
PARTS = {
    "switch": ["ap1-switch"],
    "agents": ["ap1-agent1", "ap1-agent2"],
    "replica": ["service1"],
    "engine": ["engine"],
    "database": ["database"],
}
AWAY_SECONDS = {"killed": 2.0, "stopped": 12.0}
"""Longer than a switch waits for a controller that does not answer: the backup takes over."""
WELL_SECONDS = 240.0


def ports(number: int) -> list[dict[str, Any]]:
    """Return ports with another rate; a third one comes, has another role (which needs a new session), and goes."""
    more = [{"port": 3, "role": "station" if number % 2 else "uplink", "capacity_bps": 1_000_000}]
    return [
        {"port": 1, "role": "station", "capacity_bps": 14_000_000},
        {"port": 2, "role": "uplink", "capacity_bps": 900_000 + number},
        *(more if number % 3 else []),
    ]


CHANGES: dict[str, Callable[[int], dict[str, Any]]] = {
    "rule": lambda number: {"rules": [{"name": "r", "class_id": 3, "dscp": number}]},
    "ports": lambda number: {"ports": ports(number)},
    "features": lambda number: {"features": {"ack_filter": bool(number % 2)}},
    "ncr": lambda number: {"ncr": {"queue_target_ms": number}},
    "class weights": lambda number: {"class_weights": {"downlink": number}},
    "sparse": lambda number: {"sparse": {"max_thinned": number / 100}},
    "shares": lambda number: {"queue_shares": {"control": number / 100}},
    "limits": lambda number: {"limits": {"flows_per_port": 1000 + number}},
    "station": lambda number: {"stations": {STATION.hex(":"): {"weight": number}}},
    "group": lambda number: {"groups": {"guests": {"limit_down_bps": 100_000 * number}}},
    "idle times": lambda number: {"flow_idle_timeout": 60 + number},
    "defaults": lambda number: {"ncr": {"step_ms": number / 10}},
}
"""Kinds of changes, as merge patches of the configuration; the last one is of the defaults."""


def has(found: Any, patch: Any) -> bool:
    """Return True for a configuration that a merge patch would not change."""
    if isinstance(patch, dict):
        return isinstance(found, dict) and all(has(found.get(name), value) for name, value in patch.items())
    if isinstance(patch, list):
        return isinstance(found, list) and len(found) == len(patch) and all(map(has, found, patch))
    return bool(found == patch)


class Table:
    """A fleet on PostgreSQL, and what its desired state may be."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._random = random.Random(1)
        self._number = 0
        self._may_be: dict[str, list[int]] = {}
        """Numbers of each kind of change: the one that was confirmed last, and those that were asked for since."""
        self._wires = {1: End(fleet.access_points[0].station, "eth0"), 2: End(fleet.access_points[0].server, "eth0")}
        self._aside = ThreadPoolExecutor(1)

    def close(self) -> None:
        self._aside.shutdown()
        for wire in self._wires.values():
            wire.close()

    def cell(self, what: str, how: str, moment: str) -> float:
        """Cause one fault; return after how many seconds all was well."""
        self._number = self._number % 50 + 1
        parts = [self.fleet.parts[name] for name in PARTS[what]]
        with Numbered(self._wires, per_second=50) as traffic:
            if moment == "before":
                self._change_all()
            changing = self._aside.submit(self._change_all) if moment == "during" else None
            time.sleep(self._random.uniform(0, 0.3))
            self._away(parts, how)
            if moment == "after":
                changing = self._aside.submit(self._change_all)
            time.sleep(AWAY_SECONDS[how])
            self._back(parts, how)
            back = time.monotonic()
            if changing is not None:
                changing.result()
            self._await_well()
            well = time.monotonic() - back
        if what != "switch":
            assert sorted(traffic.got) == [*range(traffic.sent)], f"of {traffic.sent} packets {len(traffic.got)} passed"
        return well

    def _away(self, parts: list[Part], how: str) -> None:
        for part in parts:
            if how == "killed":
                os.kill(part.pid, signal.SIGKILL)
            else:
                signal_all(part.pid, signal.SIGSTOP)

    def _back(self, parts: list[Part], how: str) -> None:
        for part in parts:
            if how == "stopped":
                signal_all(part.pid, signal.SIGCONT)
            else:
                assert part.process is not None
                part.process.wait()
                part.start()

    def _change_all(self) -> None:
        with ThreadPoolExecutor(len(CHANGES)) as pool:
            list(pool.map(self._change, CHANGES))

    def _change(self, kind: str) -> None:
        """Ask for one change at either replica; who does not hear that it was done cannot know."""
        number, may_be = self._number, self._may_be.setdefault(kind, [])
        body, path = CHANGES[kind](number), f"{AP}/config"
        if kind == "defaults":
            body, path = body["ncr"], "/ncr-defaults"
        may_be.append(number)
        replica = [*CHANGES].index(kind) % 2
        with contextlib.suppress(httpx.HTTPError):
            headers = {"content-type": "application/merge-patch+json"}
            answer = self.fleet.ask("PATCH", path, replica, content=json.dumps(body), headers=headers)
            assert answer.status_code in (200, 409, 502, 503), f"{kind}: {answer.text}"
            if answer.status_code == 200:
                del may_be[:-1]

    def _await_well(self) -> None:
        deadline = time.monotonic() + WELL_SECONDS
        while problem := self._problem():
            assert time.monotonic() < deadline, problem
            time.sleep(0.2)

    def _problem(self) -> str:
        """Return why not all is well, or nothing."""
        self.fleet.look()
        seen = [self.fleet.get(AP, replica) for replica in (0, 1)]
        for number, one in enumerate(seen):
            if one is None or one["state"] != "ready" or one["differs_since"] is not None:
                return f"replica {number} says {one}"
        if seen[0]["revision"] != seen[1]["revision"]:
            return f"the replicas desire {[one['revision'] for one in seen]}"
        config = self.fleet.get(f"{AP}/config")
        if config is None or config != self.fleet.get(f"{AP}/config", 1):
            return "the replicas say different things"
        for kind, may_be in self._may_be.items():
            if not any(has(config, CHANGES[kind](number)) for number in may_be):
                return f"{kind} is none of {may_be}: {config}"
        path = self.fleet.directory / "look.json"
        path.write_text(json.dumps(config))
        look = [sys.executable, "-m", "accesspoint.controller.tests.fleet_faults", LOOK, str(path)]
        return "; ".join(json.loads(self.fleet.access_points[0].within.run(*look, cwd=ROOT)))


def signal_all(process: int, number: signal.Signals) -> None:
    """Send a signal to a process and its children, which do the work of a database."""
    for each in family(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    with tempfile.TemporaryDirectory(prefix="pg") as directory, contextlib.ExitStack() as stack:
        Path(directory).chmod(0o755)
        at, logs = Path(directory) / "server", tmp_path_factory.mktemp("fleet")
        command, url = prepared(at)
        database = Part("database", command, logs / "database.log")
        fleet = Fleet(logs, agents=1, backups=1, traffic=False, database=url)
        fleet.parts["database"] = database
        database.start()
        assert eventually(lambda: answers(at)), database.log.read_text()
        made = Table(stack.enter_context(fleet))
        stack.callback(made.close)
        yield made


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize("how", AWAY_SECONDS)
@pytest.mark.parametrize("what", PARTS)
def test_changes_are_in_effect_soon_after_a_fault(table: Table, what: str, how: str, moment: str) -> None:
    print(f"{what} {how} {moment} the changes: all well after {table.cell(what, how, moment):.1f} s")
