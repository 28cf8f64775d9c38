# SPDX-License-Identifier: Apache-2.0
"""One connection to NATS JetStream: values with revisions, messages, requests with an answer, and a log that is read in
its order.

`connected` has its state; a lost connection is made again automatically. No method waits longer than its limit, and a
missing answer is an `Unavailable`, never a guess. Values are read by their own subjects, so that the server's
permissions hold for reading too; there are no consumers, so a thousand agents cost the engine nothing but their
connections.
"""

import asyncio
import base64
import contextlib
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, NoRespondersError, NoServersError
from nats.js.api import DiscardPolicy, StreamConfig
from nats.js.errors import APIError

from ..cancellation import cancellable
from ..config import ConfigError
from .credentials import Credentials, key_of

LOG = logging.getLogger(__name__)
# asyncio warns of the client's answer to the end of a TLS connection, which has no effect.
logging.getLogger("asyncio").addFilter(lambda record: "eof_received" not in str(record.msg))

ANSWER_SECONDS = 2.0
"""Seconds that an answer may take."""
RETRY_SECONDS = 0.5
PING_SECONDS = 2
"""Seconds between pings; a connection that is silent for two of them is given up, and made again."""

DESIRED = "desired"
"""Bucket of the desired configuration of each access point."""
LEASE = "lease"
"""Bucket of the primary agent of each access point."""
HISTORY = "HISTORY"
HISTORY_AGE = 86_400.0
HISTORY_BYTES = 1 << 30
"""Bounds on history that waits for a database that is away: seconds and bytes."""
DUPLICATE_SECONDS = 3600.0
"""Seconds for which the engine recognises duplicate messages."""
WRONG_SEQUENCE = 10071

Handler = Callable[[bytes], Awaitable[bytes | None]]
"""Handler of requests; None: another client answers."""


class Unavailable(Exception):
    """The engine, or the client that should answer, did not answer in time."""


class Conflict(Exception):
    """The value has changed meanwhile."""


@contextlib.contextmanager
def _errors_as_unavailable() -> Iterator[None]:
    """Raise errors of a request as `Unavailable`."""
    with cancellable():
        try:
            yield
        except NoRespondersError:
            raise Unavailable("no service answers") from None
        except (TimeoutError, Error, OSError) as error:
            raise Unavailable(str(error) or "no answer in time") from None


