# SPDX-License-Identifier: Apache-2.0
"""The CWND middleware on real TCP: terminals that share a slow uplink with a deep buffer."""

import json
import os
import re
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from accesspoint.checks.harness.hosts.cell import HOSTS, Cell, Flow, Terminal
from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.requirements import ROOT, LabError

privileged = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
FIVE = ("--bandwidth", "5")
PAGE = ROOT / "docs/hosts/cwnd.md"


def start(terminals: list[Terminal]) -> list[Flow]:
    """A flow each, all of which have seen the empty link."""
    flows = [terminal.connect() for terminal in terminals]
    return [flow.go() for flow in flows]


def counted(terminal: Terminal) -> tuple[int, int]:
    """Terminals that it sees, and those that send."""
    status = terminal.status()
    return status["terminals"], status["sending"]


@privileged
def test_holds_the_ratio_of_live_connections_and_lets_go_at_the_end() -> None:
    with Cell(4) as cell:
        flows = start(cell.terminals)
        high = eventually(lambda: min(flow.ratios()[0] for flow in flows) > 8, 120)
        assert high, f"the uplink's buffer does not fill: {[flow.ratios() for flow in flows]}"
        daemons = [terminal.middleware(*FIVE) for terminal in cell.terminals]
        assert eventually(lambda: max(flow.ratios()[0] for flow in flows) < 6, 120)
        status = cell.terminals[0].status()
        assert (status["control"], status["refused"]) == ("on", 0)
        assert eventually(lambda: counted(cell.terminals[0]) == (4, 4)), status
        assert eventually(lambda: all(terminal.bounds() for terminal in cell.terminals)), status
        bounded = [flow.info()[0]["cwnd"] for flow in flows]
        for daemon in daemons:
            daemon.terminate()
            assert daemon.wait(120) == 0
        grown = eventually(lambda: all(f.info()[0]["cwnd"] > 2 * w for f, w in zip(flows, bounded, strict=True)), 120)
        assert grown, (bounded, [flow.info() for flow in flows])


@pytest.mark.realtime
@privileged
def test_the_ratio_stays_and_the_link_is_busy_and_shared() -> None:
    with Cell(4) as cell:
        flows = start(cell.terminals)
        assert eventually(lambda: min(flow.ratios()[0] for flow in flows) > 8, 120)
        for terminal in cell.terminals:
            terminal.middleware(*FIVE)
        assert eventually(lambda: max(flow.ratios()[0] for flow in flows) < 6, 120)
        ratios, before = [], [flow.info()[0]["acked"] for flow in flows]
        for _ in range(12):
            time.sleep(0.5)
            ratios.append([flow.ratios()[0] for flow in flows])
        for of_one in zip(*ratios, strict=True):
            assert statistics.median(of_one) < 6, ratios
        # 6 s of 5 Mb/s.
        sent = [flow.info()[0]["acked"] - old for flow, old in zip(flows, before, strict=True)]
        assert sum(sent) * 8 > 0.7 * 5e6 * 6
        assert sum(sent) ** 2 / len(sent) / sum(one**2 for one in sent) > 0.8, sent


@pytest.mark.realtime
@privileged
def test_a_loss_does_not_lower_the_bound() -> None:
    """The lower bound: the slow-start threshold, which a loss makes smaller, soon is the ideal window again."""
    with Cell(1) as cell:
        (terminal,) = cell.terminals
        (flow,) = start([terminal])
        assert eventually(lambda: flow.ratios()[0] > 7, 120)
        terminal.middleware(*FIVE)
        assert eventually(lambda: terminal.bounds() and terminal.bounds()[0] > 4, 120), terminal.status()
        time.sleep(3)  # the RTT is steady, so that the bound does not move
        for _ in range(2):
            terminal.host.run("tc", "qdisc", "add", "dev", "eth0", "root", "blackhole")
            time.sleep(0.1)
            terminal.host.run("tc", "qdisc", "del", "dev", "eth0", "root")
            time.sleep(2)
            (bound,) = terminal.bounds()
            (now,) = flow.info()
            assert now["ssthresh"] >= bound, (now, bound)
            assert now["cwnd"] >= 0.7 * bound, (now, bound)


