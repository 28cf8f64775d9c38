# SPDX-License-Identifier: Apache-2.0
"""Load time of a page of 50 objects over BATCP's proxies, compared with plain TCP: links of 60 ms, as those of LTE.

Six connections at a time, as a browser has, a new one for each object. The clock of an object runs from connect to its
first byte; rounds are interleaved, ratios are taken within a round.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from accesspoint.checks.bench.hosts.batcp_proxy import proxies, ready
from accesspoint.checks.bench.report import Row, Step
from accesspoint.checks.bench.summary import Raw
from accesspoint.checks.harness.hosts.batcp import python
from accesspoint.topologies.links.paths import PathHost, Paths

OBJECTS, BYTES, AT_ONCE = 50, 20_000, 6
ROUNDS = 5
GOAL = 1.1
LTE: dict[str, Any] = {"rate": "30mbit", "delay": "30ms", "limit": 300}
WARM = 3.0  # s between rounds, for the proxy to have spare connections again
SERVER = f"""
import socket, threading
def serve(s):
    s.recv(100)
    s.sendall(bytes({BYTES}))
    s.close()
listening = socket.create_server(("", 9000), backlog=64)
print("up", flush=True)
while True:
    threading.Thread(target=serve, args=listening.accept()[:1]).start()
"""
# ADDRESS [SOCKS5 proxy's port]: prints the seconds to each object's first byte, and those of all.
CLIENT = f"""
import concurrent.futures, json, socket, struct, sys, time
to, proxy = sys.argv[1], sys.argv[2:]
def load(_):
    began = time.monotonic()
    if proxy:
        s = socket.create_connection(("127.0.0.1", int(proxy[0])))
        s.sendall(b"\\5\\1\\0")
        s.recv(2)
        s.sendall(b"\\5\\1\\0\\1" + socket.inet_aton(to) + struct.pack("!H", 9000))
        s.recv(10)
    else:
        s = socket.create_connection((to, 9000))
    s.sendall(b"GET")
    got = len(s.recv(1))
    first = time.monotonic() - began
    while data := s.recv(1 << 16):
        got += len(data)
    assert got == {BYTES}
    return first
began = time.monotonic()
with concurrent.futures.ThreadPoolExecutor({AT_ONCE}) as pool:
    firsts = list(pool.map(load, range({OBJECTS})))
print(json.dumps([firsts, time.monotonic() - began]))
"""


def page(host: PathHost, *words: str) -> tuple[list[float], float]:
    """Load a page; return the seconds to each object's first byte, and those of all. Raises LabError."""
    firsts, whole = json.loads(host.run(sys.executable, "-c", CLIENT, *words))
    return firsts, whole


def measure(step: Step, rounds: int = ROUNDS) -> Raw:
    """Return what `page` returned of both, round by round. Raises LabError."""
    raw: dict[str, list[tuple[list[float], float]]] = {"plain": [], "proxied": []}
    with Paths() as paths, tempfile.TemporaryDirectory() as directory:
        a, b, c = (paths.host(name) for name in "abc")
        links = [paths.link(a, b, **LTE) for _ in range(2)]
        behind = paths.wire(b, c)
        b.set("net.ipv4.ip_forward", 1)
        a.ip("route", "add", f"{behind.b_ip}/32", "via", links[0].b_ip)
        c.ip("route", "add", "default", "via", behind.a_ip)
        ready(python(c, SERVER))
        proxies(a, b, links, Path(directory))
        for number in range(1, rounds + 1):
            step(f"round {number} of {rounds}")
            time.sleep(WARM)
            raw["plain"].append(page(a, behind.b_ip))
            raw["proxied"].append(page(a, behind.b_ip, "1080"))
    return raw


def rows(raw: Raw) -> list[Row]:
    """Make rows: medians of the ratios within a round."""
    pairs = list(zip(raw["proxied"], raw["plain"], strict=True))
    first = tuple(proxied[0][0] / plain[0][0] for proxied, plain in pairs)
    firsts = tuple(statistics.median(proxied[0]) / statistics.median(plain[0]) for proxied, plain in pairs)
    whole = tuple(proxied[1] / plain[1] for proxied, plain in pairs)
    text = f"a page of {OBJECTS} objects over the proxies, of plain TCP's"
    median = statistics.median
    return [
        Row("batcp_page_first_byte", f"first byte of {text}", median(first), GOAL, False, first),
        Row("batcp_page_first_bytes", f"median first byte of {text}", median(firsts), GOAL, False, firsts),
        Row("batcp_page_whole", f"time for {text}", median(whole), rounds=whole),
    ]
