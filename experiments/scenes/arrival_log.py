# SPDX-License-Identifier: Apache-2.0
"""Log the times at which a TCP flow's full segments pass an interface.

`python -m accesspoint.experiments.scenes.arrival_log INTERFACE PORT` prints `ready` and then
`sequence identification time` (s since the epoch, by the kernel) of each segment to or from that port.

Sequence number and IPv4 identification together distinguish a segment from its retransmission, so that the logs of two
interfaces give the time that each segment took from one to the other.
"""

import contextlib
import socket
import struct
import sys

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
ETH_P_ALL = 3
TIMESPEC = struct.Struct("@ll")
LONG = 1000  # bytes of a packet: neither ACKs nor what iperf3 says to its other end
TCP = 6


def parse(packet: bytes, port: int) -> tuple[int, int] | None:
    """Sequence number and identification of a full IPv4 segment to or from that port; None for any other packet."""
    if len(packet) < LONG or packet[0] >> 4 != 4 or packet[9] != TCP:
        return None
    *ports, sequence = struct.unpack_from("!HHI", packet, 4 * (packet[0] & 0x0F))
    return (sequence, struct.unpack_from("!H", packet, 4)[0]) if port in ports else None


def watch(interface: str, port: int) -> None:
    """Print the log of an interface, until the process ends."""
    # From the IP header on, whatever is before it here.
    end = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    end.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    end.bind((interface, 0))
    print("ready", flush=True)
    while True:
        packet, ancillary, _, _ = end.recvmsg(2048, socket.CMSG_SPACE(TIMESPEC.size))
        found = parse(packet, port)
        if found:
            seconds, nanoseconds = next(
                TIMESPEC.unpack(data)
                for level, kind, data in ancillary
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS)
            )
            print(*found, f"{seconds}.{nanoseconds:09d}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(OSError):  # the interface goes with its lab
        watch(sys.argv[1], int(sys.argv[2]))
