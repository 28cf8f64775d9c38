# SPDX-License-Identifier: Apache-2.0
"""The process: access points, REST, log, signals.

Prints `ready NAME` for each access point that is under control, and `rest URL` when the API answers; a parent process
can wait for these lines. What goes wrong later is a line on stderr and in the API.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from .access_point import AccessPoint
from .config import Config, ConfigError
from .rest import create_app
from .stats import Stats

PRIORITY = -10
"""Nice value: the loop takes a fifth of a core at most, but it takes it on time."""

STOP_SECONDS = 0.5
"""How long a clean end may take."""


class Server(uvicorn.Server):
    """uvicorn without its own signal handlers: this process has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(rest: str) -> socket.socket:
    """The socket of the API; raises `ConfigError`."""
    host, _, port = rest.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--rest {rest}: not HOST:PORT (port 0 chooses a free one)")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), int(port)), family=family)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"--rest {rest}: {reason}: choose another address, or port 0 for a free port") from None


def say(line: str) -> None:
    """A line that a parent process may wait for."""
    print(line, flush=True)


async def run(config: Config, rest: str, stats: Path | None) -> None:
    """Run until SIGINT or SIGTERM; raises `ConfigError` before anything is started."""
    access_points = {
        entry.name: AccessPoint(entry, lambda name: say(f"ready {name}")) for entry in config.access_points
    }
    try:
        log = Stats(stats, access_points.values()) if stats else None
    except OSError as error:
        raise ConfigError(f"--stats {stats}: {(error.strerror or str(error)).lower()}") from None
    api = listen(rest)
    server = Server(uvicorn.Config(create_app(access_points), log_level="warning", lifespan="off", access_log=False))
    address = api.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # Due every 10 ms beside whatever else this machine does; where that is not allowed, ticks may be late.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    # What lives as long as the process need not be looked at by every collection: a collection is a late tick.
    gc.collect()
    gc.freeze()

    tasks = [asyncio.create_task(ap.run(), name=name) for name, ap in access_points.items()]
    tasks.append(asyncio.create_task(server.serve([api]), name="rest"))
    if log:
        tasks.append(asyncio.create_task(log.run(), name="stats"))
    say(f"rest http://{host}:{address[1]}")
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopping}:
            task.result()
    finally:
        await asyncio.gather(*(ap.release() for ap in access_points.values()))
        server.should_exit = server.force_exit = True
        for task in (stopping, *tasks):
            if task.get_name() != "rest":
                task.cancel()
        _, late = await asyncio.wait([stopping, *tasks], timeout=STOP_SECONDS)
        for task in late:
            task.cancel()
        api.close()


def main(config: Config, rest: str, stats: Path | None) -> int:
    """Run; returns the exit code."""
    try:
        asyncio.run(run(config, rest, stats))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
