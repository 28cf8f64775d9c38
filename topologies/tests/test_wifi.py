# SPDX-License-Identifier: Apache-2.0
"""Wireless labs: what is missing is named, and labs run on real radios where there are any."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.requirements import ROOT, apswitch
from accesspoint.topologies.tests.conftest import Start, descendants
from accesspoint.topologies.wifi import requirements

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PARTS = subprocess.run(
    [sys.executable, "-m", "accesspoint.topologies.wifi.requirements"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
)
HERE = PARTS.returncode == 0
needs_parts = pytest.mark.skipif(not HERE, reason=PARTS.stdout.strip() or PARTS.stderr.strip()[-200:])
RADIOS = kernel.with_radios()
needs_kernel = pytest.mark.skipif(
    not RADIOS.is_there(), reason=f"{RADIOS.program} is not there; `make wifi-kernel` builds it"
)


def output_of(start: Start, *arguments: str, code: int = 0, timeout: float = 250, **environment: str) -> str:
    process = start(*arguments, **environment)
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == code, output
    return output


def path_without(program: str, directory: Path) -> str:
    """A PATH with every program of the system's but one."""
    for place in SYSTEM_PATH.split(":"):
        for found in Path(place).iterdir():
            link = directory / found.name
            if found.name != program and not link.is_symlink():
                link.symlink_to(found)
    return str(directory)


@pytest.mark.usefixtures("privileged")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lab", "radio"], "lab 'radio' is unknown: choose one of wired, mininet-wifi"),
        (["--lab", "mininet-wifi", "--fallback", "none"], "lab 'none' is unknown"),
        (["--wmediumd"], "wmediumd is for radios: give LAB=mininet-wifi too"),
        (["--wpa2"], "wpa2 is for radios: give LAB=mininet-wifi too"),
    ],
)
@pytest.mark.parametrize("program", [["accesspoint.topologies.lab"], ["experiments", "run", "headline"]])
def test_bad_input_gets_one_line(start: Start, program: list[str], options: list[str], message: str) -> None:
    output = output_of(start, "-m", *program, *options, code=2)
    assert output.startswith(f"error: {message}") and output.count("\n") == 1


@pytest.mark.usefixtures("privileged")
def test_two_access_points_need_radios(start: Start) -> None:
    output = output_of(start, "-m", "accesspoint.experiments", "run", "handover", code=2)
    assert output.startswith("error: the experiment needs more than one access point: give LAB=mininet-wifi")


WITHOUT_PACKAGES = """
import sys, accesspoint.topologies.wifi
accesspoint.topologies.wifi.SYSTEM_PACKAGES = ()
from accesspoint.topologies.lab import main
sys.exit(main(sys.argv[1:]))
"""
MISSING = "error: Mininet-WiFi is missing: install it for the system's Python as docs/wifi.md says"


@pytest.mark.usefixtures("privileged")
def test_missing_mininet_wifi_is_named(start: Start) -> None:
    output = output_of(start, "-c", WITHOUT_PACKAGES, "--lab", "mininet-wifi", code=2)
    assert output == f"{MISSING}; FALLBACK=wired would take the wired lab instead\n"


@pytest.mark.usefixtures("privileged")
def test_the_wired_lab_is_taken_only_when_asked_for(start: Start) -> None:
    options = ["--lab", "mininet-wifi", "--fallback", "wired", "--exec", "sta1 ping -c 1 -W 60 server"]
    output = output_of(start, "-c", WITHOUT_PACKAGES, *options)
    assert output.startswith(f"{MISSING.replace('error', 'note')}; this is the wired lab instead\n")
    assert "1 packets transmitted, 1 received" in output


