# SPDX-License-Identifier: Apache-2.0
"""Throughput of a stream through BATCP's proxies over two unshaped links, compared with direct TCP over one of them.

All ends run on this machine, so the ratio is one of CPU time per byte: a proxied byte passes three TCP connections.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.hosts.batcp import Daemon, python
from accesspoint.topologies.links.paths import PathHost, PathLink, Paths
from accesspoint.topologies.requirements import LabError

BYTES = 1 << 30
ROUNDS = 5
SERVER = """
import socket
listening, data = socket.create_server(("", 9000)), bytes(1 << 20)
print("up", flush=True)
while True:
    s = listening.accept()[0]
    count = int(s.recv(100))
    for _ in range(count >> 20):
        s.sendall(data)
    s.close()
"""
# ADDRESS COUNT [SOCKS5 proxy's port]: reads COUNT bytes and prints bytes per second.
CLIENT = """
import socket, struct, sys, time
to, count = sys.argv[1], int(sys.argv[2])
if sys.argv[3:]:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[3])))
    s.sendall(b"\\5\\1\\0")
    s.recv(2)
    s.sendall(b"\\5\\1\\0\\1" + socket.inet_aton(to) + struct.pack("!H", 9000))
    s.recv(10)
else:
    s = socket.create_connection((to, 9000))
s.sendall(str(count).encode())
buffer, got, start = bytearray(1 << 20), 0, None
while length := s.recv_into(buffer):
    start = start or time.monotonic()
    got += length
print(got / (time.monotonic() - start) if got == count else 0)
"""


def rate(host: PathHost, *words: str) -> float:
    """Bits per second."""
    reached = 8 * float(host.run(sys.executable, "-c", CLIENT, *words))
    if not reached:
        raise LabError("a stream ended early: the measurement says nothing")
    return reached


def ready(process: "subprocess.Popen[Any]") -> None:
    if not process.stdout or process.stdout.readline() != "up\n":
        raise LabError("the server did not start")


def proxies(a: PathHost, b: PathHost, links: list[PathLink], directory: Path) -> list[str | Path]:
    """A SOCKS5 proxy at `a`, and the remote one at `b` that it reaches over all links; returns the options of a local
    proxy for the same way."""
    key = directory / "key"
    key.touch(0o600)
    key.write_text("a key that both proxies know")
    hops = [word for link in links for word in ("--interface", link.a_if, "--via", f"{link.b_ip}:7000")]
    Daemon(b, "proxy", "remote", "--listen", "0.0.0.0:7000", "--key-file", key, ready="remote proxy")
    Daemon(a, "socks", *hops, "--key-file", key, ready="SOCKS5")
    return [*hops, "--key-file", key]


def measure(step: Step) -> Raw:
    """Return bit/s, direct and through both kinds of proxies, round by round. Raises LabError."""
    reached: dict[str, list[float]] = {"direct": [], "socks": [], "caught": []}
    with Paths() as paths, tempfile.TemporaryDirectory() as directory:
        a, b = paths.host("a"), paths.host("b")
        links = [paths.wire(a, b) for _ in range(2)]
        ready(python(b, SERVER))
        way = proxies(a, b, links, Path(directory))
        address = links[0].b_ip
        for number in range(1, ROUNDS + 1):
            step(f"round {number} of {ROUNDS}: direct")
            reached["direct"].append(rate(a, address, str(BYTES)))
            step(f"round {number} of {ROUNDS}: SOCKS5 pair")
            reached["socks"].append(rate(a, address, str(BYTES), "1080"))
            step(f"round {number} of {ROUNDS}: transparent pair")
            local = Daemon(a, "proxy", "local", *way, "--private", ready="catching")
            reached["caught"].append(rate(a, address, str(BYTES)))
            local.kill()
    return reached


def rows(raw: Raw) -> list[Row]:
    """Make rows of medians; ratios are those within a round."""
    found = []
    for name, text, goal in (
        ("direct", "Gbit/s, direct TCP over one link", None),
        ("socks", "Gbit/s, SOCKS5 and remote proxy over two links", 1),
        ("caught", "Gbit/s, transparent pair over two links", 1),
    ):
        gbit = tuple(rate / 1e9 for rate in raw[name])
        found.append(Row(f"{name}_gbit", text, statistics.median(gbit), goal, rounds=gbit))
    for name, text in (("socks", "SOCKS5 pair"), ("caught", "transparent pair")):
        parts = tuple(one / direct for one, direct in zip(raw[name], raw["direct"], strict=True))
        what = f"{text}, part of direct TCP (median of rounds)"
        found.append(Row(f"{name}_of_direct", what, statistics.median(parts), rounds=parts))
    return found
