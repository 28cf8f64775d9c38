# SPDX-License-Identifier: Apache-2.0
"""Requirements of a lab on the machine. A missing one is named in one line, with the fix."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIPELINE = {"p4info": ROOT / "p4src/compiled/ap.p4info.txtpb", "device_config": ROOT / "p4src/compiled/ap.json"}

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
_TOOLS = {"mnexec": "mininet", "ifconfig": "net-tools", "ip": "iproute2", "ethtool": "ethtool", "iperf3": "iperf3"}


class LabError(Exception):
    """A lab that cannot be brought up or used: one line that names the cause and the fix."""


def apswitch() -> Path:
    """Return the switch's binary: the one that APSWITCH names, this project's release build, that of the Python
    environment (a wheel brings it), or that of PATH."""
    own = ROOT / "target/release/apswitch"
    places = [str(Path(sys.prefix) / "bin"), *os.get_exec_path()]
    found = None if own.exists() else shutil.which("apswitch", path=os.pathsep.join(places))
    return Path(os.environ.get("APSWITCH") or found or own)


def python() -> str:
    """Return the Python that has the controller's packages. `mn` runs on the system's, which has not. Raises
    LabError."""
    if importlib.util.find_spec("finsy"):
        return sys.executable
    own = ROOT / ".venv/bin/python"
    if not own.exists():
        raise LabError(f"{sys.executable} lacks the controller's packages: install them with `make setup`, or pip")
    return str(own)


def congestion_controls() -> list[str]:
    """Return the TCP congestion controls that this kernel has loaded."""
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def check(cc: str = "cubic") -> None:
    """Raises LabError for the first thing missing: privilege, tool, package, switch, pipeline, congestion control."""
    check_machine()
    if not os.access(apswitch(), os.X_OK):
        raise LabError(f"the switch {apswitch()} is missing: build it with `make switch`, or install its wheel")
    for path in PIPELINE.values():
        if not path.is_file():
            raise LabError(f"{path} is missing: restore it with `git checkout`, or compile it with `make p4`")
    if cc not in congestion_controls():
        raise LabError(
            f"congestion control '{cc}' is not available: choose one of {', '.join(congestion_controls())}, "
            f"or load it with `modprobe tcp_{cc}`"
        )


def privileged() -> bool:
    """Return whether this process may make network namespaces."""
    capabilities = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff")
    )
    held = int(capabilities.split()[1], 16)
    return all(held >> capability & 1 for capability in (CAP_NET_ADMIN, CAP_SYS_ADMIN))


def check_machine() -> None:
    """Raises LabError for what every network of namespaces lacks here: privilege, a tool, Mininet."""
    if not privileged():
        raise LabError("privilege is missing: network namespaces need CAP_NET_ADMIN and CAP_SYS_ADMIN; run it as root")
    for tool, package in _TOOLS.items():
        if not shutil.which(tool):
            raise LabError(f"{tool} is missing: install it with `apt install {package}`")
    if not importlib.util.find_spec("mininet"):
        raise LabError("the Python package mininet is missing: install it with `apt install mininet`")
