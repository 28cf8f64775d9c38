# SPDX-License-Identifier: Apache-2.0
"""BATCP's proxies carry unmodified programs over two interfaces, and report refused connections to them."""

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from accesspoint.checks.harness.hosts.batcp import HOSTS, NEEDS_ROOT, Daemon, python
from accesspoint.checks.harness.hosts.proxies import (
    READER,
    REMOTE,
    SINK,
    SIZE,
    SOURCE,
    WRITER,
    Scene,
    fetched,
    run_curl,
    scene,
    web,
)
from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies.links.paths import Paths
from accesspoint.topologies.requirements import ROOT

pytestmark = NEEDS_ROOT


def test_curl_through_socks_uses_both_interfaces(slow: Scene) -> None:
    expected = web(slow)
    slow.remote()
    slow.socks()
    before = slow.carried()
    assert fetched(slow, "--proxy", "socks5h://127.0.0.1:1080") == expected
    shares = [after - earlier for after, earlier in zip(slow.carried(), before, strict=True)]
    assert min(shares) > SIZE / 10, f"one interface carried nearly all: {shares}"


def test_unmodified_programs_are_caught(slow: Scene) -> None:
    expected = web(slow)
    assert slow.a.run("ip", "route", "get", slow.server, check=False) == "", "there is no way but the proxies"
    slow.remote()
    local = slow.local()
    before = slow.carried()
    assert fetched(slow) == expected
    shares = [after - earlier for after, earlier in zip(slow.carried(), before, strict=True)]
    assert min(shares) > SIZE / 10, f"one interface carried nearly all: {shares}"
    # Programs see the peer that they asked for: IPv4, IPv6, and IPv4 in IPv6.
    slow.serve(SOURCE, "9000", "300000")
    for address in (slow.server, slow.behind.b_ip6, f"::ffff:{slow.server}"):
        output = slow.a.run(sys.executable, "-c", READER, address, "9000", "0")
        assert output.splitlines()[0] == f"peer {address} 9000"
        assert output.splitlines()[-1] == "300000 end"
    # Half-closed streams: all arrives, then the answer.
    (slow.directory / "upload").write_bytes(os.urandom(SIZE))
    sink = slow.serve(SINK, "9001")
    answer = slow.a.run(sys.executable, "-c", WRITER, slow.server, "9001", str(slow.directory / "upload"))
    assert answer == f"{SIZE}\n"
    uploaded = hashlib.sha256((slow.directory / "upload").read_bytes()).hexdigest()
    assert sink.stdout
    assert sink.stdout.readline() == f"{SIZE} {uploaded} end\n"
    local.kill()
    refused = run_curl(slow, f"http://{slow.server}:8000/page")
    assert "curl: (7)" in refused, "without the proxy connects go their own way again"


def test_what_is_not_meant_is_not_caught(wires: Scene) -> None:
    first, second = wires.links
    wires.remote()
    local = wires.local("--only", "10.1.1.0/24")
    tell = """
import socket
listening = socket.create_server(("", 9100))
print("up", flush=True)
while True:
    s, peer = listening.accept()
    s.sendall(peer[0].encode())
    s.close()
"""
    for host in (wires.a, wires.b):
        process = python(host, tell)
        assert process.stdout
        assert process.stdout.readline() == "up\n"
    ask = """
import socket, sys
s = socket.socket()
if sys.argv[3:]: s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[3].encode())
s.connect((sys.argv[1], int(sys.argv[2])))
print(s.recv(100))
"""
    for address, port, words, answer in (
        (first.b_ip, "9100", [], first.b_ip.encode()),  # caught: the server sees the remote proxy
        (first.b_ip, "9100", [first.a_if], first.a_ip.encode()),  # an interface was chosen
        (second.b_ip, "9100", [], second.a_ip.encode()),  # not among --only
        ("127.0.0.1", "9100", [], b"127.0.0.1"),
    ):
        assert wires.a.run(sys.executable, "-c", ask, address, port, *words) == f"{answer!r}\n"
    older = "s.connect((sys.argv[1], int(sys.argv[2])))\ns.sendall(b'BATCP\\r\\n\\1' + bytes(56))"
    said = wires.a.run(sys.executable, "-c", ask.replace(ask.splitlines()[4], older), first.b_ip, "7000")
    assert said.startswith("b'BATCP"), "the remote proxy itself is reached directly"
    # A stranger who finds the port is reset.
    port = wires.a.run("ss", "-Hltn", "src", "127.0.0.1", "and", "sport", "!=", "9100").split()[3].rpartition(":")[2]
    assert run_curl(wires, f"http://127.0.0.1:{port}/").startswith("curl: ")
    local.await_line("was not caught")


