# SPDX-License-Identifier: Apache-2.0
"""What the loop leaves for others to see: one piece of shared memory for each access point.

The loop's process writes it, everybody else only reads, except for `weight`, which is the other way round. Nobody
waits: what is read may be of two ticks. The memory has no name and is gone with the last process that has it open.
"""

import mmap
import os
import struct
import weakref
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .program import FLOWS_SIZE, GROUP_COUNTERS

CLASSES = 8
DURATIONS = 1000
"""Ticks whose durations are remembered."""

VOLUMES = ("arrived", "sent", "filtered")

VOLUMES_BYTES = 2 * len(VOLUMES) * CLASSES * 8

GROUP = GROUP_COUNTERS
GROUP_BYTES = 2 * len(GROUP) * 8

COUNTS = TICKS, LATE, MISSED = range(3)
"""Places in `Board.counts`."""
PORT = np.dtype(
    [
        ("feedback", "f8"),
        ("queue_packets", "f8"),
        ("queue_bytes", "f8"),
        ("target", "f8"),
        ("capacity", "f8"),
        ("learned", "f8"),
        ("flows_active", "i8"),
        ("packets", "i8", (len(VOLUMES), CLASSES)),
        ("bytes", "i8", (len(VOLUMES), CLASSES)),
        ("group_packets", "i8", len(GROUP)),
        ("group_bytes", "i8", len(GROUP)),
        ("largest_flow", "f8"),
        ("class_feedback", "f8", CLASSES),
        ("class_rate", "f8", CLASSES),
        ("class_desired", "f8", CLASSES),
    ]
)
"""Of one port; `class_feedback` is NaN for a class without traffic."""
EVERY_TICK = struct.Struct("=6dq")
"""The first fields of `PORT`, which change with every tick and are written at once."""
SHARES = struct.Struct(f"={1 + 3 * CLASSES}d")
"""Its last ones, from `largest_flow` on, which change together, too."""

FLOW = {
    "packets": "i8", "bytes": "i8", "rate": "f8", "moved": "f8", "feedback": "f8", "weight": "f8", "class_id": "u1",
    "active": "?",
}  # fmt: skip
"""Arrays by flow index; `rate` in bytes/s, `moved`: when the counter did, on the system's monotonic clock."""


class Board:
    """The shared memory of one access point with so many ports."""

    def __init__(self, fd: int, ports: int) -> None:
        self.fd = fd
        weakref.finalize(self, os.close, fd)
        self.ports_count = ports
        places: list[tuple[np.dtype[Any], int, int]] = []
        size = 0
        loop = [(np.dtype("i8"), len(COUNTS)), (np.dtype("f8"), DURATIONS), (PORT, ports)]
        for dtype, count in (*loop, *((np.dtype(kind), FLOWS_SIZE) for kind in FLOW.values())):
            places.append((dtype, count, size))
            size += -(-dtype.itemsize * count // 64) * 64
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
        self.memory = mmap.mmap(fd, size)
        arrays = [np.frombuffer(self.memory, dtype, count, offset) for dtype, count, offset in places]
        # Single numbers are written quicker through a view than through an array.
        self.counts = arrays[0].data
        self.durations: Any = arrays[1].data
        """Of the last ticks, from begin to end, in seconds, by number of the tick."""
        self.ports = arrays[2]
        self.flows: dict[str, npt.NDArray[Any]] = dict(zip(FLOW, arrays[3:], strict=True))
        self.port_offsets = [places[2][2] + PORT.itemsize * number for number in range(ports)]
        whole, start = memoryview(self.memory), EVERY_TICK.size
        self.volumes = [whole[at + start : at + start + VOLUMES_BYTES].cast("q") for at in self.port_offsets]
        """Of each port, `packets` and behind them `bytes`."""
        start += VOLUMES_BYTES
        self.groups = [whole[at + start : at + start + GROUP_BYTES].cast("q") for at in self.port_offsets]
        """Of each port, `group_packets` and behind them `group_bytes`."""

    @classmethod
    def create(cls, ports: int) -> Self:
        """A new one, all zero."""
        return cls(os.memfd_create("access-point", os.MFD_CLOEXEC), ports)

    @classmethod
    def attach(cls, process: int, fd: int, ports: int) -> Self:
        """The one that another process of ours has open as `fd`."""
        return cls(os.open(f"/proc/{process}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC), ports)
