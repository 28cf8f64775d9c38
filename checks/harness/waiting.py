# SPDX-License-Identifier: Apache-2.0
"""Waiting for what a process will do, and free ports for it to listen on."""

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

_reserved: deque[socket.socket] = deque(maxlen=64)


def free_port() -> int:
    """Return a TCP port on loopback for a server that sets SO_REUSEADDR, as nearly all do.

    Until so many more are asked for nobody else is given it, however long the server takes to start: a socket stays
    bound to it, and Linux lets a server listen beside one that does not."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if len(_reserved) == _reserved.maxlen:
        _reserved.popleft().close()
    _reserved.append(holder)
    return int(holder.getsockname()[1])


def eventually(holds: Callable[[], Any], seconds: float = 120.0, pause: float = 0.02) -> Any:
    """Wait until `holds` returns something true, and return that, or its last value after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := holds()) and time.monotonic() < deadline:
        time.sleep(pause)
    return value


def paced(stop: threading.Event, seconds: float) -> Iterator[None]:
    """Yield each so many seconds until `stop` is set; moments that a busy machine missed are made up for."""
    due = time.monotonic()
    while not stop.wait(max(0.0, due - time.monotonic())):
        due += seconds
        yield


async def until(holds: Callable[[], Any], seconds: float = 240.0, pause: float = 0.01) -> None:
    """Wait in an event loop until `holds` returns something true. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(pause)
