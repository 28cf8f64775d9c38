# SPDX-License-Identifier: Apache-2.0
"""Faults of a fleet, with real processes: `python -m accesspoint.controller.tests.fleet_faults --count 100`.

Rules are changed over one of two replicas while a replica, an agent, the engine or a switch is killed or stopped, or an
agent is cut off from the engine. After each fault both replicas must say the same, the last change that was confirmed
must be there, and the switch must hold what is wanted, with no flow index given twice.

With `--outage 60` the engine is away for so many seconds in place of that.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from accesspoint.controller.config import AccessPointConfig, Ncr
from accesspoint.controller.samples import FLUSH_SECONDS
from accesspoint.topologies.fleet import Fleet, Part, missing
from accesspoint.topologies.requirements import ROOT, LabError

from .faults import differences, say

RULES = "/access-points/ap1/rules"
LOOK = "--look"
WELL_SECONDS = 120.0


class Trial:
    """A fleet; `fault` breaks something and waits until all is well."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._random = random.Random(seed)
        self._asked: list[str] = []
        self._may_be: list[int] = [0]
        """The DSCP that the one rule may have: what was confirmed last, and what was asked for since."""
        self._aside = ThreadPoolExecutor(1)
        self._bag: list[str] = []
        parts = fleet.parts
        replicas = ["service1", "service2"]
        agents = [name for name in parts if name.startswith("ap1-agent")]
        self.kinds: dict[str, Callable[[], None]] = {
            "replica killed": lambda: self._kill(self._random.choice(replicas)),
            "replica stopped": lambda: self._stop(self._random.choice(replicas)),
            "agent killed": lambda: self._kill(self._random.choice(agents)),
            "agent stopped": lambda: self._stop(self._random.choice(agents)),
            "all agents killed": lambda: self._kill(*agents),
            "engine killed": lambda: self._kill("engine"),
            "engine stopped": lambda: self._stop("engine"),
            "agents cut off": self._cut,
            "switch killed": lambda: self._kill("ap1-switch"),
        }

    def close(self) -> None:
        """The rest is the fleet's."""
        self._aside.shutdown()

    def _signal(self, part: Part, number: signal.Signals) -> None:
        try:
            os.kill(part.pid, number)
        except ProcessLookupError:
            return

    def _kill(self, *names: str) -> None:
        for name in names:
            self._signal(self._fleet.parts[name], signal.SIGKILL)

    def _stop(self, name: str) -> None:
        part = self._fleet.parts[name]
        self._signal(part, signal.SIGSTOP)
        time.sleep(self._random.uniform(0.1, 6.0))
        self._signal(part, signal.SIGCONT)

    def _cut(self) -> None:
        relay = self._fleet.access_points[0].relay
        relay.cut()
        time.sleep(self._random.uniform(0.1, 6.0))
        relay.mend()

    def _change(self) -> None:
        """Ask for another rule; who does not hear that it was done cannot know."""
        dscp, replica = self._random.randrange(1, 64), self._random.randrange(2)
        body = {"name": "r", "class_id": 3, "dscp": dscp}
        try:
            answer = self._fleet.ask("PUT", f"{RULES}/r", replica, json=body)
        except httpx.HTTPError as error:
            self._may_be.append(dscp)
            self._asked.append(f"{dscp}: {error!r}")
            return
        self._asked.append(f"{dscp}: {answer.status_code} {answer.text}")
        assert answer.status_code in (200, 409, 502, 503), answer.text
        if answer.status_code == 200:
            self._may_be = [dscp]

    def fault(self, kinds: Sequence[str] = ()) -> str:
        """Cause one fault at a random moment, each of the kinds (all: `()`) in its turn; returns the kind. Raises
        AssertionError."""
        if not self._bag:
            self._bag = list(kinds or self.kinds)
            self._random.shuffle(self._bag)
        kind = self._bag.pop()
        changing = self._aside.submit(self._change)
        time.sleep(self._random.uniform(0.0, 0.1))
        self.kinds[kind]()
        changing.result()
        # A change is possible again, and only when it is confirmed all can be compared.
        deadline = time.monotonic() + WELL_SECONDS
        while True:
            self._fleet.look()
            try:
                found = wrong(self._fleet, self._may_be)
            except AssertionError as error:
                raise AssertionError(f"{kind}: {error}; asked: {self._asked}") from None
            if not found:
                self._asked.clear()
                return kind
            assert time.monotonic() < deadline, f"{kind}: {found}; asked: {self._asked}"
            time.sleep(0.3)


def wrong(fleet: Fleet, may_be: Sequence[int]) -> str:
    """Return what is wrong; empty when all is well.

    Args:
        may_be: the DSCP that the one rule may have. Raises AssertionError for another one.
    """
    names = [ap.name for ap in fleet.access_points]
    for replica in (0, 1):
        states = fleet.states(replica)
        if states != dict.fromkeys(names, "ready"):
            return f"replica {replica + 1} says {states}"
    said = [fleet.get("/access-points/ap1/config", replica) for replica in (0, 1)]
    if said[0] is None or said[0] != said[1]:
        return "the replicas say different things"
    rules = [rule["dscp"] for rule in said[0]["rules"]] or [0]
    assert rules[0] in may_be, f"{rules} is none of {may_be}"
    path = fleet.directory / "look.json"
    path.write_text(json.dumps(said[0]))
    command = [sys.executable, "-m", "accesspoint.controller.tests.fleet_faults", LOOK, str(path)]
    found: list[str] = json.loads(fleet.access_points[0].within.run(*command, cwd=ROOT))
    return "; ".join(found)