def test_private_and_connected_networks_are_not_caught_unasked(wires: Scene) -> None:
    """The server has a private address and a public one, the way there by its links a public one beside the private."""
    first = wires.links[0]
    wires.remote()
    key = ("--key-file", wires.directory / "key")
    wires.c.ip("address", "add", "203.0.113.9/32", "dev", "lo")
    wires.b.ip("route", "add", "203.0.113.9/32", "via", wires.server)
    wires.serve(SOURCE, "9000", "1000")

    def reached(address: str) -> bool:
        ask = f"import socket; s = socket.create_connection(({address!r}, 9000), 60); print(len(s.recv(9)))"
        return wires.a.run(sys.executable, "-c", ask, check=False) == "9\n"

    local = Daemon(wires.a, "proxy", "local", *wires.via, *key, ready="catching")
    assert reached("203.0.113.9"), "there is no way but the proxies"
    assert not reached(wires.server), "a private address is left to this host's routes, which have none"
    # A network that an interface comes into is this host's own, a public one too; when it leaves it is caught again.
    wires.a.ip("address", "add", "203.0.113.1/24", "dev", first.a_if)
    assert eventually(lambda: not reached("203.0.113.9")), "a connected network is still caught"
    wires.a.ip("address", "del", "203.0.113.1/24", "dev", first.a_if)
    assert eventually(lambda: reached("203.0.113.9")), "a network that has gone is not caught"
    local.kill()
    excepting = wires.local("--except", f"{wires.server}/32")
    assert reached("203.0.113.9") and not reached(wires.server)
    excepting.kill()
    wires.local("--only", "10.0.0.0/8")
    assert reached(wires.server) and not reached("203.0.113.9")


@pytest.fixture
def cgroup2(tmp_path: Path) -> Iterator[Path]:
    """Mount the hierarchy for one test: where a machine has it differs, and another mount may lie over it."""
    root = tmp_path / "cgroup2"
    root.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", root], check=True)
    yield root
    subprocess.run(["umount", "--lazy", root], check=True)


def test_only_processes_of_the_cgroup_are_caught(wires: Scene, cgroup2: Path) -> None:
    wires.remote()
    expected = web(wires)
    cgroup = cgroup2 / f"batcp-test-{os.getpid()}"
    cgroup.mkdir()
    try:
        wires.local("--cgroup", f"/{cgroup.name}")
        outside = run_curl(wires, f"http://{wires.server}:8000/")
        assert "curl: (7)" in outside
        script = f"echo $$ > {cgroup}/cgroup.procs; exec curl -sS http://{wires.server}:8000/page | sha256sum"
        assert wires.a.run("sh", "-c", script).split()[0] == expected
    finally:
        assert eventually(lambda: "populated 0" in (cgroup / "cgroup.events").read_text())
        cgroup.rmdir()


def test_refusals_are_told_by_the_protocols(wires: Scene) -> None:
    wires.remote("--allow", f"{wires.server}:9000", "--allow", "127.0.0.1:1")
    wires.socks()
    wires.serve(SOURCE, "9000", "1000")

    def curl(*words: str) -> str:
        return run_curl(wires, "--http0.9", "-o", "/dev/null", *words)

    proxy = ("--proxy", "socks5h://127.0.0.1:1080")
    assert "(97)" not in curl(*proxy, f"http://{wires.server}:9000/"), "allowed"
    assert "(2)" in curl(*proxy, f"http://{wires.server}:9001/"), "not allowed"
    assert "(5)" in curl(*proxy, "http://127.0.0.1:1/"), "refused"
    assert "(4)" in curl(*proxy, "http://no-such-name.invalid:9000/"), "no such host"
    stranger = wires.directory / "other"
    stranger.write_text("another key than theirs")
    stranger.chmod(0o600)
    other = Daemon(wires.a, "socks", *wires.via, "--key-file", stranger, "--listen", "127.0.0.1:1081", ready="SOCKS5")
    assert "(1)" in curl("--proxy", "socks5h://127.0.0.1:1081", f"http://{wires.server}:9000/")
    other.await_line("another key")


