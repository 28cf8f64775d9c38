# SPDX-License-Identifier: Apache-2.0
"""Datagrams at a steady rate, to a host or to a group, as television or a camera sends them.

`python -m accesspoint.experiments.scenes.steady receive ADDRESS TO PORT` prints `ready` and then `time Mb/s` four times
a second (s since the epoch, the end of the interval; payload); it joins TO at that address's interface where TO is a
group. `... send ADDRESS TO PORT RATE SECONDS [ECN]` sends full frames from that address, RATE bit/s of Ethernet frames.
ECN: the two bits of the IP header, 2 for ECT(0) (RFC 3168); marks change nothing in the rate.
"""

import ipaddress
import select
import socket
import sys
import time

from accesspoint.topologies.links.veth import SO_RCVBUFFORCE

INTERVAL = 0.25  # s
PAYLOAD = 1472  # bytes: with UDP, IP and Ethernet a frame of FRAME
FRAME = 1514
BUFFER = 1 << 24  # bytes
NOT_ECT, ECT0 = 0, 2


def receive(address: str, to: str, port: int) -> None:
    """Receive and print rates, until the process ends."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # A loss here is one of the path, not of a receiver that had to wait for the processor.
    udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    udp.bind((to, port))
    if ipaddress.ip_address(to).is_multicast:
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(to) + socket.inet_aton(address))
    print("ready", flush=True)
    due, volume = time.time() + INTERVAL, 0
    while True:
        if select.select([udp], [], [], max(0.0, due - time.time()))[0]:
            volume += len(udp.recv(2048))
        if time.time() >= due:
            print(f"{due:.3f} {volume * 8 / INTERVAL / 1e6:.3f}", flush=True)
            due, volume = due + INTERVAL, 0


def send(address: str, to: str, port: int, rate: float, seconds: float, ecn: int = NOT_ECT) -> None:
    """Send one frame at a time, each at its time."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, 0))
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ecn)
    start = time.monotonic()
    for number in range(round(seconds * rate / 8 / FRAME)):
        time.sleep(max(0.0, start + number * 8 * FRAME / rate - time.monotonic()))
        udp.sendto(bytes(PAYLOAD), (to, port))


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        send(
            sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6]), *map(int, sys.argv[7:])
        )