def outage(fleet: Fleet, seconds: float) -> list[str]:
    """Leave a fleet without its engine for so long; returns what was seen, in lines. Raises AssertionError."""
    names = [ap.name for ap in fleet.access_points]

    def seen() -> dict[str, Any]:
        return {name: fleet.get(f"/access-points/{name}") for name in names}

    engine = fleet.parts.pop("engine")
    before, began = seen(), time.time()
    os.kill(engine.pid, signal.SIGKILL)
    assert engine.process is not None
    engine.process.wait()
    time.sleep(seconds / 2)
    answer = fleet.ask("PUT", f"{RULES}/r", json={"name": "r", "class_id": 3, "dscp": 46})
    assert answer.status_code == 200, f"nothing can be changed meanwhile: {answer.text}"
    problem = fleet.get("/access-points/ap1")["problem"]
    time.sleep(max(0.0, began + seconds - time.time()))
    engine.start()
    fleet.parts["engine"] = engine
    ended = time.time()
    fleet.looking(
        lambda: all(fleet.states(replica) == dict.fromkeys(names, "ready") for replica in (0, 1)), "all ready"
    )
    back = time.time() - ended
    lines = [f"meanwhile: {problem}", f"both replicas show all as ready {back:.1f} s after the engine's start"]
    after, now = seen(), time.time()
    for name in names:
        ticks, missed = (after[name]["loop"][what] - before[name]["loop"][what] for what in ("ticks", "missed"))
        assert after[name]["sessions"] == before[name]["sessions"], f"{name}: another session began"
        assert ticks > seconds / Ncr().device_interval / 2, f"{name}: {ticks} ticks in {now - began:.1f} s"
        lines.append(f"{name}: {ticks} ticks in {now - began:.1f} s, {missed} left out")
    fleet.looking(lambda: not wrong(fleet, [46]), "the change is everywhere")
    lines.append(f"the change made meanwhile is in the switch {time.time() - ended:.1f} s after the engine's start")
    for name in names:
        fleet.looking(lambda name=name: written(fleet, name, began, ended) > seconds - 2, f"{name}: history is whole")  # type: ignore[misc]
    # Should anything come twice, it has come by now.
    time.sleep(2 * FLUSH_SECONDS)
    for name in names:
        found = written(fleet, name, began, ended)
        assert found < ended - began + 2, f"{name}: {found} samples of {ended - began:.0f} s: some are there twice"
        lines.append(f"{name}: {found} samples in history of {ended - began:.0f} s")
    headers = {"authorization": f"Bearer {fleet.token}"}
    metrics = httpx.get(f"{fleet.urls[0]}/metrics", headers=headers, timeout=120).text
    assert "controller_lost_samples_total 0.0" in metrics, "samples were lost"
    return lines


def written(fleet: Fleet, name: str, start: float, end: float) -> int:
    """Samples that history has of an access point's first port, one for each second."""
    found = fleet.get(f"/access-points/{name}/history?start={start}&end={end}&resolution=1")
    return round(sum(found["ports"][0]["columns"]["samples"])) if found and found["ports"] else 0


def main(
    count: Annotated[int, typer.Option(help="How many faults.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Of the random numbers.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; several may be given.")] = None,
    away: Annotated[
        float | None, typer.Option("--outage", help="The engine's, in seconds, in place of faults.")
    ] = None,
    look: Annotated[Path | None, typer.Option(LOOK, hidden=True)] = None,
) -> None:
    """Survive faults, or say which one was not survived."""
    if look is not None:
        print(json.dumps(differences(AccessPointConfig.model_validate_json(look.read_text()))))
        return
    if reason := missing():
        print(f"error: {reason}", file=sys.stderr)
        raise typer.Exit(2)
    seed = random.randrange(1 << 32) if seed is None else seed
    survived: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="fleet-") as directory,
        Fleet(Path(directory), agents=2, backups=1, traffic=True) as fleet,
    ):
        trial = Trial(fleet, seed)
        try:
            if away is not None:
                print("\n".join(outage(fleet, away)))
                return
            for number in range(1, count + 1):
                done = trial.fault(kind or ())
                survived[done] = survived.get(done, 0) + 1
                say(f"{number}: {done}")
        except (AssertionError, LabError) as error:
            print(f"fault {sum(survived.values()) + 1} was not survived (--seed {seed}): {error}", file=sys.stderr)
            for part in fleet.parts.values():
                if part.log.exists() and not part.name.endswith(("-sink", "-source")):
                    print(f"== {part.name}\n{part.log.read_text(errors='replace')[-1500:]}", file=sys.stderr)
            raise typer.Exit(1) from None
        finally:
            trial.close()
    print(f"survived {count} faults: {', '.join(f'{times} x {name}' for name, times in sorted(survived.items()))}")


if __name__ == "__main__":
    typer.run(main)