# Opens COUNT connections to ADDRESS PORT: silent ones, and others that ask with a wrong key and then take no answer.
STRANGERS = """
import contextlib, os, socket, sys
held = []
for number in range(int(sys.argv[3])):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    held.append(s)
    if number % 2:
        with contextlib.suppress(OSError):
            s.sendall(os.urandom(64) + bytes([1, 192, 0, 2, 1, 0, 80]))
print("up", flush=True)
sys.stdin.readline()
"""


@pytest.mark.realtime
@pytest.mark.parametrize("which", ["socks", "local", "remote"])
def test_connections_beyond_the_limit_are_refused_at_once(wires: Scene, which: str) -> None:
    wires.serve(SOURCE, "9000", str(1 << 30))
    one = ("--connections", "1")
    wires.remote(*one if which == "remote" else ())
    if which == "socks":
        wires.socks(*one)
    else:
        wires.local(*one if which == "local" else ())
    reader = """
import socket, struct, sys, time
def connect():
    if sys.argv[2] != "socks":
        return socket.create_connection((sys.argv[1], 9000))
    s = socket.create_connection(("127.0.0.1", 1080))
    s.sendall(b"\\5\\1\\0")
    s.recv(2)
    s.sendall(b"\\5\\1\\0\\1" + socket.inet_aton(sys.argv[1]) + struct.pack("!H", 9000))
    print(s.recv(10)[1], end=" ")
    return s
first = connect()
first.recv(100)
started = time.monotonic()
try:
    answer = connect().recv(100)
except ConnectionResetError:
    answer = b""
print(len(answer), time.monotonic() - started < 60)
"""
    said = python(wires.a, reader, wires.server, which).communicate(timeout=120)[0]
    assert said == {"socks": "0 1 0 True\n"}.get(which, "0 True\n")


def test_hundreds_of_idle_connections_are_served(wires: Scene) -> None:
    """As many as a host with a few browsers has."""
    wires.remote()
    local = wires.socks()
    wires.serve("import socket, time; s = socket.create_server(('', 9000), backlog=512); print('up', flush=True)\n"
                "held = []\nwhile True: held.append(s.accept())")  # fmt: skip
    opener = """
import socket, struct, sys
held = []
for _ in range(300):
    s = socket.create_connection(("127.0.0.1", 1080))
    s.sendall(b"\\5\\1\\0")
    s.recv(2)
    s.sendall(b"\\5\\1\\0\\1" + socket.inet_aton(sys.argv[1]) + struct.pack("!H", 9000))
    if s.recv(10)[1] == 0:
        held.append(s)
print(len(held), flush=True)
sys.stdin.readline()
"""
    program = python(wires.a, opener, wires.server)
    assert program.stdout and program.stdout.readline() == "300\n", local.log
    assert local.status()["connections"] == 300


@pytest.mark.realtime
def test_a_spare_connection_saves_the_handshakes(tmp_path: Path) -> None:
    """With 200 ms there and back a first byte takes two round trips, as by plain TCP, and not seven."""
    with Paths() as paths:
        far = scene(paths, tmp_path, rate="20mbit", delay="100ms", limit=100)
        web(far)
        far.remote("--connections", "40")
        warm = far.socks()
        cold = far.socks("--spare", "0", "--listen", "127.0.0.1:1081")

        def first_byte(port: int) -> float:
            words = ("-sS", "-o", "/dev/null", "-w", "%{time_starttransfer}", "--proxy", f"socks5h://127.0.0.1:{port}")
            return float(far.a.run("curl", *words, "--range", "0-99", f"http://{far.server}:8000/page"))

        time.sleep(3)
        assert min(first_byte(1080) for _ in range(3)) < 0.8
        assert min(first_byte(1081) for _ in range(2)) > 1.0
        for daemon in (warm, cold):
            daemon.kill()


