# SPDX-License-Identifier: Apache-2.0
"""Checks: their type, their outcomes, and the list of all of them.

A check is a function that gets a `Fixture` and returns when the server does what its section asks for. It raises
`Failed` when the server does otherwise, `NotApplicable` when the question does not arise.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from accesspoint.checks.conformance.fixture import Fixture

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "n/a"

# The sections of the P4Runtime specification 1.4 and 1.5, and the groups of v1model.
SECTIONS = {
    "5": "Client arbitration and roles",
    "7": "Forwarding-pipeline configuration",
    "8": "Message formatting",
    "9.1": "Tables",
    "9.2": "Action profiles and selectors",
    "9.3": "Counters",
    "9.4": "Meters",
    "9.5": "Packet replication engine",
    "9.6": "Value sets",
    "9.7": "Registers",
    "9.8": "Digests",
    "9.9": "Externs",
    "10": "Error reporting",
    "12": "Write: batches and atomicity",
    "13": "Read",
    "14": "SetForwardingPipelineConfig",
    "15": "GetForwardingPipelineConfig",
    "16": "Stream messages",
    "17": "Capabilities",
    "v1.parser": "v1model: parsers",
    "v1.stacks": "v1model: header stacks and unions",
    "v1.operators": "v1model: operators",
    "v1.control": "v1model: control flow",
    "v1.hash": "v1model: hashes and random numbers",
    "v1.checksum": "v1model: checksums",
    "v1.state": "v1model: counters, meters, registers",
    "v1.ways": "v1model: ways of a packet",
}


class Failed(Exception):
    """The server does not conform; the text says what was asked for and what was seen."""


class NotApplicable(Exception):
    """The question does not arise here; the text says why."""


def fail(reason: str) -> NoReturn:
    raise Failed(reason)


def expect(found: Any, wanted: Any, what: str) -> None:
    """Fail the check unless both are the same."""
    if found != wanted:
        fail(f"{what}: {show(found)} instead of {show(wanted)}")


def show(value: Any) -> str:
    """Return a value in one line of 160 characters at most."""
    if isinstance(value, Enum):  # a gRPC status code
        value = value.name
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= 160 else text[:157] + "..."


@dataclass(frozen=True)
class Check:
    """section: a key of SECTIONS, or one below it. program: loaded before it runs; None: the check loads what it needs.

    ports: interfaces that it needs; 0: the CPU port does. anew: it needs a server without a pipeline. since: the
    version of P4Runtime that began to ask for it; servers of an older one are not asked.
    """

    section: str
    title: str
    run: Callable[["Fixture"], None]
    program: str | None
    ports: int
    anew: bool
    since: str

    @property
    def group(self) -> str:
        """The key of SECTIONS that it belongs to."""
        return next(key for key in SECTIONS if below(self.section, key))

    @property
    def name(self) -> str:
        """Name of the check, for `--only`."""
        return f"{self.section}/{self.run.__name__.replace('_', '-')}"


@dataclass(frozen=True)
class Outcome:
    """Outcome of a check. seconds: its duration."""

    check: Check
    status: str
    reason: str
    seconds: float


CHECKS: list[Check] = []


def check(
    section: str,
    title: str,
    program: str | None = "entities",
    ports: int = 0,
    anew: bool = False,
    since: str = "1.0.0",
) -> Callable[[Callable[["Fixture"], None]], Callable[["Fixture"], None]]:
    """Adds the decorated function to the checks."""

    def add(run: Callable[["Fixture"], None]) -> Callable[["Fixture"], None]:
        CHECKS.append(Check(section, title, run, program, ports, anew, since))
        return run

    return add


def below(section: str, key: str) -> bool:
    """`9.1.2` is below `9`, `9.1` and `9.1.2`; `v1.parser` below `v1`."""
    return section == key or section.startswith(f"{key}.")


def all_checks() -> list[Check]:
    """Load all checks, in the order of the sections."""
    from accesspoint.checks.conformance import checks

    for module in pkgutil.iter_modules(checks.__path__):
        importlib.import_module(f"{checks.__name__}.{module.name}")
    order = {key: number for number, key in enumerate(SECTIONS)}
    return sorted(CHECKS, key=lambda one: order[one.group])


def select(sections: list[str], only: str | None) -> list[Check]:
    """Select the checks below one of the sections, all if there is none, whose name or title contains `only`."""
    found = [one for one in all_checks() if not sections or any(below(one.section, key) for key in sections)]
    return [one for one in found if not only or only.lower() in f"{one.name} {one.title}".lower()]
