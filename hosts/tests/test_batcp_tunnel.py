# SPDX-License-Identifier: Apache-2.0
"""The tunnel between two hosts with two links: whatever happens to a link, questions are answered in time."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.harness.hosts.batcp import python
from accesspoint.checks.harness.hosts.files import HOSTS
from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.links.paths import PathHost, PathLink, Paths
from accesspoint.topologies.requirements import ROOT

pytestmark = [pytest.mark.realtime, pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")]
NEAR: dict[str, Any] = {"rate": "20mbit", "delay": "10ms", "limit": 100}
FAR: dict[str, Any] = {"rate": "10mbit", "delay": "20ms", "limit": 100}
SERVER, SERVER6 = "10.77.0.1", "fd77::1"
MAX_ANSWER_TIME = 0.2  # s, for an answer

ANSWER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 5300))
print("up", flush=True)
while True:
    question, asker = s.recvfrom(2000)
    s.sendto(question, asker)
"""
# Asks every 10 ms for some seconds; each question once, as a resolver would: prints [answered, asked, slowest in s].
ASK = """
import json, select, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 5300))
began, asked, slowest = time.monotonic(), {}, 0.0
print("up", flush=True)
number = answered = 0
while (now := time.monotonic()) < began + float(sys.argv[2]) + 1:
    if now >= began + number * 0.01 and now < began + float(sys.argv[2]):
        asked[number] = now
        s.send(b"%d" % number)
        number += 1
    if select.select([s], [], [], 0.002)[0]:
        answer = int(s.recv(2000))
        answered += 1
        slowest = max(slowest, time.monotonic() - asked.pop(answer))
print(json.dumps([answered, number, slowest]))
"""
SINK = """
import socket, sys
listening = socket.create_server((sys.argv[1], 9000))
print("up", flush=True)
s, got = listening.accept()[0], 0
while data := s.recv(1 << 16):
    got += len(data)
s.sendall(b"%d" % got)
"""
SOURCE = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 9000))
until, sent, pause, last = time.monotonic() + float(sys.argv[2]), 0, 0.0, time.monotonic()
while time.monotonic() < until:
    sent += s.send(bytes(1 << 14))
s.shutdown(socket.SHUT_WR)
print(sent, s.recv(100).decode())
"""


@dataclass
class Tunnel:
    """A tunnel that is up, and the links that it has."""

    paths: Paths
    links: list[PathLink]
    folder: Path
    client: "subprocess.Popen[Any]"
    server: "subprocess.Popen[Any]"

    @property
    def a(self) -> PathHost:
        return self.links[0].a

    @property
    def b(self) -> PathHost:
        return self.links[0].b

    def status(self, device: str = "batcp0") -> dict[str, Any]:
        done = subprocess.run([HOSTS, "batcp", "tunnel", "status", "--device", device, "--json"], capture_output=True)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def chosen(self) -> str:
        return next((link["link"] for link in self.status()["links"] if link["chosen"]), "")

    def until(self, holds: Callable[[], bool], what: str, seconds: float = 8) -> None:
        assert eventually(holds, seconds), f"{what}: {self.status()}"

    def ping(self, to: str, host: PathHost | None = None) -> bool:
        return " 0% packet loss" in (host or self.a).run("ping", "-c2", "-i0.2", "-W2", to, check=False)

    def asks(self, seconds: float, fault: Callable[[], object]) -> None:
        """Asks all the time, `fault` after a second: every question is answered in time."""
        server = started(python(self.b, ANSWER, SERVER))
        client = started(python(self.a, ASK, SERVER, str(seconds)))
        time.sleep(1)
        fault()
        answered, asked, slowest = json.loads(client.communicate(timeout=seconds + 10)[0])
        server.kill()
        server.communicate()
        assert (answered, asked > 60 * seconds) == (asked, True), self.status()
        assert slowest < MAX_ANSWER_TIME, self.status()


def started(process: "subprocess.Popen[Any]") -> "subprocess.Popen[Any]":
    assert process.stdout and process.stdout.readline() == "up\n"
    return process


def run(host: PathHost, file: Path, *words: str) -> "subprocess.Popen[Any]":
    process = host.popen(HOSTS, "batcp", "tunnel", "run", file, *words, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    line = process.stderr.readline()
    assert line.endswith("is up\n"), line
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process


def init(folder: Path, listen: list[str], interfaces: list[str]) -> None:
    words = [word for address in listen for word in ("--listen", address)]
    words += [word for name in interfaces for word in ("--interface", name)]
    subprocess.run([HOSTS, "batcp", "tunnel", "init", *words], cwd=folder, check=True)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Tunnel]]:
    """A tunnel over a near and a far link; `change` edits the client's file, `words` are options of its `run`."""
    tunnels: list[Tunnel] = []
    with Paths() as paths:

        def tunnel(change: Callable[[str], str] = str, words: tuple[str, ...] = (), v6: bool = False) -> Tunnel:
            a, b = paths.host("client"), paths.host("server")
            links = [paths.link(a, b, **NEAR), paths.link(a, b, **FAR)]
            init(tmp_path, [f"[{x.b_ip6}]:7000" if v6 else f"{x.b_ip}:7000" for x in links], [x.a_if for x in links])
            client = tmp_path / "client.toml"
            client.write_text(change(client.read_text()))
            both = run(b, tmp_path / "server.toml"), run(a, client, *words)
            made = Tunnel(paths, links, tmp_path, both[1], both[0])
            tunnels.append(made)
            made.until(lambda: sum(link["alive"] for link in made.status()["links"]) == 2, "both links live")
            return made

        yield tunnel
        for made in tunnels:
            for link in made.links:
                link.restore()
            for process in (made.client, made.server):
                process.terminate()
                assert process.wait(10) == 0
            assert "7254" not in made.a.run("ip", "rule") + made.a.run("ip", "-6", "rule"), "rules stay"


