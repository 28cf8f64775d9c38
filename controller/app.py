# SPDX-License-Identifier: Apache-2.0
"""The process: database, access points, REST, log, signals.

Prints `token FILE: ...` when the database is new, `rest URL` when the API answers, and `ready NAME` for each access
point that is under control; a parent process can wait for these lines. A later problem is a line on stderr and in
the API.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from .agent.local_backend import LocalBackend
from .agent.stats import Stats
from .api.app import create_app
from .api.connections import BoundedProtocol
from .api.proxies import Forwarded, networks
from .api.service import FILES, Service
from .config import ConfigError, load
from .realtime import raise_priority
from .state.database import connect, explain, hold
from .state.store import new_secret

LOG = logging.getLogger(__name__)

RENEW_SECONDS = 60.0
"""Seconds until renewed certificates are used."""
STOP_SECONDS = 2.0
"""Seconds that a clean end may take."""


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    config_file: Path | None
    rest: str
    database: str
    token_file: Path
    tls_cert: Path | None = None
    tls_key: Path | None = None
    stats: Path | None = None
    proxies: tuple[str, ...] = ()
    """Addresses and networks of the reverse proxies in front."""
    files: Path = FILES
    engine: tuple[str, ...] = ()
    """Addresses of NATS, when the access points' agents are on machines of their own."""
    engine_keys: Path | None = None
    engine_copies: int = 1


ACCEPTED_AT_ONCE = 1
"""Connections between two turns of the others' requests: each costs a good part of a millisecond, and a request has
several turns."""
MAX_BACKLOG = 4096
"""Connections that wait to be accepted: as many as Linux allows (somaxconn)."""


class Certificates:
    """Certificates of REST, read again when their files change, so that a renewal ends no session."""

    def __init__(self, context: ssl.SSLContext, cert: Path, key: Path) -> None:
        self._context, self._cert, self._key = context, cert, key
        self._read = self._changed()

    def _changed(self) -> tuple[float, float]:
        return self._cert.stat().st_mtime, self._key.stat().st_mtime

    def renew(self) -> None:
        """Use the present files for new connections; files that cannot be used are one line, and change nothing."""
        try:
            changed = self._changed()
            if changed == self._read:
                return
            # The context in use must not see a pair that does not fit.
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self._cert, self._key)
            self._context.load_cert_chain(self._cert, self._key)
            self._read = changed
        except (OSError, ssl.SSLError) as error:
            LOG.warning("--tls-cert %s: %s: the one before stays in use", self._cert, error.strerror or error)

    async def watch(self) -> None:
        """Check the files for ever."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            self.renew()


class Server(uvicorn.Server):
    """uvicorn without its own signal handlers: this process has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start with a short accept batch and a long backlog: a flood is accepted and displaces its own connections
        (`connections`), rather than waiting in the backlog together with everybody else's."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(MAX_BACKLOG)


def listen(rest: str, tls: bool) -> socket.socket:
    """Return the socket of the API; raises `ConfigError`."""
    host, _, port = rest.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--rest {rest}: not HOST:PORT (port 0 chooses a free one)")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host.strip("[]"), int(port)), family=family)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"--rest {rest}: {reason}: choose another address, or port 0 for a free port") from None
    # Head and body of an answer are two writes, and asyncio knows only sockets that were made for TCP by name.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls and not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        listener.close()
        raise ConfigError(f"--rest {rest}: tokens would be in the clear: give --tls-cert and --tls-key, or 127.0.0.1")
    return listener


def web_server(app: object, options: Options) -> Server:
    """Return the HTTP server; raises `ConfigError` for certificates that cannot be used."""
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=BoundedProtocol,
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_level="warning",
        # uvicorn logs like this program.
        log_config=None,
        lifespan="off",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-cert {options.tls_cert}: {error.strerror or error}") from None
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    return Server(config)


def say(line: str) -> None:
    """Print a line that a parent process may wait for."""
    print(line, flush=True)


async def first_token(service: Service, path: Path, url: str) -> None:
    """Create an admin's token for a new database, in a file that only its owner can read; raises `ConfigError`."""
    if await service.read(service.store.tokens):
        return
    secret = new_secret()
    try:
        # The file comes first: a token that nobody has is useless.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, 0o600)
            file.write(secret + "\n")
    except OSError as error:
        raise ConfigError(f"--token-file {path}: {(error.strerror or str(error)).lower()}") from None
    await service.write(service.store.new_token, "admin", "admin", secret=secret)
    say(f"token {path}: of an admin; log in with ./apctl login {url} --token-file {path}")


