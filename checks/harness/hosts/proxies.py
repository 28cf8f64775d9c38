# SPDX-License-Identifier: Apache-2.0
"""Scene and helpers of the tests of BATCP's proxies.

A client `a` has two links to the proxy's host `b`; the servers are on `c`, behind `b`, and `a` has no route there.
"""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accesspoint.checks.harness.hosts.batcp import Daemon, python
from accesspoint.topologies.links.paths import PathHost, PathLink, Paths

SIZE = 8_000_000
KEY = "a key that both proxies know"
# Sends SIZE bytes to whom it accepts, and ends the stream; hears what comes and prints how it ends.
SOURCE = """
import os, socket, sys
listening = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
print("up", flush=True)
data = os.urandom(1 << 20)
while True:
    s = listening.accept()[0]
    for start in range(0, int(sys.argv[2]), len(data)):
        s.sendall(data[:int(sys.argv[2]) - start])
    s.close()
"""
# Takes what comes, prints "COUNT HASH END" for each stream, and answers with the same count.
SINK = """
import hashlib, socket, sys
listening = socket.create_server(("", int(sys.argv[1])))
print("up", flush=True)
while True:
    s = listening.accept()[0]
    count, seen, end = 0, hashlib.sha256(), "end"
    try:
        while data := s.recv(1 << 16):
            count += len(data)
            seen.update(data)
        s.sendall(str(count).encode())
    except OSError as error:
        end = type(error).__name__
    s.close()
    print(count, seen.hexdigest(), end, flush=True)
"""
# Reads a stream at leisure, until it ends or breaks.
READER = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("peer", *s.getpeername()[:2], flush=True)
count = 0
try:
    while data := s.recv(1 << 16):
        count += len(data)
        if count < 200_000: print("reading", flush=True)
        time.sleep(float(sys.argv[3]))
    print(count, "end", flush=True)
except OSError as error:
    print(count, type(error).__name__, flush=True)
"""
# Sends a file and ends the stream, half closed; prints the answer.
WRITER = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
try:
    s.sendall(open(sys.argv[3], "rb").read())
    s.shutdown(socket.SHUT_WR)
    print(s.recv(100).decode())
except OSError as error:
    print(type(error).__name__)
"""


@dataclass
class Scene:
    paths: Paths
    a: PathHost
    b: PathHost
    c: PathHost
    links: list[PathLink]
    behind: PathLink
    directory: Path

    @property
    def server(self) -> str:
        return self.behind.b_ip

    @property
    def via(self) -> list[str]:
        """The way of a local proxy: each link and the remote proxy's address there."""
        return [word for link in self.links for word in ("--interface", link.a_if, "--via", f"{link.b_ip}:7000")]

    def remote(self, *words: str) -> Daemon:
        return Daemon(self.b, *REMOTE, "--key-file", self.directory / "key", *words, ready="remote proxy")

    def local(self, *words: str) -> Daemon:
        key = self.directory / "key"
        # All addresses of a lab are private ones.
        private = () if "--only" in words else ("--private",)
        return Daemon(self.a, "proxy", "local", *self.via, "--key-file", key, *private, *words, ready="catching")

    def socks(self, *words: "str | Path") -> Daemon:
        return Daemon(self.a, "socks", *self.via, "--key-file", self.directory / "key", *words, ready="SOCKS5")

    def serve(self, program: str, *arguments: str) -> "subprocess.Popen[Any]":
        process = python(self.c, program, *arguments)
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        return process

    def carried(self) -> list[int]:
        """Bytes that `a` received on each of its links."""
        shown = json.loads(self.a.run("ip", "-j", "-s", "link"))
        received = {link["ifname"]: int(link["stats64"]["rx"]["bytes"]) for link in shown}
        return [received[link.a_if] for link in self.links]


REMOTE = ("proxy", "remote", "--listen", "0.0.0.0:7000")


def scene(paths: Paths, directory: Path, **model: Any) -> Scene:
    a, b, c = (paths.host(name) for name in "abc")
    links = [paths.link(a, b, **model) if model else paths.wire(a, b) for _ in range(2)]
    behind = paths.wire(b, c)
    key = directory / "key"
    key.write_text(KEY + "\n")
    key.chmod(0o600)
    return Scene(paths, a, b, c, links, behind, directory)


def web(scene: Scene) -> str:
    """Serves a page of SIZE bytes; its hash."""
    data = os.urandom(SIZE)
    (scene.directory / "page").write_bytes(data)
    process = scene.c.popen(
        sys.executable, "-u", "-m", "http.server", "8000", cwd=scene.directory, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    process.stdout.readline()
    return hashlib.sha256(data).hexdigest()


def fetched(scene: Scene, *words: str) -> str:
    """The hash of the page as curl gets it."""
    got = scene.directory / "got"
    scene.a.run("curl", "-sS", "--max-time", "60", "-o", got, *words, f"http://{scene.server}:8000/page")
    return hashlib.sha256(got.read_bytes()).hexdigest()


def run_curl(scene: Scene, *words: str) -> str:
    """Return curl's output, with its error."""
    options: dict[str, Any] = {"capture_output": False, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return scene.a.run("curl", "-sS", "--max-time", "30", *words, check=False, **options)
