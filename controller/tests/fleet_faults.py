# SPDX-License-Identifier: Apache-2.0
"""Faults of a fleet, with real processes: `python -m controller.tests.fleet_faults --count 100`.

Rules are changed over one of two replicas while a replica, an agent, the engine or a switch is killed or stopped, or an
agent is cut off from the engine. After each fault both replicas must say the same, the last change that was confirmed
must be there, and the switch must hold what is wanted, with no flow index given twice.
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

from controller.config import AccessPointConfig
from topologies.fleet import Fleet, Part, missing
from topologies.requirements import ROOT, LabError

from .faults import differences

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
        """One fault at a random moment, each of the kinds (all: `()`) in its turn; returns the kind. Raises
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
            wrong = self._wrong()
            if not wrong:
                self._asked.clear()
                return kind
            assert time.monotonic() < deadline, f"{kind}: {wrong}; asked: {self._asked}"
            time.sleep(0.3)

    def _wrong(self) -> str:
        """What is not well; nothing when all is."""
        fleet, names = self._fleet, [ap.name for ap in self._fleet.access_points]
        for replica in (0, 1):
            states = fleet.states(replica)
            if states != dict.fromkeys(names, "ready"):
                return f"replica {replica + 1} says {states}"
        said = [fleet.get("/access-points/ap1/config", replica) for replica in (0, 1)]
        if said[0] is None or said[0] != said[1]:
            return "the replicas say different things"
        rules = [rule["dscp"] for rule in said[0]["rules"]] or [0]
        assert rules[0] in self._may_be, f"{rules} is none of {self._may_be}; asked: {self._asked}"
        path = fleet.directory / "look.json"
        path.write_text(json.dumps(said[0]))
        command = [sys.executable, "-m", "controller.tests.fleet_faults", LOOK, str(path)]
        found: list[str] = json.loads(fleet.access_points[0].within.run(*command, cwd=ROOT))
        return "; ".join(found)


def main(
    count: Annotated[int, typer.Option(help="How many faults.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Of the random numbers.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; several may be given.")] = None,
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
            for _ in range(count):
                done = trial.fault(kind or ())
                survived[done] = survived.get(done, 0) + 1
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
