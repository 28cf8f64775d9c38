# SPDX-License-Identifier: Apache-2.0
"""Real TCP connections for tests, observed through TCP_INFO.

    flow.py receive PORT                          takes in everything, and acknowledges it
    flow.py send ADDRESS PORT [--tcp cubic] [--count N] [--pause S] [--buffer BYTES]

A sender connects, says so, and sends from the line `go` on its standard input on. It answers every other line with one
line of JSON: a list with what the kernel says of each connection.
`--pause`: sends one byte every so often instead of as much as goes. `--buffer`: bytes on the way at most, about.
"""

import argparse
import json
import os
import selectors
import socket
import struct
import sys
import time

# Offsets in struct tcp_info (linux/tcp.h).
FIELDS = {"rtt": (68, "I"), "min_rtt": (148, "I"), "ssthresh": (76, "I"), "cwnd": (80, "I"), "acked": (120, "Q")}


def receive(port: int) -> None:
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    print("listening", flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection = listener.accept()[0]
                selector.register(connection, selectors.EVENT_READ)
            elif not key.fileobj.recv(1 << 18):  # type: ignore[union-attr]
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]


def info(connection: socket.socket) -> dict[str, int]:
    raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return {name: struct.unpack_from(kind, raw, at)[0] for name, (at, kind) in FIELDS.items()}


def connect(options: argparse.Namespace) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, options.tcp.encode())
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.buffer)
    connection.connect((options.address, options.port))
    connection.setblocking(False)
    return connection


def send(options: argparse.Namespace) -> None:
    connections = [connect(options) for _ in range(options.count)]
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    bulk, due = bytes(1 << 16), float("inf")
    print("connected", flush=True)
    while True:
        wait = max(0.0, due - time.monotonic()) if due < float("inf") else None
        for key, _ in selector.select(wait):
            if key.fileobj is not sys.stdin:
                key.fileobj.send(bulk)  # type: ignore[union-attr]
                continue
            # Not readline: it may take in more lines than it returns, and select does not know of them.
            lines = os.read(0, 4096).decode().splitlines()
            if not lines:
                return
            for line in lines:
                if line != "go":
                    print(json.dumps([info(connection) for connection in connections]), flush=True)
                elif options.pause:
                    due = time.monotonic()
                else:
                    for connection in connections:
                        selector.register(connection, selectors.EVENT_WRITE)
        if time.monotonic() >= due:
            due = time.monotonic() + options.pause
            for connection in connections:
                connection.send(b"x")


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    receiver = commands.add_parser("receive")
    sender = commands.add_parser("send")
    sender.add_argument("address")
    for command in (receiver, sender):
        command.add_argument("port", type=int)
    sender.add_argument("--tcp", default="cubic")
    sender.add_argument("--count", type=int, default=1)
    sender.add_argument("--pause", type=float, default=0.0)
    sender.add_argument("--buffer", type=int, default=0)
    options = parser.parse_args()
    if options.command == "receive":
        receive(options.port)
    else:
        send(options)


if __name__ == "__main__":
    main()
