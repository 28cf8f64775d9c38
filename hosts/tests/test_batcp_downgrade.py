# SPDX-License-Identifier: Apache-2.0
"""With a key BATCP is sealed or refused: no failure on the way makes either end send the program's bytes in clear."""

import subprocess
import sys
from collections import Counter

import pytest

from accesspoint.checks.harness.hosts.batcp import NEEDS_ROOT, Daemon, python
from accesspoint.checks.harness.hosts.proxies import Scene
from accesspoint.checks.hostile.middle import FAULTS, WORDS
from accesspoint.topologies.links.paths import PathHost
from accesspoint.topologies.requirements import ROOT

pytestmark = NEEDS_ROOT

DRAWN, SEED = 200, 41
# Prints "FRAMES CLEAR" after a line on stdin: the frames of these interfaces, and those with the words in them.
CAPTURE = """
import socket, sys, threading
words, names = sys.argv[1].encode(), sys.argv[2:]
frames = clear = 0
def watch(end):
    global frames, clear
    while True:
        frame = end.recv(65535)
        frames += 1
        clear += words in frame
for name in names:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    end.bind((name, 0))
    threading.Thread(target=watch, args=(end,), daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
print(frames, clear, flush=True)
"""
# Hears the words, and says them back.
ECHO = """
import socket, sys, threading
listening = socket.create_server(("", int(sys.argv[1])), backlog=256)
print("up", flush=True)
def serve(s):
    heard = b""
    try:
        while data := s.recv(1 << 16):
            heard += data
        s.sendall(heard)
    except OSError:
        pass
    s.close()
while True:
    threading.Thread(target=serve, args=listening.accept()[:1], daemon=True).start()
"""
# COUNT times, some at a time: says the words to ADDRESS PORT through SOCKS; prints how each went.
SENDER = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
address, port, count, words = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode() * 300
def one(_):
    with socket.create_connection(("127.0.0.1", 1080), timeout=60) as s:
        s.sendall(b"\\5\\1\\0")
        s.recv(2)
        s.sendall(b"\\5\\1\\0\\1" + socket.inet_aton(address) + port.to_bytes(2, "big"))
        code, heard = s.recv(10)[1], b""
        if code:
            return f"refused {code}"
        try:
            s.sendall(words)
            s.shutdown(socket.SHUT_WR)
            while data := s.recv(1 << 16):
                heard += data
        except OSError as error:
            return type(error).__name__
        return "whole" if heard == words else "cut short"
with ThreadPoolExecutor(20) as pool:
    print("\\n".join(pool.map(one, range(count))))
"""


class Capture:
    """A watch for the words on interfaces of a host."""

    def __init__(self, host: PathHost, *interfaces: str) -> None:
        self._process = python(host, CAPTURE, WORDS.decode(), *interfaces)
        assert self._process.stdout and self._process.stdout.readline() == "ready\n"

    def seen(self) -> tuple[int, int]:
        """Return the frames so far, and those with the words in clear."""
        frames, clear = map(int, self._process.communicate("\n", timeout=120)[0].split())
        return frames, clear


def send(scene: Scene, count: int = 1) -> "Counter[str]":
    words = (scene.server, "9001", str(count), WORDS.decode())
    return Counter(scene.a.run(sys.executable, "-c", SENDER, *words).splitlines())


@pytest.mark.parametrize("paper", [False, True])
def test_syn_cookies_leave_nothing_in_clear(wires: Scene, paper: bool) -> None:
    """A SYN flood of anybody makes a server answer with cookies, which keep no options."""
    wires.b.set("net.ipv4.tcp_syncookies", 2)  # always
    words = ("--paper",) if paper else ()
    wires.serve(ECHO, "9001")
    remote, local = wires.remote(*words), wires.socks("--spare", "0", *words)
    capture = Capture(wires.a, *(link.a_if for link in wires.links))
    went = send(wires)
    frames, clear = capture.seen()
    assert frames > 5 and clear == 0
    if paper:
        assert went == {"refused 2": 1}, local.log
        local.await_line("with a key plain TCP is refused")
        remote.await_line("with a key plain TCP is refused")
        assert local.counts()["plain"] == remote.counts()["plain"] == len(wires.links)
    else:
        assert went == {"whole": 1}


@pytest.mark.realtime
@pytest.mark.parametrize("paper", [False, True])
def test_failures_on_the_way_leave_nothing_in_clear(wires: Scene, paper: bool) -> None:
    """Somebody on the way draws a fault for each connection; to the paper's option that is a peer without it."""
    words = ("--paper",) if paper else ()
    wires.serve(ECHO, "9001")
    remote = wires.remote(*words)
    command = (sys.executable, "-m", "accesspoint.checks.hostile.middle", "7001", "7000", str(SEED))
    middle = wires.b.popen(*command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert middle.stdout and middle.stdout.readline() == "up\n"
    via = [word.replace(":7000", ":7001") for word in wires.via]
    local = Daemon(
        wires.a, "socks", *via, *words, "--key-file", wires.directory / "key", "--spare", "0", "--timeout", "3",
        ready="SOCKS5",
    )  # fmt: skip
    captures = Capture(wires.a, *(link.a_if for link in wires.links)), Capture(wires.b, "lo")
    went = send(wires, DRAWN // 4 if paper else DRAWN)
    for capture in captures:
        frames, clear = capture.seen()
        assert clear == 0 and frames > (0 if paper else DRAWN)
    middle.kill()
    lines = [line.split() for line in middle.communicate()[0].splitlines()]
    drawn = Counter(fault for fault, _ in lines)
    assert not any(clear == "1" for _, clear in lines)
    print(dict(went), dict(drawn))
    if paper:
        assert went == {"refused 2": DRAWN // 4}
        return
    assert set(drawn) == set(FAULTS) and sum(drawn.values()) > DRAWN
    assert went["whole"] > DRAWN / 2 and not went["cut short"]
    assert remote.status()["arrivals"]["refused"] > 0
    remote.await_line("it has not proved the key")
    local.await_line("the peer has another key, or none")
