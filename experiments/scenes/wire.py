# SPDX-License-Identifier: Apache-2.0
"""The rate of an address's frames as they reach an interface, sent again or not.

`python -m accesspoint.experiments.scenes.wire INTERFACE ADDRESS` prints `ready` and then `time Mb/s` four times a
second (s since the epoch, the end of the interval; Ethernet frames of IPv4 packets from that address).
"""

import contextlib
import ipaddress
import select
import socket
import sys
import time

INTERVAL = 0.25  # s
ETH_P_IP = 0x0800
ETHERNET = 14  # bytes
SOURCE = slice(12, 16)  # of an IPv4 header


def watch(interface: str, address: str) -> None:
    """Print the rates of an interface, until the process ends."""
    source = ipaddress.IPv4Address(address).packed
    # From the IP header on. Of this protocol alone, it sees what arrives, not what leaves.
    end = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
    end.bind((interface, ETH_P_IP))
    print("ready", flush=True)
    header = bytearray(SOURCE.stop)
    due, volume = time.time() + INTERVAL, 0
    while True:
        if select.select([end], [], [], max(0.0, due - time.time()))[0]:
            length = end.recv_into(header, 0, socket.MSG_TRUNC)
            if header[SOURCE] == source:
                volume += ETHERNET + length
        if time.time() >= due:
            print(f"{due:.3f} {volume * 8 / INTERVAL / 1e6:.4f}", flush=True)
            due, volume = due + INTERVAL, 0


if __name__ == "__main__":
    with contextlib.suppress(OSError):  # the interface goes with its lab
        watch(sys.argv[1], sys.argv[2])
