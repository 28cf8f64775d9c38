# SPDX-License-Identifier: Apache-2.0
"""A cell of 802.11 in ns-2: stations around an access point, a server behind its wire, and flows between them.

    readings = simulate(Radio(plcp=11, basic=11), [Flow("sta1", 1)], stations=1, seconds=10, seed=1)

`cell.tcl` does it, in a process of Debian's `ns`. Defaults are ns-2's own, but for the rate of data.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from accesspoint.topologies.requirements import LabError

SCRIPT = Path(__file__).with_name("cell.tcl")
PACKAGE = "ns2"
MAX_STATIONS, MAX_FLOWS = 100, 1000
PACE, START = 20.0, 60.0  # s of the machine for each simulated second, and for the rest: longer than a busy one takes
CHATTER = ("INITIALIZE THE LIST xListHead", "SORTING LISTS ...DONE!")  # of ns-2 about its channels
_WORD = re.compile(r"[\w./-]+")

Reading = tuple[float, str, float, float, str]
"""Middle of the span (s since the start), quantity, value, span (s; 0: a point), name of the flow."""


@dataclass(frozen=True)
class Radio:
    """The cell's radios and their queues.

    data, basic, plcp: rates of data, of control frames and of the physical header, Mb/s. uplink: data's rate on a
    channel of its own for all that stations send, Mb/s; 0: both ways share one channel. rts: bytes above which a frame
    is preceded by RTS and CTS. queue: packets in each interface's drop-tail queue. delay: of the wire, one way, s.
    """

    data: float = 11
    uplink: float = 0
    basic: float = 1
    plcp: float = 1
    rts: int = 0
    queue: int = 50
    delay: float = 0.0


@dataclass(frozen=True)
class Tcp:
    """A connection. agent: ns-2's Agent/TCP/..., or Westwood or WestwoodNR (`westwood.tcl`). sink: its Agent/.... law:
    of the agent Linux; "none" for others. size: payload of a packet, bytes. window, initial: bound and first value of
    the window, packets."""

    agent: str = "Reno"
    sink: str = "TCPSink"
    law: str = "none"
    size: int = 1000
    window: int = 20
    initial: int = 2


@dataclass(frozen=True)
class Udp:
    """Packets of `size` bytes at a constant rate (Mb/s), their intervals a little varied."""

    mbps: float
    size: int = 1000


@dataclass(frozen=True)
class Flow:
    """Traffic between a station (1 to their number) and the server, from `start` to `stop` (s; 0: the end): as much as
    goes, or of TCP `length` bytes every `period` s."""

    name: str
    station: int
    up: bool = False
    source: Tcp | Udp = Tcp()
    start: float = 0.0
    stop: float = 0.0
    length: int = 0
    period: float = 10.0


def program() -> str:
    """Return the path of ns-2's program. Raises LabError when it is missing."""
    found = shutil.which("ns")
    if not found:
        raise LabError(f"ns-2 is missing: install it with `apt install {PACKAGE}`")
    return found


def version() -> str:
    """Return ns-2's version. Raises LabError."""
    done = subprocess.run([program()], input="puts [ns-version]; exit\n", capture_output=True, text=True, timeout=START)
    if not (said := done.stdout.strip()):
        raise LabError(f"{program()} is not ns-2: put that of `apt install {PACKAGE}` before it on PATH")
    return said


def simulate(radio: Radio, flows: Sequence[Flow], stations: int, seconds: float, seed: int) -> list[Reading]:
    """Simulate a cell; a run with the same seed is the same to the byte.

    Readings: `rate_mbps` of payload, four times a second, `cwnd` (packets) as often, and of sessions, at their start,
    `session_s` until all is acknowledged, or `unfinished_s` at the run's end. Raises LabError.
    """
    if not 1 <= stations <= MAX_STATIONS:
        raise LabError(f"{stations} stations are not possible: give 1 to {MAX_STATIONS}")
    if len(flows) > MAX_FLOWS or any(not 1 <= flow.station <= stations for flow in flows):
        raise LabError(f"flows that are not possible: give at most {MAX_FLOWS}, of stations 1 to {stations}")
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples"
        # 0 would be taken from the time of day.
        cell = [*words(radio), "stations", stations, "seconds", seconds, "seed", seed % (2**31 - 1) or 1]
        command = [program(), str(SCRIPT), str(samples), _line("cell", cell)]
        command += [_line("flow", [*words(flow), *words(flow.source)]) for flow in flows]
        longest = START + PACE * seconds
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=longest)
        except subprocess.TimeoutExpired:
            raise LabError(f"ns-2 took over {longest:.0f} s for {seconds:g}: try again on a quieter machine") from None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line not in CHATTER]
            raise LabError(f"ns-2 cannot simulate this: {said[0].strip() if said else f'code {done.returncode}'}")
        return parse(samples.read_text().splitlines())


def words(part: Radio | Flow | Tcp | Udp) -> list[object]:
    """Return the fields of a part, each name before its value."""
    pairs = ((field.name, getattr(part, field.name)) for field in fields(part))
    return [word for pair in pairs if not isinstance(pair[1], (Tcp, Udp)) for word in pair]


def _line(command: str, values: Iterable[object]) -> str:
    """Return a Tcl list. Raises LabError for a value that is no single word."""
    texts = [str(int(value) if isinstance(value, bool) else value) for value in values]
    for text in texts:
        if not _WORD.fullmatch(text):
            raise LabError(f"'{text}' is not possible in ns-2: give letters, digits, '.', '/', '_' and '-'")
    return " ".join([command, *texts])


def parse(lines: Iterable[str]) -> list[Reading]:
    """Return the readings of `cell.tcl`'s lines: time, quantity, value, span, source. Raises LabError."""
    readings = []
    for line in lines:
        try:
            time, quantity, value, span, source = line.split()
            readings.append((float(time), quantity, float(value), float(span), source))
        except ValueError:
            raise LabError(f"ns-2 wrote '{line}', which is no sample") from None
    return readings
