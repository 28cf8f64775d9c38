# SPDX-License-Identifier: Apache-2.0
"""Program of test_batcp_wireguard.py, for a kernel that has WireGuard: the commands of docs/hosts/two-uplinks.md make a
tunnel over each of two uplinks, and the proxies use both."""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from accesspoint.checks.harness.hosts.batcp import Daemon, python
from accesspoint.checks.harness.hosts.proxies import SOURCE
from accesspoint.topologies.links.paths import PathHost, PathLink, Paths
from accesspoint.topologies.requirements import ROOT

MBIT = 20
BYTES = 30_000_000
LINK: dict[str, Any] = {"rate": f"{MBIT}mbit", "limit": 200}
READER = """
import socket, sys, time
s = socket.create_connection(("127.0.0.1", 1080))
s.sendall(b"\\5\\1\\0")
s.recv(2)
s.sendall(b"\\5\\1\\0\\1" + socket.inet_aton(sys.argv[1]) + (9000).to_bytes(2, "big"))
assert s.recv(10)[1] == 0
started, count = time.monotonic(), 0
while data := s.recv(1 << 16):
    count += len(data)
print(count, time.monotonic() - started)
"""


def key(host: PathHost, folder: Path, name: str) -> None:
    """Write a private key, and the public one."""
    host.run("sh", "-ec", f"umask 077; wg genkey > {name}.wg; wg pubkey < {name}.wg > {name}.pub", cwd=folder)


def page_commands(end: str, links: list[PathLink]) -> str:
    """Return the page's commands for an end, with the lab's addresses."""
    page = (ROOT / "docs/hosts/two-uplinks.md").read_text()
    block = re.search(rf"^<!-- namespace: wireguard {end} -->\n```sh\n(.*?)^```", page, re.M | re.S)
    assert block
    return block[1].replace("192.0.2.1", links[0].b_ip).replace("198.51.100.1", links[1].b_ip)


def main() -> int:
    folder = Path(sys.argv[1])
    with Paths() as paths:
        a, b, c = (paths.host(name) for name in "abc")
        links = [paths.link(a, b, delay=delay, **LINK) for delay in ("5ms", "15ms")]
        behind = paths.wire(b, c)
        for host, end in ((b, "server"), (a, "client")):
            key(host, folder, end)
        for host, end in ((b, "server"), (a, "client")):
            host.run("sh", "-ec", page_commands(end, links), cwd=folder)
        # WireGuard seals all traffic of the uplinks: the proxies need no key of their own.
        Daemon(
            b,
            "proxy",
            "remote",
            "--listen",
            "0.0.0.0:7000",
            "--allow",
            f"{behind.b_ip}:9000",
            ready="remote proxy",
        )
        via = ("--interface", "wg0", "--via", "10.77.0.1:7000", "--interface", "wg1", "--via", "10.77.1.1:7000")
        Daemon(a, "socks", *via, ready="SOCKS5")
        source = python(c, SOURCE, "9000", str(BYTES))
        assert source.stdout and source.stdout.readline() == "up\n"
        pings = a.run("ping", "-c", "3", "-i", "0.2", "10.77.1.1")
        count, seconds = a.run(sys.executable, "-c", READER, behind.b_ip).split()
        time.sleep(0.1)
        shown = json.loads(a.run("ip", "-j", "-s", "link"))
        carried = {one["ifname"]: one["stats64"]["rx"]["bytes"] for one in shown if one["ifname"].startswith("wg")}
    found = {"bytes": int(count), "mbit": int(count) * 8e-6 / float(seconds), "carried": carried, "pings": pings}
    (folder / "found.json").write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
