# SPDX-License-Identifier: Apache-2.0
"""Program of test_install_on_radio.py: the steps of docs/quickstart/operator.md, on a machine with hostapd's radio.

Its files and interfaces are the kernel's own, so `apctl init` writes where it does for an operator. systemd does not
run in there: the units' commands are executed, with the capabilities that they leave.
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accesspoint.checks.harness.switches import ROOT, end, wait_for
from accesspoint.controller.apctl import install
from accesspoint.controller.tests.test_install import bounded, commands, runs
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.namespaces.namespace import Namespace

PAGE = (ROOT / "docs/quickstart/operator.md").read_text()
HOSTAPD = re.findall(r"^```ini\n(.*?)^```", PAGE, re.M | re.S)[0]
SSID = re.findall(r"^ssid=(.*)$", HOSTAPD, re.M)[0]
STEPS = re.findall(r"^```bash\n(.*?)^```", PAGE, re.M | re.S)
# Wherever this checkout is, it is taken for one that services may read.
APCTL = (
    "import sys; from accesspoint.controller.apctl import install, __main__; "
    "install.HIDDEN = (); sys.exit(__main__.main())"
)
LONG = 150.0  # s; the kernel has one processor, and shares it


def call(*words: str | Path, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run([*map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=LONG)
    assert done.returncode in codes, f"{shlex.join(map(str, words))}: {done.stdout}{done.stderr}"
    return done.stdout


def apctl(*words: str, codes: tuple[int, ...] = (0,)) -> str:
    said = call(sys.executable, "-c", APCTL, *words, codes=codes)
    print(said, end="", flush=True)
    return said


def step(number: int, *more: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run the commands of a step of the page; return their output."""
    lines = [shlex.split(line)[1:] for line in STEPS[number].splitlines()]
    return "".join(apctl(*words, *more, codes=codes) for words in lines)


def radio_as_it_is() -> set[str]:
    ipv6 = Path("/proc/sys/net/ipv6/conf/wlan0/disable_ipv6")
    return {*call("ethtool", "-k", "wlan0").splitlines(), f"disable_ipv6: {ipv6.read_text().strip()}"}


@contextmanager
def access_point_of(directory: Path, station: Namespace) -> Iterator[None]:
    """hostapd on wlan0, with wlan1 in the station's namespace associated to it."""
    call("modprobe", "mac80211_hwsim", "radios=2")
    (directory / "hostapd.conf").write_text(HOSTAPD)
    daemon = subprocess.Popen(["hostapd", directory / "hostapd.conf"], stdout=subprocess.DEVNULL)
    phy = Path("/sys/class/net/wlan1/phy80211/name").read_text().strip()
    call("iw", "phy", phy, "set", "netns", str(station.pid))
    try:
        station.ip("link", "set", "wlan1", "up")
        station.ip("address", "add", "10.7.0.1/24", "dev", "wlan1")
        wait_for(lambda: "type AP" in call("iw", "dev", "wlan0", "info"), LONG)
        deadline = time.monotonic() + LONG
        while f"SSID: {SSID}" not in station.run("iw", "dev", "wlan1", "link"):
            assert time.monotonic() < deadline and daemon.poll() is None, "the station is not let in"
            station.run("iw", "dev", "wlan1", "connect", SSID, check=False)
            time.sleep(1)
        yield
    finally:
        end(daemon)


@contextmanager
def started() -> Iterator[None]:
    """Start what the units would start."""
    Path("/", install.STATE).mkdir(parents=True)
    switch, controller = install.SWITCH, install.CONTROLLER
    call(*commands(Path("/"), switch, "ExecStartPre"))
    running: list[subprocess.Popen[Any]] = []
    try:
        for unit in (switch, controller):
            words = [*bounded(Path("/"), unit), *commands(Path("/"), unit, "ExecStart")]
            running.append(subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL))

        wait_for(lambda: runs(Path("/")), LONG)
        yield
    finally:
        for process in running:
            end(process)


def main() -> int:
    directory = Path(sys.argv[1])
    with Namespace() as station, Namespace() as server:
        call("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "far")
        call("ip", "link", "set", "far", "netns", str(server.pid))
        server.ip("address", "add", "10.7.0.2/24", "dev", "far")
        server.ip("link", "set", "far", "up")
        with access_point_of(directory, station):
            before = radio_as_it_is()
            assert "wrote /etc/access-point/access-point.json" in step(0, "--no-start")
            with started():
                # `ready` is before the program and the entries are.
                ping = ("ping", "-c", "3", "-i", "0.2", "-W", "10", "10.7.0.2")
                wait_for(lambda: " 0% packet loss" in station.run(*ping, check=False), LONG)
                # One processor, and slow: that its ticks are late is no fault of the installation.
                said = step(1, codes=(0, 1))
                assert all("ticks were late" in line for line in said.splitlines() if line.startswith("error"))
                assert all(f"ok      {words}" in said for words in ("ap1 is ready", "wlan0 can be", "eth1 can be"))
                address = station.run("ip", "-o", "link", "show", "wlan1").partition("link/ether ")[2].split()[0]
                assert re.search(rf"^{address} +- +1 ", step(2), re.M)
            assert radio_as_it_is() != before
            step(3)
            assert radio_as_it_is() == before, sorted(radio_as_it_is() ^ before)
            left = [path for path in (*install.WRITTEN, install.MANIFEST, install.STATE) if Path("/", path).exists()]
            assert not left, left
            assert f"SSID: {SSID}" in station.run("iw", "dev", "wlan1", "link"), "hostapd did not go on"
    print("the machine is as it was")
    return 0


if __name__ == "__main__":
    sys.exit(contain.run(main))
