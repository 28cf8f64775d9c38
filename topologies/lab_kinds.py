# SPDX-License-Identifier: Apache-2.0
"""The kinds of lab: which can be had here, and where it runs. Imports nothing of Mininet."""

import argparse
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from accesspoint.topologies import wifi
from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.kernels.kernel import CLOCKS, REAL, SIMULATED, VIRTUAL, Kernel
from accesspoint.topologies.requirements import LabError

if TYPE_CHECKING:
    from accesspoint.topologies.mininet.network import Lab

WIRED, WIRELESS = "wired", wifi.NAME
LABS = (WIRED, WIRELESS)
NS3 = "ns3"
"""Kind of lab for experiments only (accesspoint.experiments.lab.in_ns3): it has no prompt."""


@dataclass(frozen=True)
class Place:
    """A kind of lab, and the kernel of its own that it needs: then the caller has to be started in that kernel, with
    this clock."""

    lab: str = WIRED
    kernel: Kernel | None = None
    clock: str = REAL


def add_clock(parser: argparse.ArgumentParser | argparse._ArgumentGroup, default: str) -> None:
    """Add the option `--clock`. default: in words."""
    text = f"real time, virtual time in a kernel of its own, or simulated time in ns-3 (default: {default})"
    parser.add_argument("--clock", choices=CLOCKS, help=text)


def add_arguments(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    parser.add_argument("--lab", default=WIRED, help=f"kind of lab: {', '.join(LABS)}; experiments also take {NS3}")
    parser.add_argument(
        "--fallback", metavar="LAB", help=f"lab to use when parts of the chosen one are missing: {WIRED}"
    )
    parser.add_argument("--wmediumd", action="store_true", help="on radios: frames take airtime and fade with distance")
    parser.add_argument("--wpa2", action="store_true", help="on radios: stations have a key, and frames are encrypted")


def choose(options: argparse.Namespace) -> Place:
    """Return the place that `--lab`, `--fallback` and `--clock` ask for. Raises LabError when there is none."""
    if options.clock == SIMULATED:
        raise LabError(f"CLOCK={SIMULATED} is for experiments in ns-3: a lab is in real time or in virtual time")
    place = _choose(options)
    if options.clock == VIRTUAL and not kernel.inside():
        return replace(place, kernel=kernel.of_virtual_time(), clock=VIRTUAL)
    return place


def _choose(options: argparse.Namespace) -> Place:
    for lab in (options.lab, options.fallback or WIRED):
        if lab == NS3:
            raise LabError(f"lab '{NS3}' is of experiments: `make experiment NAME=ncr-testbed LAB={NS3}`")
        if lab not in LABS:
            raise LabError(f"lab '{lab}' is unknown: choose one of {', '.join(LABS)}")
    if options.lab == WIRED:
        for name in ("wmediumd", "wpa2"):
            if getattr(options, name):
                raise LabError(f"{name} is for radios: give LAB={WIRELESS} too")
        return Place()
    try:
        return Place(WIRELESS, kernel_of_radios(air(options), options.wpa2))
    except LabError as error:
        if options.fallback != WIRED:
            raise LabError(f"{error}; FALLBACK={WIRED} would take the wired lab instead") from None
        print(f"note: {error}; this is the wired lab instead", file=sys.stderr)
        return Place()


def kernel_of_radios(air: str, wpa2: bool = False) -> Kernel | None:
    """The kernel that a lab on radios needs in place of the running one. Raises LabError when a part is missing."""
    from accesspoint.topologies.wifi import requirements

    return kernel.with_radios() if requirements.check(air == "wmediumd", wpa2) else None


def air(options: argparse.Namespace) -> str:
    """Return the model of the air, as accesspoint.topologies.wifi.network.WifiLab takes it."""
    return "wmediumd" if options.wmediumd else "plain"


def versions(name: str) -> dict[str, str]:
    """Return the versions of the parts that only this kind of lab has, by name. Raises LabError."""
    if name == WIRED:
        return {}
    from accesspoint.topologies.wifi import requirements

    return requirements.versions()


def lab_class(name: str) -> "type[Lab]":
    """Return the class of a kind of lab. To be called before anything imports Mininet."""
    if name == WIRELESS:
        from accesspoint.topologies.wifi import use_system_packages

        use_system_packages()
        from accesspoint.topologies.wifi.network import WifiLab

        return WifiLab
    from accesspoint.topologies.mininet.network import Lab

    return Lab
