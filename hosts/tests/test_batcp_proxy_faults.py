# SPDX-License-Identifier: Apache-2.0
"""BATCP's proxies never make a cut-off stream look complete, survive their interfaces, and leave nothing behind."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.harness.hosts.batcp import NEEDS_ROOT, Daemon, programs, python
from accesspoint.checks.harness.hosts.proxies import READER, REMOTE, SINK, SIZE, SOURCE, WRITER, Scene
from accesspoint.checks.harness.waiting import eventually

pytestmark = [pytest.mark.realtime, NEEDS_ROOT, pytest.mark.timeout(120)]


def reading(scene: Scene, port: str) -> "subprocess.Popen[Any]":
    """A reader that is in the middle of a long stream."""
    reader = python(scene.a, READER, scene.server, port, "0.001")
    assert reader.stdout
    for _ in range(2):
        reader.stdout.readline()
    return reader


def last_line(process: "subprocess.Popen[Any]") -> str:
    output, _ = process.communicate(timeout=240)
    return str(output.splitlines()[-1])


@pytest.mark.parametrize("whom", ["local", "remote", "both"])
def test_killed_proxies_break_streams_and_restarted_ones_serve(slow: Scene, whom: str) -> None:
    # A proxy waits that long for one that may only have lost its interfaces.
    remote, local = slow.remote("--timeout", "3"), slow.local("--timeout", "3")
    slow.serve(SOURCE, "9000", "50000000")
    sink = slow.serve(SINK, "9001")
    reader = reading(slow, "9000")
    (slow.directory / "upload").write_bytes(os.urandom(SIZE))
    writer = python(slow.a, WRITER, slow.server, "9001", str(slow.directory / "upload"))
    time.sleep(0.5)
    if whom != "local":
        remote.kill()
    if whom != "remote":
        local.kill()
    assert last_line(reader).endswith("ConnectionResetError"), "a stream that is cut off is no end of file"
    assert last_line(writer) in ("ConnectionResetError", "BrokenPipeError")
    assert sink.stdout
    assert sink.stdout.readline().split()[2] == "ConnectionResetError", "at the other end, too"
    if whom != "local":
        slow.remote()
    if whom != "remote":
        slow.local()
    assert fetched_upload(slow, sink) == SIZE


def fetched_upload(scene: Scene, sink: "subprocess.Popen[Any]") -> int:
    """Uploads the file and compares what arrived; its size."""
    path = scene.directory / "upload"
    answer = scene.a.run(sys.executable, "-c", WRITER, scene.server, "9001", str(path))
    assert sink.stdout
    count, digest, end = sink.stdout.readline().split()
    assert (digest, end) == (hashlib.sha256(path.read_bytes()).hexdigest(), "end")
    assert answer == f"{count}\n"
    return int(count)


@pytest.mark.parametrize("fault", ["down", "renumbered", "blackhole"])
def test_a_transfer_survives_an_interface(slow: Scene, fault: str) -> None:
    slow.remote()
    slow.local()
    sink = slow.serve(SINK, "9001")
    (slow.directory / "upload").write_bytes(os.urandom(SIZE))
    first = slow.links[0]

    def disturb() -> None:
        time.sleep(0.7)
        if fault == "down":
            slow.a.ip("link", "set", first.a_if, "down")
        elif fault == "blackhole":
            first.blackhole()
        else:
            slow.a.ip("address", "flush", "dev", first.a_if)
            slow.a.ip("address", "add", "10.1.1.9/24", "dev", first.a_if)

    thread = threading.Thread(target=disturb)
    thread.start()
    assert fetched_upload(slow, sink) == SIZE
    thread.join()


def test_a_hundred_kills_leave_nothing(wires: Scene) -> None:
    before = left_behind(wires)
    key = wires.directory / "key"
    for _ in range(100):
        daemons = [
            Daemon(wires.b, *REMOTE, "--key-file", key, ready=None),
            Daemon(wires.a, "proxy", "local", *wires.via, "--key-file", key, "--private", ready=None),
            Daemon(wires.a, "socks", *wires.via, "--key-file", key, ready=None),
        ]
        for daemon, ready in zip(daemons, ("remote proxy", "catching", "SOCKS5"), strict=True):
            daemon.await_line(ready)
            daemon.kill()
    eventually(lambda: left_behind(wires) == before)
    after = left_behind(wires)
    print(f"after 100 kills of each daemon: {len(after[0])} programs, {len(after[1])} cgroups, {len(after[2])} routes")
    assert after == before


def left_behind(scene: Scene) -> tuple[list[str], list[str], list[str]]:
    """Return the state that a daemon could leave behind: BPF programs, cgroups, routes and rules.

    IPv6 routes are left out: the kernel adds some by itself seconds after an interface has come up."""
    cgroups = [str(path) for path in Path("/sys/fs/cgroup").glob("**/*batcp*")]
    routes = [
        line
        for host in (scene.a, scene.b)
        for words in (("-4", "route", "show", "table", "all"), ("-4", "rule"), ("-6", "rule"))
        for line in host.ip(*words).splitlines()
    ]
    return programs(), cgroups, routes


def test_a_killed_proxy_breaks_plain_streams_too(slow: Scene) -> None:
    sink = slow.serve(SINK, "9001")
    slow.a.ip("route", "add", slow.server, "via", slow.links[0].b_ip)
    slow.b.set("net.ipv4.ip_forward", 1)
    slow.c.ip("route", "add", "default", "via", slow.behind.a_ip)
    socks = Daemon(slow.a, "socks", "--paper", "--interface", slow.links[0].a_if, ready="SOCKS5")
    program = """
import socket, struct, sys
s = socket.create_connection(("127.0.0.1", 1080))
s.sendall(b"\\5\\1\\0\\5\\1\\0\\1" + socket.inet_aton(sys.argv[1]) + struct.pack("!H", 9001))
s.recv(12, socket.MSG_WAITALL)
s.sendall(bytes(100_000))
print("sent", flush=True)
s.recv(1)
"""
    client = python(slow.a, program, slow.server)
    assert client.stdout
    assert client.stdout.readline() == "sent\n"
    time.sleep(0.5)
    assert socks.counts()["plain"] == 1
    socks.kill()
    assert sink.stdout
    assert sink.stdout.readline().split()[2] == "ConnectionResetError"
    assert "ConnectionResetError" in client.communicate(timeout=120)[1]