def test_no_question_is_late_while_a_link_dies(make: Callable[..., Tunnel]) -> None:
    """A black hole gives no error. The link comes back, and is used again."""
    tunnel = make()
    assert tunnel.chosen() == tunnel.links[0].a_if, "the nearer one"
    tunnel.asks(3, tunnel.links[0].blackhole)
    assert tunnel.chosen() == tunnel.links[1].a_if
    tunnel.links[0].restore()
    tunnel.until(lambda: tunnel.chosen() == tunnel.links[0].a_if, "the nearer one is used again", 20)


def test_no_question_is_late_while_an_interface_goes_down(make: Callable[..., Tunnel]) -> None:
    tunnel = make()
    link = tunnel.links[0]
    tunnel.asks(3, lambda: link.a.ip("link", "set", link.a_if, "down"))
    link.a.ip("link", "set", link.a_if, "up")
    tunnel.until(lambda: tunnel.chosen() == link.a_if, "the interface is used again", 20)


def test_a_connection_goes_on(make: Callable[..., Tunnel]) -> None:
    tunnel = make()
    sink = started(python(tunnel.b, SINK, SERVER))
    source = python(tunnel.a, SOURCE, SERVER, "6")
    time.sleep(2)
    tunnel.links[0].blackhole()
    sent, got = map(int, source.communicate(timeout=30)[0].split())
    sink.wait(10)
    assert sent == got > 3_000_000, "20, then 10 Mbit/s for six seconds, and not much less"


