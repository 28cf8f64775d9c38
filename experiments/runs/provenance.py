# SPDX-License-Identifier: Apache-2.0
"""Provenance of a figure: code, versions, machine and parameters, as every run keeps them."""

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from accesspoint.topologies import targets
from accesspoint.topologies.requirements import ROOT

NO_COMMIT = "none: not a git checkout"
_TOOLS = {"iperf3": ["iperf3", "--version"], "iproute2": ["ip", "-V"]}


def commit(root: Path = ROOT) -> str:
    """`1a2b3c4`, `1a2b3c4-dirty` where files differ from it; `NO_COMMIT` where the code is no checkout of its own, but
    an unpacked archive, even inside somebody else's."""
    if _first_line([*_git(root), "rev-parse", "--show-toplevel"]) != str(root.resolve()):
        return NO_COMMIT
    return _first_line([*_git(root), "describe", "--always", "--dirty"]) or NO_COMMIT


def git(*words: str, root: Path = ROOT) -> bool:
    """Return whether a command of git succeeds."""
    return subprocess.run([*_git(root), *words], capture_output=True, check=False).returncode == 0


def shallow(root: Path = ROOT) -> bool:
    """Return whether the checkout is a shallow clone."""
    return _first_line([*_git(root), "rev-parse", "--is-shallow-repository"]) != "false"


def _git(root: Path) -> list[str]:
    # It may be another user's: labs run as root.
    return ["git", "-c", f"safe.directory={root.resolve()}", "-C", str(root)]


def versions(target: str = targets.DEFAULT) -> dict[str, str]:
    """Versions of the software that takes part in a measurement, and of the running kernel. target: the switch's
    name."""
    return {
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{tool: _first_line(command) or "unknown" for tool, command in _TOOLS.items()},
        **{name: targets.TARGETS[name].version() for name in dict.fromkeys((target, targets.DEFAULT))},
        "commit": commit(),
    }


def versions_of_a_simulation(simulator: str) -> dict[str, str]:
    """Versions of the software that takes part in a simulation, in ns-3 or ns-2: no kernel, and no tools."""
    from accesspoint.topologies.ns2 import cell
    from accesspoint.topologies.ns3 import build

    version = {"ns-3": build.version, "ns-2": cell.version}[simulator]()
    return {simulator: version, "python": platform.python_version(), "commit": commit()}


def machine() -> dict[str, Any]:
    """The computer, as far as it matters for a measurement."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")), "")
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    return {
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"),
        "processor": model or platform.machine(),
        "cores": os.cpu_count(),
        "memory": f"{memory} MiB",
    }


def parameters(value: Any) -> Any:
    """A declaration (an arm, a scene) as JSON values; code, which JSON cannot hold, by its name."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {field.name: parameters(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__, **own}
    if isinstance(value, Mapping):
        return {str(name): parameters(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, range, set, frozenset)):
        return [parameters(each) for each in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _first_line(command: list[str]) -> str:
    """First line of a command's output; empty where the command fails, or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.split("\n")[0].strip() if done.returncode == 0 else ""