@pytest.mark.realtime
@privileged
def test_announcements_have_priority() -> None:
    """DSCP CS6, by both IP versions: in a full cell they wait behind no data (WMM's voice class)."""
    with Cell(2) as cell:
        first, second = cell.terminals
        first.middleware("--observe")
        hear = (
            "import socket\n"
            "for family, level, option in ((socket.AF_INET, socket.IPPROTO_IP, 13), (socket.AF_INET6, 41, 66)):\n"
            "    s = socket.socket(family, socket.SOCK_DGRAM)\n"
            "    s.settimeout(5)\n"
            "    s.setsockopt(level, option, 1)\n"  # IP_RECVTOS, IPV6_RECVTCLASS
            "    if family == socket.AF_INET6:\n"
            "        s.setsockopt(level, 26, 1)\n"  # IPV6_V6ONLY
            "        index = socket.if_nametoindex('eth0').to_bytes(4, 'little')\n"
            "        s.setsockopt(level, 20, socket.inet_pton(family, 'ff02::114') + index)\n"  # IPV6_JOIN_GROUP
            "    s.bind(('', 24530))\n"
            "    print(s.recvmsg(99, 99)[1][0][2][0])\n"
        )
        assert second.host.run("python3", "-c", hear).split() == ["192", "192"]


@pytest.mark.realtime
@privileged
def test_partly_deployed() -> None:
    with Cell(3) as cell:
        first, second, plain = cell.terminals
        for terminal in (first, second):
            terminal.middleware(*FIVE)
        flows = start(cell.terminals)
        for terminal in (first, second):
            assert eventually(terminal.bounds, 120)
        # A terminal without the middleware is neither counted nor bounded, and one with it is not starved.
        assert eventually(lambda: counted(first) == (2, 2)), first.status()
        before = [flow.info()[0] for flow in flows]
        time.sleep(6)
        after = [flow.info()[0] for flow in flows]
        sent = [now["acked"] - old["acked"] for now, old in zip(after, before, strict=True)]
        assert min(sent) > 30_000, (before, after)
        # A bound of the moment may be above the window without one, which grows as long as nothing is lost.
        assert sent[2] > 2 * max(sent[:2]) and after[2]["cwnd"] > 2 * before[2]["cwnd"], (before, after)
        with pytest.raises(LabError, match="no middleware runs here"):
            plain.status()