async def reload(options: Options, service: Service, certificates: Certificates | None) -> None:
    """Reload configuration file and certificates, at SIGHUP. A mistake is one line, and changes nothing."""
    if certificates:
        certificates.renew()
    if options.config_file is None:
        return
    try:
        await service.reload(load(options.config_file).access_points)
        say(f"reloaded {options.config_file}")
    except ConfigError as error:
        LOG.warning("not reloaded: %s", error)


async def fleet_service(options: Options, database: sa.Engine) -> tuple[Service, list[Coroutine[Any, Any, None]]]:
    """Return a replica whose access points' agents run elsewhere, and the tasks that it needs; raises `ConfigError`."""
    # Imported only here: a controller without an engine needs none of these.
    from .fleet.adoption import Adoption
    from .fleet.archive import Archivist
    from .fleet.credentials import Credentials, load_key
    from .fleet.engine import Engine
    from .fleet.remote_backend import RemoteBackend
    from .state.agents import access_point_of

    if options.engine_keys is None:
        raise ConfigError("--engine needs --engine-keys: a folder with account.seed, ca.pem and service.creds")
    keys = options.engine_keys
    engine = Engine([*options.engine], keys / "ca.pem", Credentials.load(keys / "service.creds"), "service")
    backend = RemoteBackend(engine, lambda name: service.read(service.store.standing, name), options.engine_copies)
    service = Service(database, backend, options.files)
    service.adoption = Adoption(
        engine, load_key("A", keys / "account.seed"), lambda agent: service.read(access_point_of, database, agent)
    )
    archivist = Archivist(engine, service.archive, database, service.write, lambda: service.names)
    service.monitor.archive_problem = lambda: archivist.problem
    await backend.listen()
    await service.adoption.listen()
    return service, [engine.run(), backend.repair(), archivist.run()]


async def run(options: Options) -> None:
    """Run until SIGINT or SIGTERM; raises `ConfigError` before anything is started."""
    config = load(options.config_file) if options.config_file else None
    if not options.engine:
        hold(options.database)
    database = connect(options.database)
    backend = LocalBackend(lambda name: say(f"ready {name}"))
    try:
        log = Stats(options.stats, backend.access_points) if options.stats else None
    except OSError as error:
        raise ConfigError(f"--stats {options.stats}: {(error.strerror or str(error)).lower()}") from None
    listener = listen(options.rest, tls=options.tls_cert is not None)
    address = listener.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    url = f"{'https' if options.tls_cert else 'http'}://{host}:{address[1]}"
    service = Service(database, backend, options.files)
    beside: list[Coroutine[Any, Any, None]] = []
    if options.engine:
        service, beside = await fleet_service(options, database)
    app = create_app(service)
    trusted = networks(options.proxies)
    server = web_server(Forwarded(app.state.guard, trusted) if trusted else app.state.guard, options)
    await service.load(config.access_points if config else None)

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    again = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, again.set)
    raise_priority()
    await first_token(service, options.token_file, url)
    service.start()
    serving = asyncio.create_task(server.serve([listener]))
    tasks: list[asyncio.Future[Any]] = [serving, *service.tasks(), *(asyncio.create_task(work) for work in beside)]
    certificates = None
    if server.config.ssl and options.tls_cert and options.tls_key:
        certificates = Certificates(server.config.ssl, options.tls_cert, options.tls_key)
        tasks.append(asyncio.create_task(certificates.watch()))

    async def reloading() -> None:
        while True:
            await again.wait()
            again.clear()
            await reload(options, service, certificates)

    tasks.append(asyncio.create_task(reloading()))
    if log:
        tasks.append(asyncio.create_task(log.run()))
    say(f"rest {url}")
    stopping: asyncio.Future[Any] = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopping}:
            task.result()
    finally:
        # Requests under way get their answers before the access points stop.
        app.state.streams.closing.set()
        server.should_exit = True
        await asyncio.wait([serving], timeout=STOP_SECONDS)
        server.force_exit = True
        await service.backend.stop()
        for task in (stopping, *tasks):
            if task is not serving:
                task.cancel()
        _, late = await asyncio.wait([stopping, *tasks], timeout=STOP_SECONDS)
        for task in late:
            task.cancel()
        await service.close()
        listener.close()


def main(options: Options) -> int:
    """Run; returns the exit code."""
    try:
        asyncio.run(run(options))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except SQLAlchemyError as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2
    return 0