class Engine:
    """A client of the engine.

    Args:
        servers: `tls://HOST:PORT`, one or more.
        ca: certificate authority of the servers.
        credentials: key and token of this client.
        name: name of this client, for the engine's monitoring.
    """

    def __init__(self, servers: list[str], ca: Path, credentials: Credentials, name: str) -> None:
        self._servers = servers
        self._credentials = credentials
        self._name = name
        self._client = Client()
        self._subscriptions: list[tuple[str, Callable[[Msg], Awaitable[None]]]] = []
        self.problem: str | None = "the engine did not answer yet"
        self._warned = False
        self.reconnected = asyncio.Event()
        """Set whenever a connection begins: messages before it were missed."""
        self.refused = asyncio.Event()
        """Set when the engine rejects these credentials."""
        try:
            self._tls = ssl.create_default_context(cafile=str(ca))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"--engine-ca {ca}: {getattr(error, 'strerror', None) or error}") from None
        for server in servers:
            if not server.startswith("tls://"):
                raise ConfigError(f"--engine {server}: not tls://HOST:PORT")

    @property
    def connected(self) -> bool:
        """True while the engine is connected."""
        return bool(self._client.is_connected)

    async def run(self) -> None:
        """Connect, now and whenever it is lost; for ever."""
        while True:
            # The client's own reconnection gives up after some errors, and delays messages.
            client, closed = Client(), asyncio.Event()
            try:
                with cancellable():
                    await self._connect(client, closed)
                    for subject, callback in self._subscriptions:
                        await client.subscribe(subject, cb=callback)
                self._client = client
                LOG.info("the engine is there") if self._warned else None
                self.problem, self._warned = None, False
                self.reconnected.set()
                # TLS takes half a minute to end a connection to a silent server, in which another server may answer.
                while client.is_connected and not closed.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(RETRY_SECONDS):
                            await closed.wait()
                await self._note(ConnectionError("the connection was lost"))
            except asyncio.CancelledError:
                # Errors of the end need no log line.
                self._warned = True
                raise
            except (TimeoutError, Error, OSError) as error:
                if not isinstance(error, NoServersError):
                    await self._note(error)
            finally:
                with contextlib.suppress(Error, OSError, TimeoutError):
                    async with asyncio.timeout(ANSWER_SECONDS):
                        with cancellable():
                            await client.close()
            await asyncio.sleep(RETRY_SECONDS)

    async def _connect(self, client: Client, closed: asyncio.Event) -> None:
        async def end() -> None:
            closed.set()

        await client.connect(
            self._servers,
            name=self._name,
            tls=self._tls,
            user_jwt_cb=lambda: bytearray(self._credentials.jwt.encode()),
            signature_cb=lambda nonce: base64.b64encode(self._credentials.key.sign(nonce.encode())),
            inbox_prefix=f"_INBOX.{self._credentials.key.public}",
            connect_timeout=2,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            ping_interval=PING_SECONDS,
            error_cb=self._note,
            closed_cb=end,
        )

    async def _note(self, error: Exception) -> None:
        """Log a problem once, until it is fixed."""
        where, text = ", ".join(self._servers), " ".join(str(error).split()) or type(error).__name__
        if "permissions" in text:
            # One message is lost; the connection stays.
            LOG.warning("the engine at %s: %s", where, text)
            return
        if "authorization" in text.lower() or "authentication" in text.lower():
            self.refused.set()
            text = "it does not take these credentials: they have run out, or are another engine's"
        self.problem = f"the engine at {where} is unreachable: {text}; trying again"
        if not self._warned:
            LOG.warning("%s", self.problem)
        self._warned = True

    async def subscribe(self, subject: str, heard: Callable[[str, bytes], None]) -> None:
        """Subscribe: call `heard` with every message's subject and data."""

        async def callback(message: Msg) -> None:
            heard(message.subject, message.data)

        await self._subscribe(subject, callback)

    async def serve(self, subject: str, handler: Handler) -> None:
        """Answer requests; several at a time, so that a long one delays none."""
        under_way: set[asyncio.Task[None]] = set()

        async def respond(message: Msg) -> None:
            answer = await handler(message.data)
            if answer is not None and message.reply:
                with contextlib.suppress(Error):
                    await message.respond(answer)

        async def callback(message: Msg) -> None:
            task = asyncio.create_task(respond(message))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

        await self._subscribe(subject, callback)

    async def _subscribe(self, subject: str, callback: Callable[[Msg], Awaitable[None]]) -> None:
        self._subscriptions.append((subject, callback))
        if self._client.is_connected:
            await self._client.subscribe(subject, cb=callback)

    async def publish(self, subject: str, data: bytes) -> None:
        """Publish a message; it is lost while the engine is away."""
        if self.connected:
            with contextlib.suppress(Error):
                await self._client.publish(subject, data)

    async def request(
        self, subject: str, data: bytes, seconds: float = ANSWER_SECONDS, headers: dict[str, str] | None = None
    ) -> Msg:
        """Send a request, and wait for the answer; raises `Unavailable`."""
        if not self.connected:
            raise Unavailable(self.problem)
        with _errors_as_unavailable():
            return await self._client.request(subject, data, timeout=seconds, headers=headers)

    async def value(self, bucket: str, name: str, seconds: float = ANSWER_SECONDS) -> tuple[int, bytes] | None:
        """Return a value's revision and the value, or None. Raises `Unavailable`."""
        key = key_of(name)
        answer = await self.request(f"$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.{key}", b"", seconds)
        return _found(answer)

    async def put(self, bucket: str, name: str, data: bytes, based_on: int, seconds: float = ANSWER_SECONDS) -> int:
        """Replace the value of revision `based_on` (0: none); return the new revision.

        Raises `Conflict` and `Unavailable`.
        """
        headers = {"Nats-Expected-Last-Subject-Sequence": str(based_on)}
        return _kept(await self.request(f"$KV.{bucket}.{key_of(name)}", data, seconds, headers))

    async def log(self, subject: str, data: bytes, once: str) -> None:
        """Add a message to the log, once, however often it is sent. Raises `Unavailable`."""
        _kept(await self.request(subject, data, headers={"Nats-Msg-Id": once}))

    async def next_logged(self, after: int, subject: str) -> tuple[int, str, bytes] | None:
        """Return the next message of the log with number and subject, or None. Raises `Unavailable`."""
        wanted = json.dumps({"seq": after + 1, "next_by_subj": subject}).encode()
        answer = await self.request(f"$JS.API.DIRECT.GET.{HISTORY}", wanted)
        found = _found(answer)
        return None if found is None else (found[0], (answer.headers or {})["Nats-Subject"], found[1])

    async def log_created(self) -> str:
        """Return the creation time of the log, whose numbers are its own. Raises `Unavailable`."""
        with _errors_as_unavailable():
            info = await self._client.jetstream(timeout=ANSWER_SECONDS).stream_info(HISTORY)
        return str(info.created)

    async def names(self, bucket: str) -> list[str]:
        """Return the names that have a value. Raises `Unavailable`."""
        with _errors_as_unavailable():
            info = await self._client.jetstream(timeout=ANSWER_SECONDS).stream_info(f"KV_{bucket}", subjects_filter=">")
        prefix = f"$KV.{bucket}."
        return [subject.removeprefix(prefix).replace("=", ".") for subject in info.state.subjects or ()]

    async def prepare(self, copies: int) -> None:
        """Create missing buckets and the log; raises `Unavailable`."""
        streams = [
            StreamConfig(
                name=f"KV_{bucket}",
                subjects=[f"$KV.{bucket}.>"],
                max_msgs_per_subject=1,
                allow_direct=True,
                discard=DiscardPolicy.NEW,
                num_replicas=copies,
            )
            for bucket in (DESIRED, LEASE)
        ]
        streams.append(
            StreamConfig(
                name=HISTORY,
                subjects=["ap.*.history"],
                max_age=HISTORY_AGE,
                max_bytes=HISTORY_BYTES,
                duplicate_window=DUPLICATE_SECONDS,
                allow_direct=True,
                num_replicas=copies,
            )
        )
        manager = self._client.jetstream(timeout=ANSWER_SECONDS)
        for stream in streams:
            with _errors_as_unavailable():
                try:
                    await manager.add_stream(stream)
                except APIError as error:
                    # Somebody has set it up in another way, which is kept.
                    LOG.warning("the engine's %s: %s: it is left as it is", stream.name, error.description)


def _found(answer: Msg) -> tuple[int, bytes] | None:
    headers: dict[Any, Any] = answer.headers or {}
    if "Nats-Sequence" in headers:
        return int(headers["Nats-Sequence"]), answer.data
    if headers.get("Status") == "404":
        return None
    raise Unavailable(f"the engine answers {headers.get('Status', 'nothing that is known')}")


def _kept(answer: Msg) -> int:
    try:
        said = json.loads(answer.data)
        if "error" not in said:
            return int(said["seq"])
        wrong, text = said["error"].get("err_code"), said["error"].get("description")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unavailable("the engine answers nothing that is known") from None
    if wrong == WRONG_SEQUENCE:
        raise Conflict(text)
    raise Unavailable(f"the engine keeps nothing: {text}")
