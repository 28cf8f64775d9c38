# SPDX-License-Identifier: Apache-2.0
"""A cell of 802.11 in ns-3: stations around an access point, a server behind its wire, and the traffic of the papers.

    with Cell(stations=10, manager="ns3::ArfWifiManager", delay_ms=4, seed=1) as cell:
        cell.add("flow", station=1, start=0.1)
        samples = cell.run(20)

`cells/cell.cc` does it. What a cell and its parts can be told, with its defaults, stands there by name.
"""

import ctypes
import functools
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, NamedTuple

from accesspoint.controller.config import AccessPointConfig
from accesspoint.topologies.ns3 import virtual
from accesspoint.topologies.requirements import LabError

ROOM = 300  # bytes of an error's line
Setting = str | float | bool


class Reading(NamedTuple):
    """time: s since the start, the middle of `span` (s; 0: a point). source: the terminal that it is of."""

    time: float
    quantity: str
    value: float
    span: float
    source: str


class _Sample(ctypes.Structure):
    _fields_ = [
        ("time", ctypes.c_double), ("value", ctypes.c_double), ("span", ctypes.c_double),
        ("quantity", ctypes.c_char_p), ("source", ctypes.c_char_p),
    ]  # fmt: skip


@functools.cache
def library() -> ctypes.CDLL:
    """Our library, with the types of what is called here. Raises LabError."""
    found = virtual.load()
    words = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]
    error = [ctypes.c_char_p, ctypes.c_size_t]
    for name, result, arguments in (
        ("cell_new", ctypes.c_void_p, [*words, *error]),
        ("cell_add", ctypes.c_bool, [ctypes.c_void_p, ctypes.c_char_p, *words, *error]),
        ("cell_run", ctypes.c_bool, [ctypes.c_void_p, ctypes.c_double, *error]),
        ("cell_samples", ctypes.POINTER(_Sample), [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]),
        ("cell_access_point", ctypes.c_uint64, [ctypes.c_void_p, ctypes.c_size_t]),
        ("cell_error", None, [ctypes.c_void_p, *error]),
        ("cell_free", None, [ctypes.c_void_p]),
    ):  # fmt: skip
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


class Cell:
    """A simulation, one at a time in a process; a run with the same seed is the same to the byte."""

    def __init__(self, **settings: Setting) -> None:
        """Raises LabError for what a cell cannot be, and what it does not know."""
        self._cell: int | None = None
        self._library = library()
        self._controlled: list[virtual.Controlled] = []
        virtual.claim("cell")
        error = ctypes.create_string_buffer(ROOM)
        self._cell = self._library.cell_new(*_words(settings), error, ROOM)
        if not self._cell:
            virtual.release()
            raise LabError(f"the cell cannot be: {error.value.decode()}")

    def __enter__(self) -> "Cell":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __del__(self) -> None:
        self.end()  # of who never entered it

    def end(self) -> None:
        """End the simulation; nothing of it can be used afterwards."""
        if not self._cell:
            return
        cell, self._cell = self._cell, None
        try:
            for controlled in self._controlled:
                controlled.stop()
        finally:
            self._library.cell_free(cell)
            virtual.release()

    def _living(self) -> int:
        if not self._cell:
            raise LabError("the cell has ended: use it inside of its `with`")
        return self._cell

    def add(self, what: Literal["flow", "stream", "middleware"], **settings: Setting) -> None:
        """TCP, UDP, or the middleware of paper 002 on a station, which has to have its flows by then. Raises
        LabError."""
        error = ctypes.create_string_buffer(ROOM)
        if not self._library.cell_add(self._living(), what.encode(), *_words(settings), error, ROOM):
            raise LabError(f"the cell's {what} cannot be: {error.value.decode()}")

    def control(self, config: Mapping[str, Any]) -> None:
        """Gives each access point of this project its controller; the cell has them when it was told `ours_radio`.
        config: of any of them (docs/controller/api.md). Raises LabError."""
        index, told = 0, AccessPointConfig.model_validate(config)
        while handle := self._library.cell_access_point(self._living(), index):
            loop = self._controlled[0].loop if self._controlled else None
            self._controlled.append(virtual.Controlled(self._library, handle, told, loop))
            index += 1

    def run(self, seconds: float) -> list[Reading]:
        """Simulates from 0 to so many seconds. Raises LabError for a time that is over, and when the access point could
        not go on."""
        wrong = ctypes.create_string_buffer(ROOM)
        if not self._library.cell_run(self._living(), seconds, wrong, ROOM):
            raise LabError(wrong.value.decode())
        for controlled in self._controlled:
            controlled.check()
        error = ctypes.create_string_buffer(ROOM)
        self._library.cell_error(self._cell, error, ROOM)
        if error.value:
            raise LabError(f"the access point ended the simulation: {error.value.decode()}")
        count = ctypes.c_size_t()
        first = self._library.cell_samples(self._cell, ctypes.byref(count))
        return [
            Reading(one.time, sys.intern(one.quantity.decode()), one.value, one.span, sys.intern(one.source.decode()))
            for one in first[: count.value]
        ]


def _words(settings: Mapping[str, Setting]) -> tuple[ctypes.Array[ctypes.c_char_p], int]:
    words = [f"{name}={int(value) if isinstance(value, bool) else value}".encode() for name, value in settings.items()]
    return (ctypes.c_char_p * len(words))(*words), len(words)
