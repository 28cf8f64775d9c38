# SPDX-License-Identifier: Apache-2.0
"""Labs in ns-3, from Python: hosts, what they send, the access point and its controller (lab.h, lab.cc).

One at a time: ns-3's simulator is the process's.

    with wired(seed=1, stations=1, down="rate=14mbit,limit=100", up="rate=1mbit,limit=1000") as lab:
        lab.control(config)
        download = lab.transfer("down", start=1.0)
        lab.run(10.0)
        print(download.rates())
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from accesspoint.controller.config import AccessPointConfig
from accesspoint.topologies.features import configured
from accesspoint.topologies.ns3 import build, virtual
from accesspoint.topologies.requirements import PIPELINE, LabError

CONGESTION = {
    "cubic": "ns3::TcpCubic",
    "reno": "ns3::TcpLinuxReno",
    "newreno": "ns3::TcpNewReno",
    "bbr": "ns3::TcpBbr",
    "vegas": "ns3::TcpVegas",
    "westwood": "ns3::TcpWestwoodPlus",
    "dctcp": "ns3::TcpDctcp",
    "bic": "ns3::TcpBic",
    "highspeed": "ns3::TcpHighSpeed",
    "htcp": "ns3::TcpHtcp",
    "hybla": "ns3::TcpHybla",
    "illinois": "ns3::TcpIllinois",
    "lp": "ns3::TcpLp",
    "scalable": "ns3::TcpScalable",
    "veno": "ns3::TcpVeno",
    "yeah": "ns3::TcpYeah",
}
"""Linux's names of what ns-3 has too."""

INTERVAL = 0.5
"""s over which what arrives is counted, unless asked for otherwise."""
PROBE_INTERVAL = 0.05
"""s"""
NEVER = 1e6
"""s: later than any end."""


def congestion(name: str) -> str:
    """The TypeId of a congestion control: of Linux's name, or as it stands. Raises LabError."""
    if name.startswith("ns3::"):
        return name
    if name not in CONGESTION:
        raise LabError(f"ns-3 has no congestion control '{name}': choose one of {', '.join(CONGESTION)}, or a TypeId")
    return CONGESTION[name]


@dataclass(frozen=True)
class Transfer:
    """TCP between a station and the server. What arrived can be read after the lab's end, too. Raises LabError for a
    connection that is not there."""

    lab: "Ns3Lab"
    number: int
    streams: int
    interval: float
    kept: list[tuple[npt.NDArray[np.uint64], float | None]] = field(default_factory=list, compare=False, repr=False)
    """Arrivals and time of completion of each connection, once the lab has ended."""

    def keep(self) -> None:
        """Copy the measurements out of the simulation, before the lab ends."""
        self.kept[:] = [(self.arrived(stream), self.finished(stream)) for stream in range(self.streams)]

    def arrived(self, stream: int = 0) -> npt.NDArray[np.uint64]:
        """Octets that arrived on a connection in each interval of the simulation, from its start."""
        self._look_for(stream)
        if self.kept:
            return self.kept[stream][0].copy()
        length = ctypes.c_size_t()
        found = self.lab.library.lab_arrived(self.lab.pointer, self.number, stream, ctypes.byref(length))
        if not length.value:
            return np.zeros(0, np.uint64)
        return np.ctypeslib.as_array(found, (length.value,)).copy()

    def rates(self, stream: int | None = None) -> npt.NDArray[np.float64]:
        """Mb/s in each interval, of a connection, or of all together."""
        streams = range(self.streams) if stream is None else (stream,)
        parts = [self.arrived(number) for number in streams]
        total = np.zeros(max(part.size for part in parts))
        for part in parts:
            total[: part.size] += part
        return total * 8 / self.interval / 1e6

    def finished(self, stream: int = 0) -> float | None:
        """Return the time at which all octets of a connection had arrived (s of the simulation), or None."""
        self._look_for(stream)
        if self.kept:
            return self.kept[stream][1]
        return float(self.lab.library.lab_finished(self.lab.pointer, self.number, stream)) or None

    def _look_for(self, stream: int) -> None:
        if not 0 <= stream < self.streams:
            there = f"0 to {self.streams - 1} are there" if self.streams > 1 else "its only one is 0"
            raise LabError(f"the transfer has no connection {stream}: {there}")


@dataclass(frozen=True)
class Probe:
    """Round trips between a station and the server, which can be read after the lab's end, too."""

    lab: "Ns3Lab"
    number: int
    kept: list[tuple[npt.NDArray[np.float64], int]] = field(default_factory=list, compare=False, repr=False)
    """The answers, once the lab has ended."""

    def keep(self) -> None:
        """Copy the measurements out of the simulation, before the lab ends."""
        self.kept[:] = [self.answers()]

    def answers(self) -> tuple[npt.NDArray[np.float64], int]:
        """A row of each probe that was answered (s): when it was sent, its round trip, its way up, its way down; and
        how many were sent."""
        if self.kept:
            answers, count = self.kept[0]
            return answers.copy(), count
        answered, sent = ctypes.c_size_t(), ctypes.c_uint32()
        found = self.lab.library.lab_answers(self.lab.pointer, self.number, ctypes.byref(answered), ctypes.byref(sent))
        if not answered.value:
            return np.zeros((0, 4)), sent.value
        return np.ctypeslib.as_array(found, (answered.value, 4)).copy(), sent.value


