# SPDX-License-Identifier: Apache-2.0
"""Real labs: packets get through, the links keep their rates, and nothing stays behind."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.requirements import ROOT
from accesspoint.topologies.tests.conftest import Start, descendants, links, network_namespaces
from accesspoint.topologies.tests.mininet_scripts import ASK_ON

pytestmark = pytest.mark.usefixtures("privileged")

# Up to three at once: ping waits for later answers no longer than the interval once it has had one.
PING = f"{ASK_ON}; ping -l 3 -i 60 -W 60"


def lab(start: Start, *commands: str, options: tuple[str, ...] = ()) -> str:
    """Return the output of a lab that runs these commands of the prompt."""
    process = start(
        "-m", "accesspoint.topologies.lab", *options, *(word for command in commands for word in ("--exec", command))
    )
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    return output


def test_ping_over_ipv4_and_ipv6(start: Start) -> None:
    output = lab(start, f"sta1 {PING} -c 3 server", f"sta1 {PING} -6 -c 3 fd00::1", options=("--rtt", "30ms"))
    assert output.count("3 packets transmitted, 3 received") == 2
    fastest = [float(value) for value in re.findall(r"rtt min/avg/max/mdev = ([\d.]+)/", output)]
    assert len(fastest) == 2 and all(value >= 30 for value in fastest), "the links' delay is missing"


def test_stations_reach_each_other_and_the_server(start: Start) -> None:
    output = lab(start, f"sta1 {PING} -c 2 sta3", f"sta3 {PING} -c 2 server", options=("--stations", "3"))
    assert output.count("2 packets transmitted, 2 received") == 2


def test_stations_may_share_one_downlink(start: Start, tmp_path: Path) -> None:
    said = tmp_path / "said"
    output = lab(
        start,
        f"sta1 {PING} -c 2 sta3",
        f"sta1 iperf3 -c server -R -t 600 --forceflush > {said} &",
        f"sta1 sh -c 'until grep -q bits/sec {said}; do sleep 0.1; done'",
        "sta2 iperf3 -c server -p 5202 -R -t 6 -f k",
        options=("--stations", "3", "--shared", "--plain", "--down", "4mbit", "--up", "4mbit"),
    )
    assert "2 packets transmitted, 2 received" in output
    received = re.search(r"([\d.]+) Kbits/sec +receiver", output)
    assert received and 50 < float(received[1]) < 3_400, "the other station's download took nothing of it"


def test_tcp_keeps_to_the_links_rates_and_to_its_congestion_control(start: Start) -> None:
    output = lab(
        start,
        "sta1 iperf3 -c server -R -t 6 -V -f k",
        "sta1 iperf3 -c server -p 5202 -t 6 -V -f k",
        options=("--plain", "--down", "8mbit", "--up", "2mbit", "--cc", "reno"),
    )
    down, up = (float(rate) for rate in re.findall(r"([\d.]+) Kbits/sec +receiver", output))
    # A busy machine carries less than its links.
    assert 100 < down < 8_000
    assert 50 < up < 2_000
    assert output.count("snd_tcp_congestion reno") == 2


def test_lab_dpctl_at_the_prompt_prints_the_ports(start: Start) -> None:
    output = lab(start, "dpctl show", "dpctl dump-flows")
    assert re.search(r"^port 2 \S+-ap1-2 UP in-pkts \d+", output, re.M)
    assert "dump-flows: unknown: choose show" in output


def test_rest_answers_outside_the_lab(start: Start) -> None:
    commands = ("py net.lab.rest_url", "py net.lab.rest_token", "sta1 sleep 1000")
    process = start("-m", "accesspoint.topologies.lab", *(word for command in commands for word in ("--exec", command)))
    assert process.stdout
    url, token = process.stdout.readline().strip(), process.stdout.readline().strip()
    request = urllib.request.Request(f"{url}/openapi.json", headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert "paths" in json.load(answer)


def test_two_labs_side_by_side(start: Start, tmp_path: Path) -> None:
    over = tmp_path / "over"
    ping = f"while [ ! -e {over} ]; do ping -c 1 -W 60 server >/dev/null && echo answered || echo lost; sleep 0.2; done"
    busy = start("-m", "accesspoint.topologies.lab", "--exec", "py net['ap1'].grpc", "--exec", f"sta1 {ASK_ON}; {ping}")
    assert busy.stdout
    first = busy.stdout.readline().strip()
    second = lab(start, "py net['ap1'].grpc", f"sta1 {PING} -c 3 server")
    assert "3 packets transmitted, 3 received" in second
    assert first != second.splitlines()[0].strip()
    over.touch()
    rest, _ = busy.communicate(timeout=280)
    assert "answered" in rest and "lost" not in rest


@pytest.mark.parametrize(
    ("commands", "status"),
    [
        (["sta1 true"], 0),
        (["sta1 false"], 1),
        (["sta1 sh -c 'exit 7'", "sta1 true"], 7),
        (["sh exit 3", "sta1 false"], 3),
        (["nonsense"], 127),
        (["py nothing"], 1),
    ],
)
def test_lab_exec_returns_the_status_of_the_first_command_that_failed(
    start: Start, commands: list[str], status: int
) -> None:
    process = start("-m", "accesspoint.topologies.lab", *(word for command in commands for word in ("--exec", command)))
    output, _ = process.communicate(timeout=280)
    assert process.returncode == status, output


def test_lab_of_a_killed_process_leaves_no_folder_to_the_next(start: Start, tmp_path: Path) -> None:
    process = start(
        "-m", "accesspoint.topologies.lab", "--exec", "py 1", "--exec", "sta1 sleep 1000", TMPDIR=str(tmp_path)
    )
    assert process.stdout and process.stdout.readline()
    process.kill()
    process.communicate(timeout=120)
    assert [path.name[:4] for path in tmp_path.iterdir()] == ["lab-"]
    other = start("-m", "accesspoint.topologies.lab", "--exec", "sta1 true", TMPDIR=str(tmp_path))
    assert other.wait(240) == 0 and not list(tmp_path.iterdir())


def test_lab_without_root_runs_in_a_user_namespace() -> None:
    # Without the rights of root, but with its files: those of Python may be nobody else's. The right that is left is
    # asked for by who maps root (user_namespaces(7)).
    bare = ["setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all,+setfcap"]
    if subprocess.run([*bare, "unshare", "-Urnm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("user namespaces are not permitted to other users than root")
    command = [sys.executable, "-m", "accesspoint.topologies.lab", "--exec", f"sta1 {PING} -c 2 server"]
    done = subprocess.run([*bare, *command], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    output = done.stderr + done.stdout
    assert done.returncode == 0 and "2 received" in output, output
    assert output.startswith("note: without root the lab has a network of its own")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_ended_lab_leaves_nothing(start: Start, number: signal.Signals, code: int) -> None:
    commands = ("py net['ap1'].prefix", "sta1 sleep 1000", "sta1 sleep 1000")
    process = start("-m", "accesspoint.topologies.lab", *(word for command in commands for word in ("--exec", command)))
    assert process.stdout
    prefix = process.stdout.readline().strip()
    assert re.fullmatch("[0-9a-f]{4}", prefix) and f" {prefix}-ap1-1" in links()
    pids = descendants(process.pid)
    namespaces = network_namespaces(pids) - network_namespaces({process.pid})
    assert len(namespaces) == 2
    # Processes in them hold them. Their numbers say nothing later: a namespace that is made then may get one again.
    everyone = {int(path.name) for path in Path("/proc").glob("[0-9]*")}
    pids |= {pid for pid in everyone if network_namespaces({pid}) & namespaces}
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == code
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 120)
    assert eventually(lambda: f" {prefix}-" not in links(), 120)


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (("--profile", "dsl"), {}, "link profile 'dsl' is unknown"),
        (("--up", "fast"), {}, "rate 'fast'"),
        (("--rtt", "20"), {}, "time '20'"),
        (("--cc", "warp"), {}, "congestion control 'warp' is not available"),
        (("--stations", "0"), {}, "0 stations are not possible"),
        ((), {"APSWITCH": "/nowhere/apswitch"}, "the switch /nowhere/apswitch is missing"),
        ((), {"PATH": "/usr/sbin:/sbin"}, "mnexec is missing"),
    ],
)
def test_bad_input_gets_one_line(
    start: Start, options: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    process = start("-m", "accesspoint.topologies.lab", *options, "--exec", "nodes", **environment)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert output.startswith(f"error: {message}") and output.count("\n") == 1