@pytest.mark.usefixtures("privileged")
def test_mininet_wifi_that_lacks_something_is_named(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mn_wifi").mkdir()
    (tmp_path / "mn_wifi/__init__.py").touch()
    (tmp_path / "mn_wifi/net.py").write_text("import a_package_that_nobody_has\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in requirements.TOOLS:
        (tools / tool).symlink_to("/bin/true")
    path = f"{tools}:{SYSTEM_PATH}"
    output = output_of(
        start, "-m", "accesspoint.topologies.lab", "--lab", "mininet-wifi", code=2, PYTHONPATH=str(tmp_path), PATH=path
    )
    assert output.startswith("error: Mininet-WiFi cannot be imported: No module named 'a_package_that_nobody_has'")


@needs_parts
@pytest.mark.usefixtures("privileged")
@pytest.mark.parametrize(
    ("tool", "options", "message"),
    [
        ("hostapd", [], "hostapd is missing: install it with `apt install hostapd`"),
        ("hwsim_mgmt", [], "hwsim_mgmt is missing: install it with `util/install.sh -W` of Mininet-WiFi"),
        ("wpa_supplicant", ["--wpa2"], "wpa_supplicant is missing: install it with `apt install wpasupplicant`"),
        ("wmediumd", ["--wmediumd"], "wmediumd is missing: install it with `util/install.sh -l` of Mininet-WiFi"),
    ],
)
def test_missing_tools_are_named(start: Start, tmp_path: Path, tool: str, options: list[str], message: str) -> None:
    path = path_without(tool, tmp_path)
    output = output_of(start, "-m", "accesspoint.topologies.lab", "--lab", "mininet-wifi", *options, code=2, PATH=path)
    assert output.startswith(f"error: {message}")


@needs_parts
@pytest.mark.skipif(requirements.has_radios(), reason="this kernel has mac80211_hwsim")
@pytest.mark.usefixtures("privileged")
def test_a_missing_kernel_module_is_named(start: Start, tmp_path: Path) -> None:
    output = output_of(
        start, "-m", "accesspoint.topologies.lab", "--lab", "mininet-wifi", code=2, XDG_CACHE_HOME=str(tmp_path)
    )
    assert output.startswith("error: the kernel module mac80211_hwsim is missing: Linux ")
    assert "build a user-mode kernel that has it with `make wifi-kernel`" in output


MAKE = """
import sys
from pathlib import Path
from typing import Any
from accesspoint.topologies import lab_kinds
from accesspoint.topologies.links.profiles import PROFILES
from accesspoint.topologies.requirements import LabError
WifiLab = lab_kinds.lab_class("mininet-wifi")
print(sorted(WifiLab(PROFILES["testbed"], Path("."), stations=5).ports))
for options in ({"stations": 65}, {"access_points": 4}, {"air": "thick"}, {"places": (2,)}):
    try:
        WifiLab(PROFILES["testbed"], Path("."), **options)
    except LabError as error:
        print(error)
"""


@needs_parts
@pytest.mark.usefixtures("privileged")
def test_stations_share_the_radio(start: Start) -> None:
    assert output_of(start, "-c", MAKE).splitlines() == [
        "[1, 2]",
        "65 stations are not possible on radios: give 1 to 64",
        "4 access points are not possible: give 1 to 3",
        "air 'thick' is unknown: choose one of plain, wmediumd",
        "places (2,) are not possible: give each of 1 stations an access point",
    ]


IN_THE_KERNEL = """
import sys
from pathlib import Path
from typing import Any
from accesspoint.topologies.kernels import kernel
sys.exit(kernel.run(kernel.with_radios(), "accesspoint.topologies.tests.in_the_kernel", sys.argv[1:],
[Path(sys.argv[1])]))
"""


@needs_kernel
def test_the_kernel_has_radios_and_leaves_the_machine_alone(start: Start, tmp_path: Path) -> None:
    kept, lost = tmp_path / "kept", tmp_path / "lost"
    kept.mkdir()
    output = output_of(start, "-c", IN_THE_KERNEL, str(kept), str(lost), code=7)
    assert output.splitlines()[-1] == "radios True, terminal False"
    assert (kept / "file").read_text() == "kept" and not lost.exists()


@needs_kernel
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_ended_kernel_leaves_nothing(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    process = start("-c", IN_THE_KERNEL, str(tmp_path), "sleep")
    assert eventually((tmp_path / "file").exists, 120)
    pids = descendants(process.pid)
    assert len(pids) > 2
    process.send_signal(number)
    process.communicate(timeout=120)
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 120)


@needs_kernel
def test_a_kernel_that_dies_is_told(start: Start, tmp_path: Path) -> None:
    built = tmp_path / "programmable-access-point/wifi-kernel"
    (built / "lib/modules/6").mkdir(parents=True)
    (built / "linux").write_text("#!/bin/sh\necho 'no memory' >&2\n")
    (built / "linux").chmod(0o755)
    output = output_of(start, "-c", IN_THE_KERNEL, str(tmp_path), code=1, XDG_CACHE_HOME=str(tmp_path))
    assert "LabError: the kernel" in output and output.rstrip().endswith("ended before the lab did; it said: no memory")


def documented_commands() -> list[str]:
    """Return the commands that docs/wifi.md shows at the lab's prompt."""
    match = re.search(r"^<!-- prompt -->\n```sh\n(.*?)^```", (ROOT / "docs/wifi.md").read_text(), re.M | re.S)
    assert match
    return match[1].splitlines()


@needs_parts
@pytest.mark.parametrize("security", [[], ["--wpa2"]], ids=["open", "wpa2"])
@pytest.mark.usefixtures("privileged")
def test_a_station_walks_from_one_access_point_to_the_next(start: Start, security: list[str]) -> None:
    commands = [*documented_commands(), "sta1 ping -c 3 -l 3 -i 60 -W 60 sta2"]
    assert "py net.lab.walk(1.0)" in commands
    options = ["--lab", "mininet-wifi", "--access-points", "2", "--stations", "2", "--down", "2mbit", "--rtt", "30ms"]
    output = output_of(
        start,
        "-m",
        "accesspoint.topologies.lab",
        *options,
        *security,
        *(word for command in commands for word in ("--exec", command)),
    )
    found = [json.loads(line.replace("'", '"')) for line in output.splitlines() if line.startswith("{")]
    assert found[:2] == [{"sta1": "ap1", "sta2": "ap1"}, {"sta1": "ap2", "sta2": "ap1"}], output
    assert found[2] == {"ap1": 0, "ap2": 0, "sta1": 0, "sta2": 0}
    assert output.count(" received, 0% packet loss") == 3, output
    assert "Connected to" in output and "SSID: lab" in output
    received = re.search(r"([\d.]+) Mbits/sec +receiver", output)
    assert received and 1.0 < float(received[1]) < 2.0, output


@needs_parts
@pytest.mark.usefixtures("privileged")
def test_an_experiment_on_radios_writes_its_results_here(start: Start, tmp_path: Path) -> None:
    options = ["--lab", "mininet-wifi", "--down", "2mbit", "--up", "1mbit", "--seconds", "12", "--arms", "fifo"]
    output_of(start, "-m", "accesspoint.experiments", "run", "headline", *options, "--out", str(tmp_path))
    summary = json.loads((tmp_path / "headline/full/summary.json").read_text())
    assert summary["setting"] == {"lab": "mininet-wifi", "down": "2mbit", "up": "1mbit"}
    assert {"mininet-wifi", "mininet", "hostapd"} <= summary["versions"].keys()
    assert ("-um-" in summary["versions"]["kernel"]) != requirements.has_radios()
    # The window is seconds long, and what a late reader of its ends leaves is a few per cent of it.
    assert 0.2 < median(summary, "download_after") < 2.2
    check = json.loads(next(tmp_path.glob("headline/full/runs/fifo_1*/run.json")).read_text())["self_check"]
    assert check["radio_drops"] == {"ap1": 0, "sta1": 0}
    flow = check["flows"]["downlink"]
    assert 0.0 <= flow["window"]["cwnd_limited"] <= 1.0 and flow["congestion_control"] == "cubic"


def median(summary: dict[str, Any], measure: str) -> float:
    """Return the median of a measure, of the only arm."""
    (cell,) = (cell for cell in summary["cells"] if cell["measure"] == measure)
    return float(cell["median"])


FROM_A_CLONE = """
import os, runpy, sys
os.chdir(sys.argv.pop(1))
runpy.run_module("accesspoint.experiments", run_name="__main__", alter_sys=True)
"""


@needs_parts
@needs_kernel
@pytest.mark.usefixtures("privileged")
def test_radios_keep_virtual_time_at_full_rate(start: Start, tmp_path: Path) -> None:
    """And in a clone in the temporary folder, which is read-only in that kernel."""
    clone, results = tmp_path / "clone", tmp_path / "results"
    for part in ("accesspoint", "controller", "experiments", "p4src", "topologies"):
        shutil.copytree(ROOT / part, clone / part, symlinks=True)
    switch = shutil.copy2(apswitch(), clone)
    options = ["run", "headline", "--lab", "mininet-wifi", "--clock", "virtual", "--seconds", "6", "--arms", "ncr"]
    command = [str(clone), *options, "--wpa2", "--out", str(results)]
    output_of(start, "-c", FROM_A_CLONE, *command, timeout=600, PYTHONPATH=str(clone), APSWITCH=str(switch))
    summary = json.loads((results / "headline/full/summary.json").read_text())
    assert summary["unfit"] == []
    check = json.loads((results / "headline/full/runs/ncr_1/run.json").read_text())["self_check"]
    assert check["radio_drops"] == {"ap1": 0, "sta1": 0}
    assert 12.5 < median(summary, "download_after") < 14.0  # 14 Mb/s less the headers
