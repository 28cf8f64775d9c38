# SPDX-License-Identifier: Apache-2.0
"""One TCP connection as fast as it goes: a program for network namespaces that says what it cost.

flow.py receive PORT                        prints {"bytes", "cpu"}: received; seconds of processor time used
flow.py send ADDRESS PORT CONTROL SECONDS   prints {"cpu"}
"""

import json
import socket
import sys
import time

BLOCK = 1 << 20


def receive(port: int) -> None:
    listener = socket.create_server(("", port))
    print("ready", flush=True)
    connection, _ = listener.accept()
    started, total, buffer = time.process_time(), 0, bytearray(BLOCK)
    while count := connection.recv_into(buffer):
        total += count
    print(json.dumps({"bytes": total, "cpu": time.process_time() - started}), flush=True)


def send(address: str, port: int, control: str, seconds: float) -> None:
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    connection.connect((address, port))
    block = bytes(BLOCK)
    started, end = time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        connection.sendall(block)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    print(json.dumps({"cpu": time.process_time() - started}), flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["receive", port]:
            receive(int(port))
        case ["send", address, port, control, seconds]:
            send(address, int(port), control, float(seconds))
        case _:
            sys.exit(__doc__)
