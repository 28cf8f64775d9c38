# SPDX-License-Identifier: Apache-2.0
"""Cases: their type, their registry, and their outcome."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from accesspoint.checks.foreign import clients

if TYPE_CHECKING:
    from accesspoint.checks.foreign.stand import Stand

PASS, FAIL, NOT_RUN = "pass", "fail", "not run"
FOLDERS = {
    "tutorials": "p4lang/tutorials",
    "p4c": "p4lang/p4c",
    "finsy": "byllyfish/finsy",
    "onos": "opennetworkinglab/onos",
    "p4-utils": "nsg-ethz/p4-utils",
    "mininet-wifi": "intrig-unicamp/mininet-wifi",
    "mininet": "mininet/mininet, which Mininet-WiFi's example wants",
    "bmv2": "p4lang/behavioral-model, for Mininet's P4 example",
}
"""Checkouts that the user may give, by the name of their option."""


class Failed(Exception):
    """A client that did not do what its own page says; the text is the reason, in a line."""


class NotRun(Exception):
    """A case that cannot be run; the text is the reason, in a line."""


@dataclass(frozen=True)
class Case:
    """A client, its task, and the function that runs it.

    run: raises Failed or NotRun; a text that it returns is the remark of a pass. folder: a key of FOLDERS, or nothing
    for what PyPI has. seconds: the time that it may take. known: target -> cause of a failure that is the client's own
    or a limit of v1model that the documents name. radios: whether it wants a kernel that has mac80211_hwsim.
    """

    name: str
    client: str
    task: str
    run: Callable[["Stand"], str | None]
    folder: str = ""
    seconds: float = 60.0
    known: Mapping[str, str] = field(default_factory=dict)
    radios: bool = False


@dataclass(frozen=True)
class Outcome:
    """Outcome of a case. status: PASS, FAIL or NOT_RUN."""

    name: str
    status: str
    reason: str
    seconds: float = 0.0


CASES: dict[str, Case] = {}


def add(case: Case) -> None:
    """Add a case to the list. A name is taken once."""
    assert case.name not in CASES, f"two cases are called {case.name}"
    CASES[case.name] = case


def case(
    name: str, client: str, task: str, **options: object
) -> Callable[[Callable[["Stand"], str | None]], Callable[["Stand"], str | None]]:
    """Make a function the case of this name."""

    def made(run: Callable[["Stand"], str | None]) -> Callable[["Stand"], str | None]:
        add(Case(name, client, task, run, **options))  # type: ignore[arg-type]
        return run

    return made


def load() -> dict[str, Case]:
    """Return all cases, by name."""
    for module in sorted(found.name for found in pkgutil.iter_modules(clients.__path__)):
        importlib.import_module(f"{clients.__name__}.{module}")
    return dict(sorted(CASES.items()))


def select(cases: Mapping[str, Case], only: list[str]) -> list[Case]:
    """Select cases by names or patterns of cases and of folders, several in one word with commas. `pypi` is the part
    without a folder."""
    patterns = [pattern.strip() for word in only for pattern in word.split(",")] or ["*"]
    return [
        one
        for one in cases.values()
        if any(fnmatch(name, pattern) for name in (one.name, one.folder or "pypi") for pattern in patterns)
    ]