def test_a_download_over_quic_goes_on(make: Callable[..., Tunnel]) -> None:
    """HTTP/3 of aioquic, which knows nothing of links: it misses a second at most of a link that dies."""
    tunnel = make()
    words = [sys.executable, "-m", "accesspoint.experiments.scenes.http3"]
    server = tunnel.b.popen(*words, "serve", SERVER, "4433", stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdout and server.stdout.readline() == "ready\n"
    client = tunnel.a.popen(*words, "get", SERVER, "4433", "100000", stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert client.stdout
    rates = [float(client.stdout.readline().split()[1]) for _ in range(12)]
    tunnel.links[0].blackhole()
    after = [float(client.stdout.readline().split()[1]) for _ in range(20)]
    for process in (client, server):
        process.kill()
        process.communicate()
    assert max(rates) > 1, rates
    longest = max(len(silent) for silent in "".join("x" if rate else "." for rate in after).split("x"))
    assert longest <= 4, after  # of a quarter of a second each
    assert sum(after[-8:]) / 8 > 1, after


def test_a_link_is_renumbered(make: Callable[..., Tunnel]) -> None:
    tunnel = make()
    link = tunnel.links[0]

    def renumber() -> None:
        link.a.ip("address", "del", f"{link.a_ip}/24", "dev", link.a_if)
        link.a.ip("address", "add", link.a_ip + "0/24", "dev", link.a_if)

    tunnel.asks(3, renumber)
    moved = lambda: any(x["peer"].startswith(link.a_ip + "0:") for x in tunnel.status("batcps0")["links"])  # noqa: E731
    tunnel.until(moved, "the server follows")


def test_over_ipv6_and_for_a_network_behind(make: Callable[..., Tunnel]) -> None:
    """A router's: what it forwards goes through, what is near does not, nor what is excepted."""
    tunnel = make(v6=True, words=("--except", "203.0.113.0/24"))
    paths, a, b = tunnel.paths, tunnel.a, tunnel.b
    station = paths.host("station")
    lan = paths.wire(station, a)
    for host in (a, b):
        host.set("net.ipv4.ip_forward", 1)
    b.ip("address", "add", "198.51.100.9/32", "dev", "lo")
    b.ip("route", "add", f"{lan.a_ip}/32", "dev", "batcps0")
    station.ip("route", "add", "default", "via", lan.b_ip)
    assert tunnel.ping("198.51.100.9", station), "forwarded"
    assert tunnel.ping(SERVER6) and tunnel.ping(SERVER)
    for near in (lan.a_ip, tunnel.links[0].b_ip):
        assert "batcp0" not in a.run("ip", "route", "get", near)
    assert "batcp0" in a.run("ip", "route", "get", "203.0.114.1")
    for left_out in ("203.0.113.7", "192.168.7.7"):
        assert "batcp0" not in a.run("ip", "route", "get", left_out, check=False)


def test_costs_and_quotas(make: Callable[..., Tunnel]) -> None:
    """The cheap link is far and has a quota: then the dear one is used."""
    near = 'interface = "eth0"\ncost = 1.0'
    far = 'interface = "eth1"\ncost = 1.0'
    tunnel = make(lambda text: text.replace(near, near[:-3] + "4.0").replace(far, far + "\nquota = 300000"))
    assert tunnel.chosen() == "eth1"
    sink = started(python(tunnel.b, SINK, SERVER))
    source = python(tunnel.a, SOURCE, SERVER, "2")
    sent, got = map(int, source.communicate(timeout=30)[0].split())
    sink.wait(10)
    assert sent == got > 1_000_000
    far_link = next(link for link in tunnel.status()["links"] if link["link"] == "eth1")
    assert far_link["quota_left"] == 0 and far_link["bytes_sent"] + far_link["bytes_received"] < 600_000
    assert tunnel.chosen() == "eth0"


def test_every_packet_twice_on_demand(make: Callable[..., Tunnel]) -> None:
    tunnel = make(lambda text: text.replace("double = false", "double = true"))
    assert tunnel.ping(SERVER)
    assert tunnel.status()["packets_doubled"] >= 2
    told = tunnel.status("batcps0")
    assert sum(link["packets_received"] for link in told["links"]) >= 2 * told["packets_received"] - 2


def test_an_end_is_started_again(make: Callable[..., Tunnel]) -> None:
    tunnel = make()
    for end in ("server", "client"):
        process = getattr(tunnel, end)
        process.kill()
        process.wait()
        host = tunnel.b if end == "server" else tunnel.a
        setattr(tunnel, end, run(host, tunnel.folder / f"{end}.toml"))
        tunnel.until(lambda: tunnel.ping(SERVER), f"after the {end} was killed", 15)


def test_strangers_get_nothing(make: Callable[..., Tunnel], tmp_path: Path) -> None:
    """Octets that are none of the peer's, and recorded ones: no answer, and nothing changes."""
    tunnel = make()
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    init(stranger, [f"{tunnel.links[0].b_ip}:7000"], [tunnel.links[0].a_if])
    noise = """
import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1)
s.connect((sys.argv[1], 7000))
for kind in (0, 1, 2, 3, 4, 255):
    for length in (0, 1, 17, 77, 78, 79, 200, 1400):
        s.send(bytes([kind, 1]) + os.urandom(length))
s.send(b"")
try:
    print("answered", s.recv(2000))
except TimeoutError:
    print("nothing")
"""
    before = tunnel.status("batcps0")["datagrams_refused"]
    told = python(tunnel.a, noise, tunnel.links[0].b_ip).communicate(timeout=20)[0]
    assert told == "nothing\n"
    assert tunnel.status("batcps0")["datagrams_refused"] >= before + 48
    assert tunnel.ping(SERVER) and tunnel.status("batcps0")["sessions"] == 1


def test_the_pages_commands(tmp_path: Path) -> None:
    """docs/hosts/two-uplinks.md from nothing to a tunnel, on hosts whose addresses are those of the page."""
    page = (ROOT / "docs/hosts/two-uplinks.md").read_text()
    blocks = dict(re.findall(r"^```sh\n# in a namespace: (\w+)\n(.*?)^```", page, re.M | re.S))
    with Paths() as paths:
        a, b = paths.host("client"), paths.host("server")
        links = [paths.link(a, b, **NEAR), paths.link(a, b, **FAR)]
        for link, net in zip(links, ("192.0.2", "198.51.100"), strict=True):
            link.a.ip("address", "add", f"{net}.7/24", "dev", link.a_if)
            link.b.ip("address", "add", f"{net}.1/24", "dev", link.b_if)
        ends = []
        for name, host in (("server", b), ("client", a)):
            first, second = (line.replace("target/release/hosts", str(HOSTS)) for line in blocks[name].splitlines())
            if name == "server":
                host.run("bash", "-c", first, cwd=tmp_path)
                first = second
            ends.append(host.popen("bash", "-c", f"exec {first}", cwd=tmp_path, stderr=subprocess.PIPE, text=True))
            line = ends[-1].stderr
            assert line and line.readline().endswith("is up\n")
        assert eventually(lambda: " 0% packet loss" in a.run("ping", "-c1", "-W1", SERVER, check=False), 8)
        table = a.run("bash", "-c", second)
        assert "eth0" in table and "eth1" in table and "in use" in table
        for end in ends:
            end.terminate()
            end.communicate(timeout=10)


def test_the_unit_runs_what_there_is() -> None:
    unit = (ROOT / "hosts/batcp/batcp-tunnel@.service").read_text()
    words = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).split()
    assert words[:3] == ["ExecStart=/usr/local/bin/batcp", "tunnel", "run"]
    done = subprocess.run([HOSTS.with_name("batcp"), *words[1:3], "/nonexistent.toml"], capture_output=True, text=True)
    assert done.returncode == 2 and "/nonexistent.toml" in done.stderr