@pytest.mark.realtime
@privileged
def test_strangers_change_nothing() -> None:
    with Cell(3) as cell:
        first, second, stranger = cell.terminals
        first.middleware(*FIVE)
        leaver = second.middleware(*FIVE)
        other = stranger.middleware(*FIVE, key="not the key of the cell")
        assert eventually(lambda: first.status()["terminals"] == 2 and first.status()["datagrams"]["forged"] > 2)
        recorder = (
            "import random, socket, sys, time\n"
            "s = socket.socket(type=socket.SOCK_DGRAM)\n"
            "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
            "s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\n"
            "s.bind(('', 24530))\n"
            "heard = [s.recv(99) for _ in range(12)]\n"
            "print('recorded', flush=True)\n"
            "sys.stdin.readline()\n"
            "for i in range(60):\n"
            "    for datagram in heard:\n"
            "        s.sendto(datagram, ('255.255.255.255', 24530))\n"
            "        fuzzed = bytearray(datagram)\n"
            "        fuzzed[random.randrange(len(fuzzed))] ^= 1 << random.randrange(8)\n"
            "        s.sendto(fuzzed, ('255.255.255.255', 24530))\n"
            "    s.sendto(random.randbytes(random.randrange(1400)), ('255.255.255.255', 24530))\n"
            "    time.sleep(0.05)\n"
        )
        other.terminate()
        other.wait(120)
        play = stranger.host.popen("python3", "-c", recorder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert play.stdout
        assert play.stdout.readline() == "recorded\n"
        leaver.kill()
        leaver.wait()
        assert eventually(lambda: first.status()["terminals"] == 1)
        before = first.status()["datagrams"]
        play.communicate("play\n", timeout=120)
        status = first.status()
        after = status["datagrams"]
        assert status["terminals"] == 1, status
        assert after["accepted"] == before["accepted"]
        for kind in ("malformed", "forged", "replayed"):
            assert after[kind] - before[kind] > 20, (kind, before, after)


@privileged
def test_without_privilege_it_announces_and_counts(tmp_path: Path) -> None:
    calibration = tmp_path / "calibration.json"
    calibration.write_text('{"mbit_per_s": 19.0, "exponent": -0.2, "points": 4, "worst": 0.01}')
    with Cell(2) as cell:
        cell.terminals[0].middleware("--calibration", str(calibration))
        assert cell.terminals[0].status()["capacity"] == {"mbit_per_s": 19, "exponent": -0.2}
        weak = cell.terminals[1]
        daemon = weak.middleware(*FIVE, through=("setpriv", "--bounding-set=-all", "--inh-caps=-all"))
        assert eventually(lambda: all(terminal.status()["terminals"] == 2 for terminal in cell.terminals))
        assert weak.status()["control"].startswith("missing: BPF is not permitted: it needs root"), weak.status()
        assert cell.terminals[0].status()["control"] == "on"
        weak.connect("--pause", "0.02").go()
        assert eventually(lambda: cell.terminals[0].status()["sending"] == 1)
        daemon.terminate()
        assert "announcing and counting continue" in daemon.communicate(timeout=120)[1]
        assert daemon.returncode == 0


@privileged
def test_nobody_else_takes_the_status_sockets_place() -> None:
    """A name in the abstract namespace is whose who comes first, so both ends look at the other's user."""
    with Cell(1) as cell:
        terminal = cell.terminals[0]
        squat = "import os, socket, sys; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX)"
        squat += "; s.bind('\\0hosts-cwnd/eth0/1'); s.listen(); print('up', flush=True); sys.stdin.readline()"
        pipe = subprocess.PIPE
        squatter = terminal.host.popen("python3", "-c", squat, stdin=pipe, stdout=pipe, text=True)
        assert squatter.stdout and squatter.stdout.readline() == "up\n"
        with pytest.raises(LabError, match="no middleware runs here"):
            terminal.status()
        daemon = terminal.middleware("--observe")
        assert terminal.status()["control"] == "off (--observe)"
        assert "another `hosts cwnd run` serves eth0" in terminal.refusal("--observe")
        other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        asked = terminal.host.popen(*other, HOSTS, "cwnd", "status", stdout=pipe, stderr=pipe, text=True)
        assert "no middleware runs here" in asked.communicate(timeout=120)[1], "another user is told nothing"
        squatter.communicate("\n")
        daemon.kill()
        daemon.wait()
        with pytest.raises(LabError, match="no middleware runs here"):
            terminal.status()
        again = terminal.middleware("--observe")
        assert terminal.status()["interface"] == "eth0"
        again.terminate()
        assert again.wait(120) == 0


@pytest.mark.realtime
@privileged
def test_follows_its_interface() -> None:
    with Cell(2) as cell:
        first, second = cell.terminals
        first.middleware(*FIVE)
        second.middleware(*FIVE)
        assert eventually(lambda: first.status()["terminals"] == 2)
        first.host.ip("link", "set", "eth0", "down")
        assert eventually(lambda: not first.announces() and first.status()["terminals"] == 1)
        first.host.ip("link", "set", "eth0", "up")
        assert eventually(lambda: first.announces() and first.status()["terminals"] == 2)
        first.host.ip("link", "delete", "eth0")
        assert eventually(lambda: not first.announces())
        first.host.ip("link", "add", "eth0", "type", "veth", "peer", "name", "other")
        for name in ("eth0", "other"):
            first.host.ip("link", "set", name, "up")
        first.host.ip("address", "add", "10.2.0.1/16", "dev", "eth0")
        assert eventually(first.announces)


@pytest.mark.realtime
@privileged
def test_calibrates_live() -> None:
    with Cell(2) as cell:
        first, second = cell.terminals
        for terminal in cell.terminals:
            terminal.middleware("--observe")
        flows = [first.connect().go(), second.connect()]
        assert eventually(lambda: first.status()["kbit_per_s"] > 4000)
        command: list[str | Path] = [HOSTS, "cwnd", "calibrate", "--interface", "eth0", "--seconds", "8", "--json"]
        calibration = first.host.popen(*command, stdout=subprocess.PIPE, text=True)
        time.sleep(4)
        flows[1].go()
        fit = json.loads(calibration.communicate(timeout=120)[0])
        # A wired link: two carry as much as one, so f does not fall.
        assert 4.3 < fit["mbit_per_s"] < 6, fit
        assert -0.35 < fit["exponent"] <= 0, fit
        assert fit["points"] == 2
        assert first.status()["control"] == "off (--observe)"
        assert "another `hosts cwnd run` serves eth0" in first.refusal("--observe")


@pytest.mark.realtime
@privileged
def test_the_commands_of_its_page() -> None:
    block = re.search(r"^<!-- namespace -->\n```sh\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert block
    run, *others = block[1].splitlines()
    with Cell(1) as cell:
        terminal = cell.terminals[0]
        terminal.write_key()
        daemon = terminal.host.popen(*run.replace("cell.key", str(terminal.key_file)).split(), cwd=ROOT)
        assert eventually(terminal.announces)
        for command in others:
            assert "19.0" in terminal.host.run(*command.split(), cwd=ROOT)
        daemon.terminate()
        assert daemon.wait(120) == 0


def hosts(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([HOSTS, "cwnd", *words], capture_output=True, text=True, timeout=120)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text("0123456789abcdef\n")
    return path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--interface", "no-such", "--bandwidth", "5"], "no interface no-such"),
        (["--interface", "lo", "--bandwidth", "0"], "above 0"),
        (["--interface", "lo", "--bandwidth", "nan"], "above 0"),
        (["--interface", "lo", "--bandwidth", "5", "--exponent", "0.5"], "-10 to 0"),
        (["--interface", "lo", "--calibration", "/no-such"], "/no-such"),
        (["--interface", "lo"], "--bandwidth"),
    ],
)
def test_bad_input_is_named(words: list[str], says: str, key: Path) -> None:
    done = hosts("run", "--key-file", key, *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "panicked" not in done.stderr


def test_bad_keys_are_named(key: Path) -> None:
    def said() -> str:
        done = hosts("run", "--key-file", key, "--interface", "lo", "--observe")
        assert done.returncode == 2
        return done.stderr

    key.write_text("short\n")
    assert "holds 5 bytes" in said()
    key.write_text("0123456789abcdef")
    key.chmod(0o644)
    assert "chmod 600" in said()
    key.unlink()
    assert "No such file" in said()


def test_calibrates_from_a_file(tmp_path: Path) -> None:
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps([{"terminals": n, "mbit_per_s": 19 * n**-0.4} for n in (1, 2, 4, 10)]))
    fit = json.loads(hosts("calibrate", "--measured", measured, "--json").stdout)
    assert fit["mbit_per_s"] == pytest.approx(19)
    assert fit["exponent"] == pytest.approx(-0.4)
    assert "-0.400" in hosts("calibrate", "--measured", measured).stdout
    measured.write_text('[{"terminals": 1, "mbit": 19}]')
    done = hosts("calibrate", "--measured", measured)
    assert (done.returncode, "unknown field `mbit`" in done.stderr) == (2, True)