class Ns3Lab:
    """A lab that a C++ builder has made.

    Args:
        library: of `virtual.load`, with the types of `declare`.
        pointer: a `Lab *`; it is this object's from now on.
    """

    def __init__(self, library: ctypes.CDLL, pointer: int) -> None:
        self.library = library
        self._pointer: int | None = pointer
        self._measured: list[Transfer | Probe] = []
        self.controlled: virtual.Controlled | None = None
        self.events = 0
        """Of ns-3, so far."""

    @property
    def pointer(self) -> int:
        """The `Lab *`. Raises LabError once it has ended."""
        if self._pointer is None:
            raise LabError("the lab has ended: use it inside of its `with`")
        return self._pointer

    @property
    def handle(self) -> int:
        """Handle of the access point, for `virtual`; 0: there is none."""
        return int(self.library.lab_access_point(self.pointer))

    def check(self) -> None:
        """Raises LabError when something has gone wrong."""
        pointer = self.pointer
        if self.controlled:
            self.controlled.check()
        if error := self.library.lab_error(pointer).decode():
            raise LabError(error)

    def control(self, config: AccessPointConfig) -> virtual.Controlled:
        """Give the access point a controller, which is ready when this returns. Raises LabError."""
        self.check()
        if not self.handle:
            raise LabError("the lab has no access point to control: its scene makes one as `accessPoint`")
        self.controlled = virtual.Controlled(self.library, self.handle, config)
        return self.controlled

    def transfer(
        self,
        direction: Literal["down", "up"],
        start: float = 0.0,
        stop: float = NEVER,
        station: int = 1,
        cc: str = "cubic",
        ecn: bool = True,
        streams: int = 1,
        window: int = 0,
        octets: int = 0,
        interval: float = INTERVAL,
    ) -> Transfer:
        """TCP between a station and the server, to be made by `run`.

        Args:
            start, stop: s of the simulation. What the sender's socket has at the end is still sent.
            station: from 1 on.
            cc: of the sender, as Linux calls it, or a TypeId.
            streams: connections, side by side.
            window: octets of the sockets' buffers; 0: as large as Linux lets them grow.
            octets: to send on each connection; 0: as much as goes.
            interval: s over which is counted what arrives, 1 ms at least.

        Raises LabError.
        """
        number = self.library.lab_transfer(
            self.pointer, station, direction == "up", start, stop, congestion(cc).encode(), ecn, streams, window,
            octets, interval,
        )  # fmt: skip
        self.check()
        made = Transfer(self, number, streams, interval)
        self._measured.append(made)
        return made

    def probe(self, station: int = 1, start: float = 0.0, interval: float = PROBE_INTERVAL) -> Probe:
        """Probes of the round trip from `start` on, each `interval` (s), 1 ms at least. Raises LabError."""
        number = self.library.lab_probe(self.pointer, station, start, interval)
        self.check()
        made = Probe(self, number)
        self._measured.append(made)
        return made

    def run(self, until: float) -> None:
        """Let time pass until then (s). Raises LabError."""
        self.events = self.library.lab_run(self.pointer, until)
        self.check()

    def end(self) -> None:
        """End the simulation; its measurements can still be read afterwards."""
        if self._pointer is None:
            return
        if self.controlled:
            self.controlled.stop()
        for measured in self._measured:
            measured.keep()
        self.library.lab_end(self._pointer)
        self._pointer = None


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """The types of lab.cc's calls, and of those that make a lab."""
    pointer, u32, u64, double = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double
    text, boolean, size = ctypes.c_char_p, ctypes.c_bool, ctypes.POINTER(ctypes.c_size_t)
    types: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "lab_access_point": (u64, (pointer,)),
        "lab_error": (text, (pointer,)),
        "lab_transfer": (ctypes.c_int, (pointer, u32, boolean, double, double, text, boolean, u32, u32, u64, double)),
        "lab_arrived": (ctypes.POINTER(u64), (pointer, u32, u32, size)),
        "lab_finished": (double, (pointer, u32, u32)),
        "lab_probe": (ctypes.c_int, (pointer, u32, double, double)),
        "lab_answers": (ctypes.POINTER(double), (pointer, u32, size, ctypes.POINTER(u32))),
        "lab_run": (u64, (pointer, double)),
        "lab_end": (None, (pointer,)),
        "wired_new": (pointer, (u32, u32, boolean, text, text, text)),
        "lte_new": (pointer, (u32, u32, double, text, text, text)),
        "wimax_new": (pointer, (u32, u32, double, text, text, text)),
    }
    for name, (result, arguments) in types.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def config(
    ports: Mapping[int, tuple[int | str, int]],
    features: Mapping[str, Any] = MappingProxyType({}),
    settings: Mapping[str, Any] = MappingProxyType({}),
    uplink: int | None = None,
) -> AccessPointConfig:
    """Return the controller's configuration.

    Args:
        ports: number -> rate (bit/s, or "auto"), and limit of its queues (packets), as its link has them.
        features: of the access point, beyond forwarding; all of them by default.
        settings: more of the configuration (accesspoint.topologies.features.configured).
        uplink: its port; None: the last one.
    """
    last = max(ports) if uplink is None else uplink
    told = [
        {
            "port": number,
            "role": "uplink" if number == last else "station",
            "capacity_bps": rate,
            "queue_limit": limit,
        }
        for number, (rate, limit) in ports.items()
    ]
    own = configured(told, features, settings)
    return AccessPointConfig.model_validate({"name": "ap1", "pipeline": PIPELINE, **own})


