# SPDX-License-Identifier: Apache-2.0
"""Labs with real stations and access points: Mininet-WiFi on mac80211_hwsim radios.

Mininet-WiFi, the Mininet that it needs and what both import are installed for the system's Python, whose packages a
virtual environment does not see. `use_system_packages` makes them importable, after this environment's own.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

NAME = "mininet-wifi"

SYSTEM_PACKAGES = (
    f"/usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}/dist-packages",
    "/usr/lib/python3/dist-packages",
)


class _SystemPackages(MetaPathFinder):
    """Finds top-level modules that nothing else has found. Longer search paths would also merge packages."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, SYSTEM_PACKAGES) if path is None else None


def is_installed() -> bool:
    """Return whether Mininet-WiFi is installed, for this Python or the system's."""
    return bool(importlib.util.find_spec("mn_wifi") or PathFinder.find_spec("mn_wifi", SYSTEM_PACKAGES))


def use_system_packages() -> None:
    """Make the system's packages importable. To be called before anything imports a module of Mininet: Mininet-WiFi may
    need a newer one than `topologies` has bound. More than one call does no harm."""
    if any(isinstance(finder, _SystemPackages) for finder in sys.meta_path):
        return
    if not any(name.startswith("mininet.") for name in sys.modules):
        sys.modules.pop("mininet", None)
    sys.meta_path.append(_SystemPackages())
