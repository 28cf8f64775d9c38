# SPDX-License-Identifier: Apache-2.0
"""BATCP's proxies send a program's bytes with the program's DSCP, on each link and both ways."""

import json
import subprocess
import sys
from typing import Any

import pytest

from accesspoint.checks.harness.hosts.batcp import NEEDS_ROOT, python
from accesspoint.checks.harness.hosts.proxies import Scene
from accesspoint.topologies.links.paths import PathHost

pytestmark = NEEDS_ROOT

EF = 46
# Prints {interface: [DSCP of the full IPv4 segments that left, of those that came]} after a line on stdin.
CAPTURE = """
import json, socket, sys, threading
seen = {name: (set(), set()) for name in sys.argv[1:]}
def watch(name, end):
    while True:
        packet, address = end.recvfrom(65535)
        if len(packet) > 1000 and packet[0] >> 4 == 4 and packet[9] == socket.IPPROTO_TCP:
            seen[name][address[2] != socket.PACKET_OUTGOING].add(packet[1] >> 2)
for name in seen:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    end.bind((name, 0))
    threading.Thread(target=watch, args=(name, end), daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps({name: [sorted(found) for found in ways] for name, ways in seen.items()}), flush=True)
"""
# Says back all that it hears, when that has ended.
ECHO = """
import socket
listening = socket.create_server(("", 9000))
print("up", flush=True)
while True:
    s, _ = listening.accept()
    heard = b""
    while data := s.recv(1 << 16):
        heard += data
    s.sendall(heard)
    s.close()
"""
# Sends megabytes with a DSCP to ADDRESS 9000, caught or through SOCKS, and hears them: both links carry some.
CLIENT = """
import socket, sys
address, codepoint, proxy = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
s = socket.socket()
s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, codepoint << 2)
s.connect(("127.0.0.1", 1080) if proxy else (address, 9000))
if proxy:
    s.sendall(b"\\5\\1\\0")
    assert s.recv(2) == b"\\5\\0"
    s.sendall(b"\\5\\1\\0\\1" + socket.inet_aton(address) + (9000).to_bytes(2, "big"))
    assert s.recv(10)[1] == 0
sent, heard = bytes(4_000_000), 0
s.sendall(sent)
s.shutdown(socket.SHUT_WR)
while data := s.recv(1 << 16):
    heard += len(data)
assert heard == len(sent), heard
"""


def capture(host: PathHost, *interfaces: str) -> "subprocess.Popen[Any]":
    process = python(host, CAPTURE, *interfaces, stdin=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("way", ["caught", "socks"])
def test_bytes_of_a_program_have_its_dscp(slow: Scene, way: str) -> None:
    slow.serve(ECHO)
    slow.remote()
    if way == "socks":
        slow.socks()
    else:
        slow.local()
    for codepoint in (EF, 0):
        links, behind = capture(slow.a, *(link.a_if for link in slow.links)), capture(slow.c, slow.behind.b_if)
        slow.a.run(sys.executable, "-c", CLIENT, slow.server, str(codepoint), *(["socks"] if way == "socks" else []))
        on_links = json.loads(links.communicate("\n", timeout=120)[0])
        assert on_links == {link.a_if: [[codepoint], [codepoint]] for link in slow.links}
        at_server = json.loads(behind.communicate("\n", timeout=120)[0])
        assert at_server == {slow.behind.b_if: [[0], [codepoint]]}, "the server sends with its own"