@contextmanager
def _open(library: ctypes.CDLL, make: Callable[[], int | None]) -> Iterator[Ns3Lab]:
    """The lab that is made, until it is left. Raises LabError."""
    virtual.claim("lab")
    try:
        made = make()
        if not made:
            library.ap_destroy()
            raise LabError("the scene made no lab: return the one that it fills")
        lab = Ns3Lab(library, made)
        try:
            lab.check()
            yield lab
        finally:
            lab.end()
    finally:
        virtual.release()


@contextmanager
def scene(source: Path | str, seed: int) -> Iterator[Ns3Lab]:
    """A scene of one's own: a C++ file with `extern "C" Lab* scene(uint32_t seed)` (docs/ns3.md). Raises LabError."""
    library = declare(virtual.load())
    path = build.scene(Path(source))
    try:
        make = ctypes.CDLL(str(path)).scene
    except (OSError, AttributeError):
        raise LabError(
            f'{source} has no `extern "C" Lab* scene(uint32_t seed)`: add it, docs/ns3.md shows one'
        ) from None
    make.restype, make.argtypes = ctypes.c_void_p, (ctypes.c_uint32,)
    with _open(library, lambda: make(seed)) as lab:
        yield lab


@contextmanager
def wired(
    seed: int, stations: int, down: str, up: str, shared: bool = False, options: str = "--cpu-port 510"
) -> Iterator[Ns3Lab]:
    """Stations and a server on wires of the access point: ports 1 to `stations`, or one for all (`shared`), and the
    last one to the server.

    Args:
        seed: of all that is left to chance.
        down, up: the links of the ports to them, as `apswitch --link` takes them: "rate=1mbit,limit=1000".
        options: more of `apswitch`'s.

    Raises LabError.
    """
    library = declare(virtual.load())
    arguments = seed, stations, shared, down.encode(), up.encode(), f"{options} --seed {seed}".encode()
    with _open(library, lambda: library.wired_new(*arguments)) as lab:
        yield lab


@contextmanager
def lte(
    seed: int, queue: int, delay: float, down: str = "", up: str = "", options: str = "--cpu-port 510"
) -> Iterator[Ns3Lab]:
    """A terminal behind an access point whose uplink is a modem in a cell of LTE: port 1 to the terminal, port 2 to the
    modem; the server behind the cell's core.

    Args:
        queue: of each bearer, in the modem and in the cell, octets.
        delay: between core and server, one way, s.
        down, up: the links of the ports, as `apswitch --link` takes them; empty: what comes goes, and waits for the
            radio elsewhere.

    Raises LabError.
    """
    library = declare(virtual.load())
    arguments = seed, queue, delay, down.encode(), up.encode(), f"{options} --seed {seed}".encode()
    with _open(library, lambda: library.lte_new(*arguments)) as lab:
        yield lab


@contextmanager
def wimax(
    seed: int, queue: int, delay: float, down: str = "", up: str = "", options: str = "--cpu-port 510"
) -> Iterator[Ns3Lab]:
    """A terminal behind an access point whose uplink is a modem in a cell of WiMAX: port 1 to the terminal, port 2 to
    the modem; the server behind the base station. The modem is in the network after a second.

    Args:
        queue: of each service flow, in the modem and in the base station, packets.
        delay: between base station and server, one way, s.
        down, up: the links of the ports, as `lte` takes them.

    Raises LabError.
    """
    library = declare(virtual.load())
    arguments = seed, queue, delay, down.encode(), up.encode(), f"{options} --seed {seed}".encode()
    with _open(library, lambda: library.wimax_new(*arguments)) as lab:
        yield lab
