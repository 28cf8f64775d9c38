# SPDX-License-Identifier: Apache-2.0
"""Requirements of a wireless lab, in addition to those of a wired one. A missing one is named in one line, with the
fix."""

import importlib
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.requirements import LabError
from accesspoint.topologies.wifi import NAME, is_installed, use_system_packages

MODULE = "mac80211_hwsim"
TOOLS = {
    "hostapd": "apt install hostapd",
    "iw": "apt install iw",
    "iwconfig": "apt install wireless-tools",
    "rfkill": "apt install rfkill",
    "modprobe": "apt install kmod",
    "hwsim_mgmt": "util/install.sh -W` of Mininet-WiFi, or `make install` of mac80211_hwsim_mgmt",
}


def check(wmediumd: bool = False, wpa2: bool = False) -> bool:
    """Check the requirements, and return whether the lab needs the user-mode kernel since this one has no
    mac80211_hwsim. Raises LabError for the first thing missing: Mininet-WiFi, a tool, the kernel module.

    wmediumd, wpa2: whether that daemon, and wpa_supplicant, are needed too.
    """
    if not is_installed():
        raise LabError("Mininet-WiFi is missing: install it for the system's Python as docs/wifi.md says")
    for tool, mend in TOOLS.items():
        if not shutil.which(tool):
            raise LabError(f"{tool} is missing: install it with `{mend}`")
    if wmediumd and not shutil.which("wmediumd"):
        raise LabError("wmediumd is missing: install it with `util/install.sh -l` of Mininet-WiFi, or leave it out")
    if wpa2 and not shutil.which("wpa_supplicant"):
        raise LabError("wpa_supplicant is missing: install it with `apt install wpasupplicant`, or leave wpa2 out")
    versions()
    own_kernel = not has_radios()
    if own_kernel and kernel.inside():
        raise LabError(f"the user-mode kernel has no {MODULE}: build it again with `make wifi-kernel`")
    if own_kernel and not kernel.with_radios().is_there():
        raise LabError(
            f"the kernel module {MODULE} is missing: Linux {platform.release()} has none; "
            f"build a user-mode kernel that has it with `make wifi-kernel`"
        )
    return own_kernel


def has_radios() -> bool:
    """Return whether this kernel has mac80211_hwsim, or can load it."""
    if Path(f"/sys/module/{MODULE}").exists():
        return True
    modprobe = ["modprobe", "--dry-run", "--quiet", MODULE]
    return shutil.which("modprobe") is not None and subprocess.run(modprobe, capture_output=True).returncode == 0


def versions() -> dict[str, str]:
    """Return the versions of Mininet-WiFi, the Mininet below it, and hostapd. Raises LabError when Mininet-WiFi cannot
    be imported."""
    use_system_packages()
    try:
        found = {name: str(importlib.import_module(f"{name}.net").VERSION) for name in ("mn_wifi", "mininet")}
    except ImportError as error:
        raise LabError(f"Mininet-WiFi cannot be imported: {error}; install it as docs/wifi.md says") from None
    said = subprocess.run(["hostapd", "-v"], check=False, capture_output=True, text=True)
    match = re.search(r"hostapd v(\S+)", said.stderr + said.stdout)
    return {"mininet-wifi": found["mn_wifi"], "mininet": found["mininet"], "hostapd": match[1] if match else "unknown"}


def main() -> int:
    """`python -m accesspoint.topologies.wifi.requirements` says whether a wireless lab runs here, and on what; 2: none
    does."""
    try:
        own_kernel = check()
    except LabError as error:
        print(f"{NAME}: not available: {error}")
        return 2
    where = f"in {kernel.with_radios().program}" if own_kernel else f"on Linux {platform.release()}"
    print(f"{NAME}: {', '.join(f'{name} {version}' for name, version in versions().items())}, {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