@pytest.mark.realtime
@pytest.mark.parametrize(("keyed", "paper"), [(True, ()), (True, ("--paper",)), (False, ("--paper",))])
def test_strangers_keep_nobody_out(wires: Scene, keyed: bool, paper: tuple[str, ...]) -> None:
    """At a remote proxy with a key, in either negotiation, and at an open one, which takes plain TCP."""
    expected = web(wires)
    key = ("--key-file", wires.directory / "key") if keyed else ()
    allow = () if keyed else ("--allow", "0.0.0.0/0")
    remote = Daemon(wires.b, *REMOTE, *key, *allow, *paper, "--connections", "8", ready="remote proxy")
    Daemon(wires.a, "socks", *wires.via, *key, *paper, ready="SOCKS5")
    strangers = python(wires.b, STRANGERS, wires.links[0].b_ip, "7000", "600")
    assert strangers.stdout
    assert strangers.stdout.readline() == "up\n"
    started = time.monotonic()
    assert fetched(wires, "--proxy", "socks5h://127.0.0.1:1080") == expected
    assert time.monotonic() - started < 5, "not after the strangers' patience"
    if paper:
        remote.await_line("is refused" if keyed else "it was evicted for others")
    assert remote.process.poll() is None


def serves_nobody(daemon: Daemon) -> bool:
    return bool(daemon.status()["connections"] == 0)


