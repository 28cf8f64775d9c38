# SPDX-License-Identifier: Apache-2.0
"""The bystander, a client next to the attack: `python -m accesspoint.checks.hostile.bystander KIND ADDRESS PLACES` asks
for something small, over and over; with `--once` until it is answered, for 10 s at most.

A line of JSON for each request: when it began (s, monotonic), what it took (ms) and, without an answer, why.
"""

import hashlib
import hmac
import http.client
import json
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from accesspoint.checks.hostile import batcp

PATIENCE = 10.0  # s
ENTRIES = 10
Ask = Callable[[], None]


class Refused(Exception):
    """The request was not answered as it should be."""


def p4runtime(address: str, places: dict[str, Any]) -> Ask:
    """A Read of 10 entries."""
    import grpc
    from finsy.proto import p4r

    from accesspoint.checks.bench.switch.program import STATION_PORT, UPLINK_PORT, five_tuple
    from accesspoint.checks.harness.p4runtime import Client, Program, exact
    from accesspoint.topologies.requirements import ROOT

    program = Program(ROOT / "p4src/compiled/ap.json", ROOT / "p4src/compiled/ap.p4info.txtpb")
    entities = []
    for index in range(ENTRIES):
        src, dst, sport, dport = five_tuple(index)
        values = (int.from_bytes(socket.inet_aton(src), "big"), int.from_bytes(socket.inet_aton(dst), "big"), 6)
        match = [
            exact(number, value)
            for number, value in enumerate((*values, sport, dport, STATION_PORT, UPLINK_PORT, 0, 0), 1)
        ]
        entities.append(p4r.Entity(table_entry=program.entry("flows_ipv4", match)))
    client = Client(address, device_id=places["device_id"], wait=PATIENCE)
    # After an attacker's own program, or without one, the entries are not there: that is an answer.
    answers = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)

    def ask() -> None:
        try:
            client.read_all(*entities)
        except grpc.RpcError as failure:
            details = (failure.details() or "")[:100]
            if failure.code() not in (*answers, grpc.StatusCode.UNKNOWN):
                raise Refused(f"{failure.code().name}: {details}") from None

    return ask


def rest(address: str, places: dict[str, Any]) -> Ask:
    """GET of an access point."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)

    def ask() -> None:
        try:
            connection.request(
                "GET", "/api/v1/access-points/ap1", headers={"authorization": f"Bearer {places['other']}"}
            )
            answer = connection.getresponse()
            body = answer.read()
        except http.client.HTTPException as error:
            connection.close()
            raise Refused(type(error).__name__) from None
        except OSError:
            connection.close()
            raise
        if answer.status != 200:
            raise Refused(f"{answer.status}: {body[:100]!r}")

    return ask


def batcp_open(address: str, places: dict[str, Any]) -> Ask:
    """The receiver's welcome to somebody with the key."""
    host, _, port = address.rpartition(":")

    def ask() -> None:
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as stream:
            _, _, sealed = batcp.begin(stream, places["key"].encode())
            sealed.send(batcp.segment(0, b"", kind=4))  # a reset: the connection is over

    return ask


def socks(_address: str, places: dict[str, Any]) -> Ask:
    """A connection through the proxies to the echo server, and one byte there and back."""

    def ask() -> None:
        with socket.create_connection(("127.0.0.1", places["socks"]), timeout=PATIENCE) as stream:
            stream.sendall(b"\5\1\0")
            batcp.took(stream, 2)
            stream.sendall(b"\5\1\0\1" + socket.inet_aton("127.0.0.1") + places["echo"].to_bytes(2, "big"))
            reply = batcp.took(stream, 10)
            if reply[1]:
                raise Refused(f"the SOCKS proxy replies {reply[1]}")
            stream.sendall(b"?")
            batcp.took(stream, 1)

    return ask


def sessions(address: str, _places: dict[str, Any]) -> Ask:
    """The name of a new run."""
    host, _, port = address.rpartition(":")

    def ask() -> None:
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as stream:
            stream.sendall(b'{"hosts_sessions":1,"run":null}\n')
            line = stream.makefile().readline()
            if '"run"' not in line:
                raise Refused(line.strip()[:100] or "closed")

    return ask


def probe(address: str, places: dict[str, Any]) -> Ask:
    """The responder's welcome to somebody with the key, and the beginning of a trial."""
    host, _, port = address.rpartition(":")

    def proof(nonce: str, own: str) -> str:
        fields = [b"hosts probe-buffer", b"sender", nonce.encode(), own.encode()]
        text = b"".join(len(field).to_bytes(8, "big") + field for field in fields)
        return hmac.new(places["key"].encode(), text, hashlib.sha256).hexdigest()

    def ask() -> None:
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as stream:
            lines = stream.makefile()
            hello = lines.readline()
            if not hello:
                raise Refused("closed")
            own = secrets.token_hex(16)
            said = {"nonce": own, "proof": proof(json.loads(hello)["nonce"], own)}
            stream.sendall(json.dumps(said).encode() + b"\n")
            line = lines.readline()
            if "measuring" in line:  # it measures with one at a time, and says so
                return
            if '"token"' not in line:
                raise Refused(line.strip()[:100] or "closed")
            stream.sendall(b'{"begin":1}\n')
            line = lines.readline()
            if '"ready"' not in line:
                raise Refused(line.strip()[:100] or "closed")

    return ask


def cwnd(_address: str, places: dict[str, Any]) -> Ask:
    """The daemon's status."""
    command = [places["hosts"], "cwnd", "status", "--json", "--interface", places["interface"]]

    def ask() -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode or '"terminals"' not in done.stdout:
            raise Refused((done.stderr.strip() or "no daemon")[:120])

    return ask


KINDS: dict[str, tuple[Callable[[str, dict[str, Any]], Ask], float]] = {
    "p4runtime": (p4runtime, 0.02),
    "rest": (rest, 0.02),
    "batcp_open": (batcp_open, 0.05),
    "socks": (socks, 0.05),
    "sessions": (sessions, 0.05),
    "probe": (probe, 0.05),
    "cwnd": (cwnd, 0.1),
}


def once(ask: Ask) -> str:
    """Ask once; return the reason why there was no answer; empty if there was one."""
    try:
        ask()
    except (Refused, OSError, ValueError, subprocess.TimeoutExpired) as error:
        return str(error) or type(error).__name__
    return ""


def main() -> None:
    kind, address, places = sys.argv[-3:]
    make, pace = KINDS[kind]
    ask = make(address, json.loads(places))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    deadline = time.monotonic() + PATIENCE
    while (why := once(ask)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if why or "--once" in sys.argv:
        sys.exit(why or None)
    print(json.dumps({"pace": pace}), flush=True)
    while True:
        begun = time.monotonic()
        failed = once(ask)
        ended = time.monotonic()
        told: dict[str, Any] = {"begun": begun, "ms": (ended - begun) * 1e3}
        print(json.dumps(told | ({"failed": failed} if failed else {})), flush=True)
        time.sleep(max(0.0, pace - (ended - begun)))


if __name__ == "__main__":
    main()
