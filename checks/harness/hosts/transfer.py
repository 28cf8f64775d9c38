# SPDX-License-Identifier: Apache-2.0
"""Sends and receives TCP with a named congestion control: a program for network namespaces and other kernels.

transfer.py receive PORT                   prints {"bytes", "mbit"} of one connection: all of it, its rate after WARM_UP
transfer.py send ADDRESS PORT CONTROL PLAN prints {"bytes", "rtt_ms", "cwnd"}: all sent, means after WARM_UP
PLAN: comma-separated steps: 5s sends for 5 s, 10000b sends bytes, wait1.2s sends nothing.
CONTROL: a congestion control, or - for the system's.
"""

import json
import socket
import struct
import sys
import time

BLOCK = bytes(65536)
WARM_UP = 3.0  # s


def receive(port: int) -> None:
    listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    print("ready", flush=True)
    connection, _ = listener.accept()
    connection.settimeout(60)
    total, counted, start, last = 0, 0, 0.0, 0.0
    while block := connection.recv(1 << 20):
        last = time.monotonic()
        start = start or last + WARM_UP
        total += len(block)
        if last >= start:
            counted += len(block)
    mbit = counted * 8e-6 / (last - start) if last > start else 0.0
    print(json.dumps({"bytes": total, "mbit": mbit}), flush=True)


class Sender:
    def __init__(self, address: str, port: int, control: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if control != "-":
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        # Data that the socket holds beyond the window adds nothing, but must pass after the last step.
        self.socket.setsockopt(socket.IPPROTO_TCP, 25, 16384)  # TCP_NOTSENT_LOWAT
        self.socket.connect((address, port))
        self.socket.settimeout(0.02)
        self.started = time.monotonic()
        self.next_sample = self.started + WARM_UP
        self.rtts: list[float] = []
        self.windows: list[int] = []
        self.bytes = 0

    def send(self, seconds: float, limit: int) -> None:
        end = time.monotonic() + seconds
        while limit > 0 and (now := time.monotonic()) < end:
            try:
                sent = self.socket.send(BLOCK[:limit])
            except TimeoutError:
                sent = 0
            self.bytes += sent
            limit -= sent
            if now >= self.next_sample:
                self.next_sample = now + 0.02
                info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)  # struct tcp_info
                self.rtts.append(struct.unpack_from("I", info, 68)[0] / 1e3)
                self.windows.append(struct.unpack_from("I", info, 80)[0])

    def finish(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)
        self.socket.settimeout(60)
        self.socket.recv(1)
        mean = {
            "rtt_ms": sum(self.rtts) / max(len(self.rtts), 1),
            "cwnd": sum(self.windows) / max(len(self.windows), 1),
        }
        print(json.dumps({"bytes": self.bytes, **mean}), flush=True)


def main() -> None:
    match sys.argv[1:]:
        case ["receive", port]:
            receive(int(port))
        case ["send", address, port, control, plan]:
            sender = Sender(address, int(port), control)
            for step in plan.split(","):
                if step.startswith("wait"):
                    time.sleep(float(step[4:-1]))
                elif step.endswith("b"):
                    sender.send(60, int(step[:-1]))
                else:
                    sender.send(float(step[:-1]), sys.maxsize)
            sender.finish()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
