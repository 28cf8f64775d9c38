# SPDX-License-Identifier: Apache-2.0
"""The buffer estimator on real paths: links with tail drop, and the access point's own gate."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.harness.hosts.pages import documented_commands
from accesspoint.checks.harness.waiting import free_port
from accesspoint.topologies.links.paths import PathHost, PathLink, Paths
from accesspoint.topologies.requirements import ROOT

pytestmark = pytest.mark.realtime

HOSTS = ROOT / "target/release/hosts"
# "QoS-guaranteed TCP on real mobile terminals", Table I (one of them is 90.5), and the batches of Fig. 1.
GATES = [(284, 16), (256, 17), (135, 12), (91, 16), (37, 12)]
PAGE = "probe-buffer"
NOBODY = 65534
privileged = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


@pytest.fixture
def paths() -> Iterator[Paths]:
    with Paths() as made:
        yield made


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text("a key that both ends know\n")
    file.chmod(0o600)
    return file


def serve(host: PathHost, key: Path, *options: str) -> "subprocess.Popen[str]":
    words: list[str | Path] = [HOSTS, "probe-buffer", "serve", "--key-file", key, *options]
    responder = host.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert responder.stdout and responder.stdout.readline().startswith("listening on ")
    return responder


def run(host: PathHost, to: str, key: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    words: list[str | Path] = [
        "nsenter",
        f"--net=/proc/{host.pid}/ns/net",
        HOSTS,
        "probe-buffer",
        "run",
        to,
        "--key-file",
        key,
        *options,
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def measure(link: PathLink, key: Path, *options: str) -> dict[str, Any]:
    serve(link.b, key)
    done = run(link.a, link.b_ip, key, "--json", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@privileged
def test_recovers_every_buffer_and_batch_of_an_access_point() -> None:
    command = next(line for line in documented_commands(PAGE) if "accesspoint.checks.harness.hosts.gates" in line)
    assert all(f" {buffer}:{batch} " in command for buffer, batch in GATES)
    command = command.replace(".venv/bin/python", sys.executable)
    done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    for (buffer, batch), line in zip(GATES, done.stdout.splitlines(), strict=True):
        found = json.loads(line)
        assert found["verdict"] == "buffer", found
        assert abs(found["packets"]["value"] - buffer) <= 2, found
        assert found["batches"][0]["packets"] == batch and found["batches"][0]["confidence"] > 0.5, found


@privileged
def test_the_page_is_true(paths: Paths) -> None:
    a, b = paths.host("a"), paths.host("b")
    link = paths.link(a, b, rate="40mbit", limit=60)
    b.ip("address", "add", "10.0.0.11/32", "dev", "lo")
    a.ip("route", "add", "10.0.0.11", "via", link.b_ip)
    make_key, serve_, *runs = [line for line in documented_commands(PAGE) if "harness.hosts.gates" not in line]
    subprocess.run(["bash", "-c", make_key], cwd=ROOT, check=True)
    responder = b.popen(*serve_.split(), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert responder.stdout and responder.stdout.readline() == "listening on [::]:8630\n"
    assert len(runs) == 2
    for line in runs:
        assert "batches" in a.run(*line.split(), cwd=ROOT, timeout=120), line


@privileged
def test_tells_packets_from_bytes(paths: Paths, key: Path) -> None:
    a, b, c = (paths.host(name) for name in "abc")
    options = ("--trials", "3", "--sizes", "1500,700")
    packets = measure(paths.link(a, b, rate="10mbit", limit=64, delay="5ms"), key, *options)
    assert packets["limit"] == "packets" and abs(packets["packets"]["value"] - 64) <= 2, packets
    assert packets["batches"][0]["packets"] == 1, packets
    # 60 frames of 1514 bytes.
    size = measure(paths.link(a, c, rate="10mbit", limit=1000, limit_bytes=60 * 1514), key, *options)
    assert size["limit"] == "bytes" and abs(size["packets"]["value"] - 60) <= 2, size
    assert abs(size["bytes"]["value"] - 60 * 1500) <= 2 * 1500, size


@privileged
def test_jitter_loss_and_ipv6_change_nothing(paths: Paths, key: Path) -> None:
    a, b = paths.host("a"), paths.host("b")
    link = paths.link(a, b, rate="10mbit", limit=100, delay="10ms", jitter="2ms", loss=0.002)
    serve(b, key)
    done = run(a, f"[{link.b_ip6}]:8630", key, "--json", "--trials", "4", "--sizes", "1500")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert abs(found["packets"]["value"] - 100) <= 2, found
    assert found["batches"][0]["packets"] == 1, found


@privileged
def test_says_so_when_there_is_nothing_to_measure(paths: Paths, key: Path) -> None:
    a, b, c = (paths.host(name) for name in "abc")
    wire = paths.wire(a, b)
    serve(b, key)
    # Slow enough for a machine that is busy with other tests.
    done = run(a, wire.b_ip, key, "--max-rate", "100mbit")
    assert done.returncode == 0, done.stderr
    assert re.match(r"No bottleneck: packets arrive as fast as they are sent, at \d+\.\d+ Mbit/s\.", done.stdout)
    found = measure(paths.link(a, c, rate="4mbit", limit=900), key, "--megabytes", "1")
    assert (found["verdict"], found["sizes"], found["batches"]) == ("not-full", [], []), found
    assert 100 < found["packets"]["value"] < 700, found


@privileged
def test_the_responder_answers_no_stranger(paths: Paths, key: Path, tmp_path: Path) -> None:
    a, b = paths.host("a"), paths.host("b")
    wire = paths.wire(a, b)
    responder = serve(b, key)
    other = tmp_path / "other"
    other.write_text("a key that nobody else knows")
    other.chmod(0o600)
    done = run(a, wire.b_ip, other)
    assert done.returncode == 2
    assert done.stderr == f"error: the responder {wire.b_ip}:8630 refuses: it has another key\n"
    # UDP is never answered, and what is said before the key is short.
    script = f"""
