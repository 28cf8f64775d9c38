# SPDX-License-Identifier: Apache-2.0
"""Multicast at a steady rate, as television or a camera sends it.

`python -m accesspoint.experiments.scenes.multicast receive ADDRESS GROUP PORT` joins at that address's interface,
prints `ready` and then
`time Mb/s` four times a second (s since the epoch, the end of the interval; payload); `... send ADDRESS GROUP PORT RATE
SECONDS` sends full frames from that address, RATE bit/s of Ethernet frames.
"""

import select
import socket
import sys
import time

INTERVAL = 0.25  # s
PAYLOAD = 1472  # bytes: with UDP, IP and Ethernet a frame of FRAME
FRAME = 1514


def receive(address: str, group: str, port: int) -> None:
    """Receive and print rates, until the process ends."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((group, port))
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(address))
    print("ready", flush=True)
    due, volume = time.time() + INTERVAL, 0
    while True:
        if select.select([udp], [], [], max(0.0, due - time.time()))[0]:
            volume += len(udp.recv(2048))
        if time.time() >= due:
            print(f"{due:.3f} {volume * 8 / INTERVAL / 1e6:.3f}", flush=True)
            due, volume = due + INTERVAL, 0


def send(address: str, group: str, port: int, rate: float, seconds: float) -> None:
    """Send one frame at a time, each at its time."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    start = time.monotonic()
    for number in range(round(seconds * rate / 8 / FRAME)):
        time.sleep(max(0.0, start + number * 8 * FRAME / rate - time.monotonic()))
        udp.sendto(bytes(PAYLOAD), (group, port))


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        send(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6]))
