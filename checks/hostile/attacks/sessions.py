# SPDX-License-Identifier: Apache-2.0
"""`hosts sessions serve`: connections, runs and downloads without end."""

import json
import socket
import time

from accesspoint.checks.hostile.attack import Target, attack
from accesspoint.checks.hostile.tools import connect, exchange, idle, mutate, pour

CONTROL = b'{"hosts_sessions":1,"run":null}\n'


def request(direction: int, number: int, length: int) -> bytes:
    return bytes((direction, 0, 0, 0)) + number.to_bytes(4, "big") + length.to_bytes(8, "big")


def a_run(target: Target, streams: list[socket.socket]) -> str | None:
    """The name of a new run, which lasts as long as its connection; None: it was refused."""
    try:
        control = connect(target)
        control.settimeout(2)
        control.sendall(CONTROL)
        streams.append(control)
        return str(json.loads(control.makefile().readline())["run"])
    except (OSError, ValueError, KeyError) as error:
        target.refused("no run", error)
        return None


@attack("sessions")
def sessions_silence(target: Target) -> None:
    """3000 connections that say nothing"""
    idle(target, 3000)


@attack("sessions")
def sessions_slow_lines(target: Target) -> None:
    """3000 connections that say a line byte by byte"""
    idle(target, 3000, begin=b'{"hosts_sessions":', drip=b" ")


@attack("sessions")
def sessions_runs_without_end(target: Target) -> None:
    """3000 runs that are begun and never used"""
    idle(target, 3000, begin=CONTROL)


@attack("sessions")
def sessions_lines_without_end(target: Target) -> None:
    """Lines that never end, on 16 connections"""
    pour(target, b'{"hosts_sessions":1,"run":"', b"x" * 65536, connections=16, reads=False)


@attack("sessions")
def sessions_downloads_that_nobody_reads(target: Target) -> None:
    """1000 endless downloads that nobody reads, and uploads without end"""
    streams: list[socket.socket] = []
    run = a_run(target, streams)
    if run is None:
        return
    hello = json.dumps({"hosts_sessions": 1, "run": run, "user": 1, "congestion": None}).encode() + b"\n"
    while target.running():
        try:
            stream = connect(target, small=True)
            stream.sendall(hello + request(2, 1, (1 << 64) - 1))
            streams.append(stream)
        except OSError as error:
            target.refused("no connection", type(error).__name__)
            time.sleep(0.05)
        if len(streams) >= 1000:
            pour(target, hello + request(1, 2, (1 << 64) - 1), bytes(1 << 20))
            return


@attack("sessions")
def sessions_congestion_controls(target: Target) -> None:
    """Data connections that ask for every congestion control, and for names that are none"""
    streams: list[socket.socket] = []
    run = a_run(target, streams)
    if run is None:
        return
    names = ["bbr", "vegas", "cubic", "x" * 3000, "../../x", "\0", ""]
    said = (
        json.dumps({"hosts_sessions": 1, "run": run, "user": 1, "congestion": names[n % len(names)]}).encode() + b"\n"
        for n in range(1 << 30)
    )
    exchange(target, said)


@attack("sessions", short=True)
def sessions_mutations(target: Target) -> None:
    """Random mutations of valid lines and requests"""
    valid = (
        CONTROL + b'{"hosts_sessions":1,"run":"0123456789abcdef","user":1,"congestion":"reno"}\n' + request(2, 1, 100)
    )
    exchange(target, (mutate(valid, target.random) for _ in range(1 << 30)), 0.01)