import socket
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(0.3)
udp.connect(("{wire.b_ip}", 8630))
for size in (0, 1, 16, 1400):
    udp.send(bytes(size))
try:
    print("answered", udp.recv(100))
except TimeoutError:
    pass
for nonsense in (b"\\n", b"{{}}\\n", b"\\xff" * 5000, b'{{"nonce": "", "proof": ""}}\\n'):
    tcp = socket.create_connection(("{wire.b_ip}", 8630))
    tcp.sendall(nonsense)
    tcp.settimeout(8)
    got = b""
    try:
        while more := tcp.recv(1000):
            got += more
    except ConnectionError:
        pass
    print(len(got))
"""
    lengths = a.run(sys.executable, "-c", script, timeout=240).split()
    assert len(lengths) == 4 and all(int(length) < 200 for length in lengths), lengths
    assert responder.poll() is None
    assert run(a, wire.b_ip, key, "--max-rate", "100mbit").returncode == 0


@privileged
def test_a_flood_ends_no_measurement(paths: Paths, key: Path) -> None:
    """Datagrams without a token as fast as they go, and idle connections in all places, while it measures."""
    a, b, stranger = paths.host("a"), paths.host("b"), paths.host("stranger")
    link = paths.link(a, b, rate="4mbit", limit=50)
    wire = paths.wire(stranger, b)
    responder = serve(b, key)
    script = f"""
import socket, sys
held = [socket.create_connection(("{wire.b_ip}", 8630)) for _ in range(40)]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.connect(("{wire.b_ip}", 8630))
udp.send(b"x")
print("up", flush=True)
while True:
    udp.send(b"x")
"""
    flood = stranger.popen(sys.executable, "-c", script, stdout=subprocess.PIPE, text=True)
    assert flood.stdout and flood.stdout.readline() == "up\n"
    done = run(a, link.b_ip, key, "--json", "--trials", "2", "--sizes", "1000", "--seconds", "30")
    flood.kill()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ignored"] > 1000
    assert responder.poll() is None


@privileged
def test_a_responder_that_vanishes_is_named(paths: Paths, key: Path) -> None:
    a, b = paths.host("a"), paths.host("b")
    link = paths.link(a, b, rate="2mbit", limit=50)
    responder = serve(b, key)
    words = (HOSTS, "probe-buffer", "run", link.b_ip, "--key-file", key)
    sender = a.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(1.5)
    responder.kill()
    out, err = sender.communicate(timeout=240)
    assert (sender.returncode, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("error: ") and link.b_ip in err, err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "127.0.0.1:1", "--key-file", "KEY"), "error: connect to the responder 127.0.0.1:1 (start it there:"),
        (("run", "127.0.0.1", "--key-file", "/nowhere"), "error: key file /nowhere: No such file"),
        (("run", "127.0.0.1", "--key-file", "SHORT"), "error: key file SHORT holds 3 bytes, at least 16 are needed"),
        (("run", "127.0.0.1", "--key-file", "OPEN"), "error: key file OPEN is open to others: `chmod 600 OPEN`"),
        (("serve", "--key-file", "KEY", "--listen", "192.0.2.1:8630"), "error: listen on TCP 192.0.2.1:8630: "),
        (("run", "127.0.0.1", "--key-file", "KEY", "--max-rate", "fast"), "error: invalid value 'fast'"),
        (("run", "127.0.0.1", "--key-file", "KEY", "--sizes", "20"), "error: invalid value '20'"),
    ],
)
def test_bad_input_gets_a_clear_line(key: Path, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    short = tmp_path / "short"
    short.write_text("abc\n")
    short.chmod(0o600)
    public = tmp_path / "open"
    public.write_text("a key that everybody knows\n")
    public.chmod(0o644)
    names = {"KEY": str(key), "SHORT": str(short), "OPEN": str(public)}
    command: list[str | Path] = [HOSTS, "probe-buffer", *(names.get(word, word) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    for name, path in names.items():
        message = message.replace(name, path)
    assert done.stderr.startswith(message), done.stderr


def test_works_without_root(key: Path) -> None:
    """On loopback: sockets only, no privilege."""
    address = f"127.0.0.1:{free_port()}"
    drop = []
    if os.geteuid() == 0:
        drop = ["setpriv", "--reuid", str(NOBODY), "--clear-groups"]
        os.chown(key, NOBODY, -1)
    words: list[str | Path] = [*drop, HOSTS, "probe-buffer", "serve", "--listen", address, "--key-file", "/dev/stdin"]
    with key.open() as secret:
        responder = subprocess.Popen(words, stdin=secret, stdout=subprocess.PIPE, text=True)
    try:
        assert responder.stdout and responder.stdout.readline() == f"listening on {address}\n"
        words = [*drop, HOSTS, "probe-buffer", "run", address, "--key-file", "/dev/stdin", "--sizes", "1400"]
        with key.open() as secret:
            done = subprocess.run(words, stdin=secret, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0 and done.stdout.startswith("No bottleneck"), done.stdout + done.stderr
    finally:
        responder.kill()
        responder.communicate()
