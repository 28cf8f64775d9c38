# SPDX-License-Identifier: Apache-2.0
"""Attacks: their type, their registry, and the target that each is given."""

import importlib
import json
import pkgutil
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from accesspoint.checks.hostile import attacks

KINDS = 12  # refusals that are told apart
TOLD_EVERY = 0.25  # s


@dataclass
class Target:
    """The server under attack, as one attack sees it.

    address: HOST:PORT. seconds: how long the attack may take. places: what else it may know, as the server's class in
    `servers` says. random: seeded, so that a run can be repeated.
    """

    address: str
    seconds: float
    seed: int = 1
    places: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._end = time.monotonic() + self.seconds
        self._refusals: Counter[tuple[str, str]] = Counter()
        self._told = 0.0
        self._lock = threading.Lock()

    @property
    def host_port(self) -> tuple[str, int]:
        """Host and port of the server, for a socket."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)

    def left(self) -> float:
        """Seconds that are left, never 0: good as a timeout."""
        return max(0.05, self._end - time.monotonic())

    def running(self) -> bool:
        """Return whether there is time left."""
        return time.monotonic() < self._end

    def refused(self, code: str, line: object = "") -> None:
        """The server has refused something: its code, and what it said."""
        text = re.sub(r"\d+(\.\d+)?", "N", " ".join(str(line).split())[:200])
        with self._lock:
            if (code, text) not in self._refusals and len(self._refusals) >= KINDS:
                text = "..."
            self._refusals[code, text] += 1
        self.tell(every=TOLD_EVERY)

    def tell(self, every: float = 0.0) -> None:
        """Report the refusals so far, as a line for the process that measures; at most once in `every` s."""
        with self._lock:
            if time.monotonic() - self._told < every:
                return
            self._told = time.monotonic()
            found = [[code, text, count] for (code, text), count in self._refusals.most_common()]
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


@dataclass(frozen=True)
class Attack:
    """A function that attacks until it is through or out of time, and what is said of it.

    server: a name of `servers.SERVERS`. seconds: its time. short: whether `make test` runs it, too. carries: whether
    the switch should carry the steady packets meanwhile: it need not with a program of the attacker's that drops them.
    options: what the server is started with.
    """

    name: str
    server: str
    text: str
    run: Callable[[Target], None]
    seconds: float
    short: bool
    carries: bool
    options: Mapping[str, Any]


ATTACKS: dict[str, Attack] = {}


def attack(
    server: str, seconds: float = 4.0, short: bool = False, carries: bool = True, prefix: str = "", **options: Any
) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
    """Makes a function an attack of its name; the first line of its documentation says what it does. prefix: of the
    name, for a function that attacks several servers."""

    def register(run: Callable[[Target], None]) -> Callable[[Target], None]:
        name = (prefix + run.__name__).replace("_", "-")
        assert name not in ATTACKS, f"there are two attacks {name}"
        text = (run.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        assert text, f"{name} has no description"
        ATTACKS[name] = Attack(name, server, text, run, seconds, short, carries, options)
        return run

    return register


def load() -> dict[str, Attack]:
    """All attacks by name, in the order of their modules."""
    for module in sorted(module.name for module in pkgutil.iter_modules(attacks.__path__)):
        importlib.import_module(f"accesspoint.checks.hostile.attacks.{module}")
    return ATTACKS
