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
LONG = 1000  # bytes of a frame: neither ACKs nor what iperf3 says to its other end
IPV4, TCP = 0x0800, 6


def parse(frame: bytes, port: int) -> tuple[int, int] | None:
    """Sequence number and identification of a full segment to or from that port; None for any other frame."""
    if len(frame) < LONG or struct.unpack_from("!H", frame, 12)[0] != IPV4 or frame[23] != TCP:
        return None
    start = 14 + 4 * (frame[14] & 0x0F)
    *ports, sequence = struct.unpack_from("!HHI", frame, start)
    return (sequence, struct.unpack_from("!H", frame, 18)[0]) if port in ports else None


def watch(interface: str, port: int) -> None:
    """Print the log of an interface, until the process ends."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    end.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    end.bind((interface, 0))
    print("ready", flush=True)
    while True:
        frame, ancillary, _, _ = end.recvmsg(2048, socket.CMSG_SPACE(TIMESPEC.size))
        found = parse(frame, port)
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
