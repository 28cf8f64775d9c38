# SPDX-License-Identifier: Apache-2.0
"""BATCP's TCP option on the wire: what is sent, what is answered, and what is ignored and counted."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accesspoint.checks.harness.hosts.batcp import NEEDS_ROOT, WIRE, Daemon, python
from accesspoint.checks.harness.hosts.wire import MSS, SYN, Segment, batcp
from accesspoint.topologies.links.paths import PathHost, PathLink, Paths

pytestmark = NEEDS_ROOT

NOBODY = "10.1.1.77"  # an address on the first link that no host has
GOOD = "fe08" + b"010042".hex()
WRONG = {
    "malformed": [
        "fe07" + b"01004".hex(),
        "fe09" + b"0100420".hex(),
        "fe02",
        "fe08" + b"01004x".hex(),
        "fe08" + b"-10042".hex(),
        "fe08000000000000",
        GOOD + "fe02",  # a good one and a bad one
        "01fe0c" + b"0100420000".hex(),
    ],
    "duplicate": [GOOD + GOOD, GOOD + "fe08" + b"020042".hex(), GOOD + "0101" + GOOD],
}
# A length that is none or leads beyond the header ends the list: what stands before it counts, as in the kernel.
CUT_OFF = ["fe", "fe00", "fe01", "fe20" + b"010042".hex(), "0101fe0c" + b"010042".hex()]


@pytest.fixture
def pair() -> Iterator[tuple[PathHost, PathHost, list[PathLink]]]:
    """Make two hosts with two links."""
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        yield a, b, [paths.wire(a, b), paths.wire(a, b)]


def remote(host: PathHost) -> Daemon:
    words = ("--paper", "--listen", "0.0.0.0:7000", "--allow", "10.0.0.0/8")
    return Daemon(host, "proxy", "remote", *words, ready="remote proxy")


def syn(host: PathHost, link: PathLink, *options: str) -> list[str]:
    """The options of the SYN-ACKs that answer SYNs with these."""
    return host.run(sys.executable, WIRE, "syn", link.b_ip, "7000", *options).splitlines()


def captured(capture: "subprocess.Popen[str]", count: int) -> list[Segment]:
    assert capture.stdout
    return [Segment(**json.loads(capture.stdout.readline())) for _ in range(count)]


def socks_connect(host: PathHost, to: str, port: int) -> int:
    """The reply code of a SOCKS5 proxy on 127.0.0.1:1080."""
    program = (
        "import socket, struct, sys\n"
        "s = socket.create_connection(('127.0.0.1', 1080)); s.sendall(b'\\5\\1\\0'); s.recv(2)\n"
        "s.sendall(b'\\5\\1\\0\\1' + socket.inet_aton(sys.argv[1]) + struct.pack('!H', int(sys.argv[2])))\n"
        "print(s.recv(10)[1])"
    )
    return int(host.run(sys.executable, "-c", program, to, str(port)))


def test_syn_and_syn_ack_carry_six_digits(pair: tuple[PathHost, PathHost, list[PathLink]]) -> None:
    a, b, links = pair
    capture = a.popen(sys.executable, WIRE, "capture", "eth0", "eth1", stdout=subprocess.PIPE, text=True)
    assert capture.stdout
    assert capture.stdout.readline() == "ready\n"
    server = remote(b)
    via = [word for link in links for word in ("--via", f"{link.b_ip}:7000")]
    client = Daemon(a, "socks", "--paper", *via, "--interface", "eth0", "--interface", "eth1", ready="SOCKS5")
    assert socks_connect(a, links[0].b_ip, 9) == 5, "the remote proxy's connect is refused"
    seen = captured(capture, 4)
    # First one interface alone, to its SYN-ACK; then the other.
    assert [(s.interface, bool(s.flags & 0x10)) for s in seen] == [
        ("eth0", False),
        ("eth0", True),
        ("eth1", False),
        ("eth1", True),
    ]
    digits = [batcp(s.options) for s in seen]
    assert all(len(found) == 1 and len(found[0]) == 6 and found[0].isdigit() for found in digits), seen
    assert digits[0] == digits[1]
    assert digits[2] == digits[3]
    assert (digits[0][0][:2], digits[2][0][:2]) == (b"02", b"01"), "how many interfaces, and which one"
    assert digits[0][0][2:] == digits[2][0][2:], "the connection's id"
    assert client.counts()["accepted"] == server.counts()["answered"] == 2


def test_a_peer_that_does_not_answer_gets_plain_tcp(
    pair: tuple[PathHost, PathHost, list[PathLink]], tmp_path: Path
) -> None:
    a, b, links = pair
    (tmp_path / "page").write_bytes(b"x" * 100_000)
    web = b.popen(sys.executable, "-u", "-m", "http.server", "8000", cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert web.stdout
    web.stdout.readline()
    client = Daemon(a, "socks", "--paper", "--interface", "eth0", "--interface", "eth1", ready="SOCKS5")
    proxy = "socks5h://127.0.0.1:1080"
    got = a.run("curl", "-sS", "--proxy", proxy, f"http://{links[0].b_ip}:8000/page")
    assert got == "x" * 100_000
    counts = client.counts()
    assert (counts["announced"], counts["accepted"], counts["plain"]) == (1, 0, 1)


def test_a_plain_client_of_a_listener_gets_plain_tcp(pair: tuple[PathHost, PathHost, list[PathLink]]) -> None:
    a, b, links = pair
    server = remote(b)
    program = (
        "import socket, sys\ns = socket.create_connection((sys.argv[1], 7000))\n"
        "s.sendall(b'\\3\\0\\1' + socket.inet_aton(sys.argv[1]) + bytes([0, 9])); print(s.recv(1)[0])"
    )
    assert a.run(sys.executable, "-c", program, links[0].b_ip) == "5\n", "the remote proxy's connect is refused"
    assert (server.counts()["answered"], server.counts()["plain"]) == (0, 1)


def test_wrong_options_on_a_syn_are_ignored_and_counted(pair: tuple[PathHost, PathHost, list[PathLink]]) -> None:
    a, b, links = pair
    server = remote(b)
    for kind, options in WRONG.items():
        before = server.counts()
        for answer in syn(a, links[0], *options):
            assert batcp(answer) == [], f"{kind}: {answer}"
        after = server.counts()
        assert after[kind] == before[kind] + len(options)
        assert after["answered"] == before["answered"] == 0
    for answer in syn(a, links[0], *CUT_OFF):
        assert batcp(answer) == []
    assert batcp(syn(a, links[0], GOOD)[0]) == [b"010042"]
    # Beside other options, with padding before and after, and with TCP Fast Open's request for a cookie.
    for padded in ("0101" + GOOD + "01", "0402" + GOOD + "030307", "2202" + GOOD):
        assert batcp(syn(a, links[0], padded)[0]) == [b"010042"], padded


def test_wrong_options_on_a_syn_ack_are_ignored_and_counted(pair: tuple[PathHost, PathHost, list[PathLink]]) -> None:
    a, b, _ = pair
    client = Daemon(a, "socks", "--paper", "--interface", "eth0", ready="SOCKS5")
    kinds = {**WRONG, "mismatched": [GOOD], "plain": [""]}
    ports = {kind: range(1000 * i, 1000 * i + len(kinds[kind])) for i, kind in enumerate(kinds, 3)}
    respond(a, b, [f"{port} {some}" for kind in kinds for port, some in zip(ports[kind], kinds[kind], strict=True)])
    for kind in kinds:
        before = client.counts()
        assert [socks_connect(a, NOBODY, port) for port in ports[kind]] == [0] * len(ports[kind])
        after, count = client.counts(), len(ports[kind])
        assert (after["plain"], after[kind]) == (before["plain"] + count, before[kind] + count)
        assert after["accepted"] == 0


def test_a_path_that_drops_the_option_is_plain_after_one_retransmission(
    pair: tuple[PathHost, PathHost, list[PathLink]],
) -> None:
    a, b, _ = pair
    client = Daemon(a, "socks", "--paper", "--interface", "eth0", ready="SOCKS5")
    respond(a, b, ["5000 drop"])
    start = time.monotonic()
    assert socks_connect(a, NOBODY, 5000) == 0
    assert 1.5 < time.monotonic() - start < 60
    counts = client.counts()
    assert (counts["announced"], counts["plain"]) == (2, 1)


def test_syn_cookies_make_it_plain_at_both_ends(pair: tuple[PathHost, PathHost, list[PathLink]]) -> None:
    a, b, links = pair
    b.set("net.ipv4.tcp_syncookies", 2)  # always
    server = remote(b)
    client = Daemon(a, "socks", "--paper", "--via", f"{links[0].b_ip}:7000", "--interface", "eth0", ready="SOCKS5")
    assert socks_connect(a, links[0].b_ip, 9) == 5, "the remote proxy's connect is refused"
    assert (client.counts()["accepted"], client.counts()["plain"]) == (0, 1)
    counts = server.counts()
    assert (counts["answered"], counts["cookies"], counts["plain"]) == (0, 1, 1)


def test_other_connections_are_left_alone(pair: tuple[PathHost, PathHost, list[PathLink]]) -> None:
    a, b, links = pair
    client, server = Daemon(a, "socks", "--paper", ready="SOCKS5"), remote(b)
    capture = a.popen(sys.executable, WIRE, "capture", "eth0", stdout=subprocess.PIPE, text=True)
    assert capture.stdout
    assert capture.stdout.readline() == "ready\n"
    listening = python(
        b, "import socket\ns = socket.create_server(('', 9000)); print('up', flush=True); s.accept()[0].send(b'x')"
    )
    assert listening.stdout
    assert listening.stdout.readline() == "up\n"
    program = "import socket, sys\nprint(socket.create_connection((sys.argv[1], 9000)).recv(1))"
    a.run(sys.executable, "-c", program, links[0].b_ip)
    assert [batcp(s.options) for s in captured(capture, 2)] == [[], []]
    for daemon in (client, server):
        assert not any(daemon.counts().values())


def respond(a: PathHost, b: PathHost, rules: list[str]) -> None:
    """Lets `b` answer SYNs to NOBODY by these rules."""
    mac = str(json.loads(b.run("ip", "-j", "link", "show", "eth0"))[0]["address"])
    a.ip("neigh", "add", NOBODY, "lladdr", mac, "dev", "eth0")
    responder = b.popen(sys.executable, WIRE, "respond", "eth0", NOBODY, stdin=subprocess.PIPE, text=True)
    assert responder.stdin
    responder.stdin.write("\n".join(rules))
    responder.stdin.close()


def test_segments_made_by_hand_are_read_back() -> None:
    segment = Segment("10.0.0.1", "10.0.0.2", 1, 2, 3, 4, SYN, MSS + GOOD)
    assert Segment.parse(segment.ip()) == segment
    assert batcp(segment.options) == [b"010042"]