def test_status_has_figures_of_each_path(slow: Scene) -> None:
    expected = web(slow)
    remote, local = slow.remote(), slow.socks()
    assert fetched(slow, "--proxy", "socks5h://127.0.0.1:1080") == expected
    run_curl(slow, "--proxy", "socks5h://127.0.0.1:1080", "http://127.0.0.1:1/")
    for daemon, direction in ((local, "bytes_received"), (remote, "bytes_sent")):
        ended = eventually(partial(serves_nobody, daemon))
        status = daemon.status()
        paths = status["paths"]
        assert ended and (status["served"], status["failed"]) == (1, 1), status
        assert sum(path[direction] for path in paths) >= SIZE and len(paths) == 2
        assert sum(path["share"] for path in paths) == pytest.approx(1)
        assert all(path["share"] > 0 and path["rtt_ms"] > 10 for path in paths)
    assert [path["path"] for path in local.status()["paths"]] == ["eth0", "eth1"]
    assert remote.status()["arrivals"]["refused"] == remote.status()["arrivals"]["downgraded"] == 0
    assert all(path["tcp_bytes_sent"] > 0 for path in remote.status()["paths"])
    table = slow.a.run(HOSTS, "batcp", "status")
    assert "socks" in table and "eth1" in table and "remote" not in table, "it is in another namespace"
    text = slow.a.run(HOSTS, "batcp", "status", "--as", "prometheus")
    labels = f'proxy="socks",pid="{local.process.pid}",path="eth1"'
    found = re.search(rf"^batcp_path_received_bytes_total{{{labels}}} (\d+)$", text, re.M)
    assert found and int(found[1]) > 0
    other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    assert slow.a.run(*other, HOSTS, "batcp", "status", "--json", check=False) == "", "another user is told nothing"
    local.kill()
    assert slow.a.run(HOSTS, "batcp", "status", "--json") == ""
    nobody = slow.a.popen(HOSTS, "batcp", "status", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    table, reason = nobody.communicate(timeout=120)
    assert nobody.returncode == 2 and table == ""
    assert "no proxy runs in this network namespace" in reason and "`batcp socks`" in reason


@pytest.mark.realtime
def test_figures_of_each_path_are_those_of_the_links(slow: Scene) -> None:
    expected = web(slow)
    remote, local = slow.remote(), slow.socks()
    assert fetched(slow, "--proxy", "socks5h://127.0.0.1:1080") == expected
    for daemon in (local, remote):
        for path in daemon.status()["paths"]:
            assert path["share"] > 0.1 and 10 < path["rtt_ms"] < 500 and path["lost"] == 0, path
    assert all(path["tcp_bytes_sent"] > SIZE / 10 for path in remote.status()["paths"])
    text = slow.a.run(HOSTS, "batcp", "status", "--as", "prometheus")
    labels = f'proxy="socks",pid="{local.process.pid}",path="eth1"'
    found = re.search(rf"^batcp_path_received_bytes_total{{{labels}}} (\d+)$", text, re.M)
    assert found and int(found[1]) > SIZE / 10


def test_socks_users(wires: Scene) -> None:
    expected = web(wires)
    credentials = wires.directory / "credentials"
    credentials.write_text("ann:a secret\n")
    credentials.chmod(0o600)
    wires.remote()
    wires.socks("--credentials", credentials, "--listen", "0.0.0.0:1080")
    assert fetched(wires, "--proxy", "socks5h://ann:a%20secret@127.0.0.1:1080") == expected
    for user in ("ann:wrong@", ""):
        proxy = f"socks5h://{user}127.0.0.1:1080"
        assert "curl: (97)" in run_curl(wires, "--proxy", proxy, f"http://{wires.server}:8000/")


@pytest.mark.parametrize(
    ("words", "mend"),
    [
        (["socks", "--via", "127.0.0.1:1", "--listen", "0.0.0.0:1080"], "give --credentials, or listen on 127.0.0.1"),
        (["proxy", "remote", "--listen", "0.0.0.0:7000"], "give --key-file or --allow"),
        (["proxy", "remote", "--listen", "0.0.0.0:7000", "--key-file", "SHORT"], "at least 16 are needed"),
        (["proxy", "remote", "--listen", "0.0.0.0:7000", "--key-file", "OPEN"], "chmod 600"),
        (["proxy", "remote", "--listen", "0.0.0.0:7000", "--key-file", "NONE"], "No such file"),
        (["proxy", "remote", "--listen", "203.0.113.1:7000", "--allow", "10.0.0.0/8"], "listen on 203.0"),
        (["proxy", "remote", "--listen", "0.0.0.0:7000", "--allow", "10.0.0.0/33"], "10.0.0.0/8"),
        (["proxy", "local", "--via", "127.0.0.1:1", "--cgroup", "/no/such"], "no/such"),
        (["socks", "--via", "127.0.0.1:1", "--credentials", "SHORT"], "NAME:PASSWORD"),
        (["socks"], "--via <HOST:PORT>"),
        (["socks", "--via", "0.0.0.0:7000"], "0.0.0.0:7000 is an address to listen on"),
        (["proxy", "local", "--via", "no-such-name.invalid:7000"], "write HOST:PORT"),
    ],
)
def test_bad_input_is_named_with_the_mend(tmp_path: Path, words: list[str], mend: str) -> None:
    for name, mode in (("SHORT", 0o600), ("OPEN", 0o644)):
        (tmp_path / name).write_text("short")
        (tmp_path / name).chmod(mode)
    done = subprocess.run([HOSTS, "batcp", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert mend in done.stderr
    assert "panicked" not in done.stderr


@pytest.mark.parametrize(
    ("page", "remote", "local", "ready"),
    [
        ("batcp-proxy.md", "remote", "local", ["catching", "SOCKS5"]),
        ("two-uplinks.md", "server", "client", ["catching"]),
    ],
)
def test_the_commands_of_its_page(wires: Scene, page: str, remote: str, local: str, ready: list[str]) -> None:
    expected = web(wires)
    text = (ROOT / "docs/hosts" / page).read_text()
    for address, link in zip(("192.0.2.1", "198.51.100.1"), wires.links, strict=True):
        text = text.replace(address, link.b_ip)
    for host, which, said in ((wires.b, remote, ["remote proxy"]), (wires.a, local, ready)):
        block = re.search(rf"^<!-- namespace: {which} -->\n```sh\n(.*?)^```", text, re.M | re.S)
        assert block
        for command, line in zip(block[1].replace("\\\n", " ").splitlines(), said, strict=True):
            _, batcp, *words = command.replace("proxy.key", str(wires.directory / "key")).split()
            assert batcp == "batcp"
            private = ("--private",) if "local" in words else ()  # all addresses of a lab are
            Daemon(host, *words, *private, ready=line)
    for words in ((), ("--proxy", "socks5h://127.0.0.1:1080"))[: len(ready)]:
        assert fetched(wires, *words) == expected


def test_socks_and_remote_without_privileges_carry(wires: Scene) -> None:
    expected = web(wires)
    bare = ("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--", HOSTS, "batcp")
    key = ("--key-file", wires.directory / "key")
    for words in (("socks", "--paper"), ("proxy", "local", "--via", "192.0.2.1:7000")):
        refused = wires.a.popen(*bare, *words, stderr=subprocess.PIPE, text=True)
        assert "needs root" in refused.communicate(timeout=120)[1]
        assert refused.returncode == 2
    remote = wires.b.popen(*bare, *REMOTE, *key, stderr=subprocess.PIPE, text=True)
    local = wires.a.popen(*bare, "socks", *wires.via, *key, stderr=subprocess.PIPE, text=True)
    for process in (remote, local):
        assert process.stderr
        assert " on " in process.stderr.readline()
    assert fetched(wires, "--proxy", "socks5h://127.0.0.1:1080") == expected
