# SPDX-License-Identifier: Apache-2.0
"""Both kinds of scene with every kind of traffic, for real; and congestion controls that runs share."""

import contextlib
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.experiments.experiment import OURS, Arm, Scene
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.scenes.scene import HOSTS, AccessPoint, At, Flow, Link, Multihomed, Program, Sessions
from accesspoint.topologies.kernels.controls import alone
from accesspoint.topologies.links.profiles import PROFILES
from accesspoint.topologies.requirements import ROOT, congestion_controls

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not os.access(HOSTS, os.X_OK), reason=f"{HOSTS} is missing: `make hosts` builds it"),
]
ARM = Arm("ours", "ours", "ours", OURS)
SECONDS = 5.0


def played(scene: Scene, folder: Path) -> Raw:
    """The raw data of a scene, twice as fast as its timeline, played in a process of its own, as labs have to be."""
    code = (
        "import pickle, sys, pathlib\n"
        "from accesspoint.topologies.namespaces import contain\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "def main():\n"
        "    from accesspoint.experiments.lab.stage import Stage\n"
        "    scene, arm, seconds = pickle.loads((folder / 'scene').read_bytes())\n"
        "    with scene.lab(arm, 'apswitch', folder / 'logs') as lab:\n"
        "        stage = Stage(lab, scene, arm, {}, seconds, 1, folder)\n"
        "        stage.play()\n"
        "        made = pickle.dumps((stage.samples, stage.report))\n"
        "    (folder / 'made').write_bytes(made)\n"
        "    return 0\n"
        "sys.exit(contain.run(main))\n"
    )
    (folder / "scene").write_bytes(pickle.dumps((scene, ARM, SECONDS)))
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    samples, report = pickle.loads((folder / "made").read_bytes())
    (folder / "report.json").write_text(json.dumps(report))
    return Raw(samples, SECONDS, scale=SECONDS / scene.seconds)


def note(stage: object) -> None:
    stage.sample(stage.now(), "noted", 1.0, source="at")  # type: ignore[attr-defined]


def stations(folder: Path) -> Raw:
    """The raw data of four stations with sessions, a download, pings and an event."""
    profile = replace(PROFILES["lte"], shared=True)
    traffic = (
        Sessions(users=4, length=20_000, direction="up", period=1.0),
        Flow("download", "down", 2, 8, station=2, cc="reno"),
        Program((1, 3), ("ping", "-i", "0.5", "{server}"), ready="PING 10.0.0.1"),
        At(5, note),
    )
    return played(AccessPoint(profile, 10, traffic, stations=4), folder)


def test_stations_with_sessions_programs_and_events(tmp_path: Path) -> None:
    raw = stations(tmp_path)
    # Users 3 and 4 send 20 kB a second, the others all the time.
    assert raw.sources("session_bytes") == ["sta1", "sta2", "sta3", "sta4"]
    assert set(raw.sources("session_s")) <= {"sta3", "sta4"}
    assert all(value > 0 for value in raw.values("session_s"))
    assert len(raw.values("noted", "at", 4.5, 10)) == 1  # second 5 of the timeline, or later
    assert any(raw.values("rate_mbps", "download")) and raw.values("ping_ms")
    assert not any(raw.values("rate_mbps", "download", 0, 1.5))
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["flows"]["download"]["congestion_control"] == "reno"
    assert report["probes_unanswered"] is not None and report["drops"] == {}


class Joined:
    """The second host reaches the server's first address, too."""

    def prepare(self, stage: "Stage") -> None:
        link = stage.lab.links[1]
        link.a.ip("route", "add", stage.address, "via", link.b_ip)


class Unhurried(Multihomed):
    """Programs come up late on a busy machine."""

    @property
    def early(self) -> float:
        return 6.0


def test_sessions_that_the_end_cuts_off_are_kept(tmp_path: Path) -> None:
    # The server's word about them comes 0.1 s after the end.
    links = tuple(Link(name, "server", {"rate": "8mbit", "delay": "50ms"}) for name in ("sta1", "sta2"))
    traffic = (Joined(), Sessions(users=2, length=20_000, direction="down", period=1.0))
    raw = played(Unhurried(links, 10, traffic), tmp_path)
    assert raw.sources("session_bytes") == ["sta1", "sta2"]  # the first one sends all the time


@pytest.mark.realtime
def test_traffic_keeps_to_the_timeline(tmp_path: Path) -> None:
    raw = stations(tmp_path)
    assert raw.sources("session_s") == ["sta3", "sta4"] and len(raw.of("session_s")) >= 5
    assert max(raw.values("session_s")) < 5
    assert len(raw.values("noted", "at", 4.5, 8)) == 1
    assert raw.rate("download", 2, 8) > 1
    assert not any(raw.values("rate_mbps", "download", 9.5, 10))


@pytest.mark.realtime
def test_a_multihomed_host(tmp_path: Path) -> None:
    links = (
        Link("phone", "server", {"rate": "4mbit", "delay": "10ms", "limit": 50}),
        Link("phone", "server", {"rate": "8mbit"}, back={"rate": "2mbit"}),
    )
    raw = played(Multihomed(links, 10, (Flow("up", "up"), Flow("down", "down", 5))), tmp_path)
    assert 2 < raw.rate("up", 2, 10) < 4 and 2 < raw.rate("down", 6, 10) < 4
    report = json.loads((tmp_path / "report.json").read_text())
    assert set(report["flows"]) == {"up", "down"} and report["timer_late_p99_ms"] is not None
    assert report["flows"]["up"]["congestion_control"] == "cubic" and report["flows"]["up"]["ecn"]


def test_runs_share_a_congestion_control_until_the_last_one_ends() -> None:
    if not os.access("/sys/kernel/btf/vmlinux", os.R_OK):
        pytest.skip("this kernel has no BTF, which congestion controls in BPF need")
    hold = (
        "import sys\nfrom accesspoint.experiments.scenes.congestion_controls import Controls\n"
        "with Controls(('westwood',)):\n print('held', flush=True)\n sys.stdin.read()"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", hold], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        for run in runs:
            assert run.stdout and run.stdout.readline() == "held\n"
        runs[0].kill()
        runs[0].wait()
        assert not eventually(lambda: "bpf_westwood" not in congestion_controls(), seconds=2.5)
    finally:
        for run in runs:
            run.kill()
            run.wait()
    assert eventually(lambda: "bpf_westwood" not in congestion_controls(), seconds=120)


def test_a_run_waits_for_a_control_of_another_checkout() -> None:
    if not os.access("/sys/kernel/btf/vmlinux", os.R_OK):
        pytest.skip("this kernel has no BTF, which congestion controls in BPF need")
    run = "import sys\nfrom accesspoint.experiments.scenes.congestion_controls import Controls\n"
    run += "print('begun', flush=True)\nwith Controls(('vegas_fair',)):\n print('held', flush=True)"
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(contextlib.ExitStack())
        names.enter_context(alone("vegas_fair"))
        waiting = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", run], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(waiting.kill)
        assert waiting.stdout and waiting.stdout.readline() == "begun\n"
        assert not eventually(lambda: "bpf_vegas_fair" in congestion_controls(), seconds=2.5)
        assert waiting.poll() is None
        names.close()
        assert waiting.stdout.readline() == "held\n"
        assert waiting.wait() == 0
