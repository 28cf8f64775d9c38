# SPDX-License-Identifier: Apache-2.0
"""Recorded links: the times at which packets can be delivered, in the trace format of Mahimahi.

Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015; mm-link(1): each line is a time in
ms and one opportunity to deliver a packet of 1500 bytes; after its last time the trace starts again. `apswitch --link`
plays such a file (`trace=FILE`).
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

FRAME_BITS = 8 * 1514  # of one opportunity: 1500 bytes in an Ethernet frame
MAX_TIME = 2**32 - 1  # ms


class TraceError(ValueError):
    """An invalid trace: one line that names the file, its line, and the mistake."""


@dataclass(frozen=True)
class Trace:
    """times: of the opportunities, ms in order; the last one is the trace's length."""

    times: tuple[int, ...]

    @property
    def seconds(self) -> float:
        return self.times[-1] / 1e3

    @property
    def rate(self) -> float:
        """Mean (bit/s of Ethernet frames)."""
        return len(self.times) * FRAME_BITS / self.seconds

    @property
    def longest_gap(self) -> int:
        """The longest time without an opportunity (ms), across the trace's end too."""
        return max(self.times[0], *(after - before for before, after in pairwise(self.times)), 0)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{time}\n" for time in self.times))


def read(path: Path) -> Trace:
    """Read a trace from a file. Raises TraceError."""
    try:
        return parse(path.read_text(errors="replace"))
    except OSError as error:
        raise TraceError(
            f"{path}: {error.strerror}: give a trace, as `python -m accesspoint.topologies.links.effects` writes it"
        ) from None
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


def parse(text: str) -> Trace:
    """Parse a trace. Raises TraceError, which names the line."""
    times: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        word = line.strip()
        if not (word.isascii() and word.isdigit() and int(word) <= MAX_TIME):
            raise TraceError(f"line {number}: `{line[:20]}` is not a time in whole ms")
        if times and int(word) < times[-1]:
            raise TraceError(f"line {number}: {word} is earlier than {times[-1]} in the line before")
        times.append(int(word))
    if not times:
        raise TraceError("the trace is empty: give a time in ms on each line")
    if times[-1] == 0:
        raise TraceError(f"line {len(times)}: the last time is 0, so the trace could never start again")
    return Trace(tuple(times))
