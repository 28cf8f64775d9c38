# SPDX-License-Identifier: Apache-2.0
"""One connection to NATS JetStream: values with revisions, messages, questions with an answer, and a log that is read
in its order.

It is there or it is not: `connected` says which, and it comes back by itself. No method waits longer than its limit,
and what did not arrive is an `Away`, never a guess. Values are read by their own subjects, so that the server's
permissions hold for reading too; nobody has a consumer there, so a thousand agents cost the engine nothing but their
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

from ..config import ConfigError
from .credentials import Credentials, key_of

LOG = logging.getLogger(__name__)
# asyncio warns of what the client's protocol answers to the end of a TLS connection; nothing comes of it.
logging.getLogger("asyncio").addFilter(lambda record: "eof_received" not in str(record.msg))

SECONDS = 2.0
"""How long an answer may take."""
AGAIN_SECONDS = 0.5
PING_SECONDS = 2
"""A connection that two of these find silent is given up, and made anew."""

DESIRED = "desired"
"""What each access point shall be."""
LEASE = "lease"
"""Which agent is primary."""
HISTORY = "HISTORY"
HISTORY_AGE = 86_400.0
HISTORY_BYTES = 1 << 30
"""What waits for a database that is away: so long and so much at most."""
TWICE_SECONDS = 3600.0
"""How long the engine knows what was said already."""
WRONG_SEQUENCE = 10071

Answering = Callable[[bytes], Awaitable[bytes | None]]
"""What makes an answer; None: another one gives it."""


class Away(Exception):
    """The engine, or who should answer, did not answer in time."""


class Conflict(Exception):
    """The value is another one by now."""


@contextlib.contextmanager
def _cancellable() -> Iterator[None]:
    """Keeps a cancellation that the client loses: Python 3.11's `wait_for` does when it comes with the answer."""
    task = asyncio.current_task()
    assert task is not None
    cancelled = task.cancelling()
    try:
        yield
    finally:
        if task.cancelling() > cancelled:
            raise asyncio.CancelledError


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """What goes wrong is `Away`."""
    with _cancellable():
        try:
            yield
        except NoRespondersError:
            raise Away("nobody is there to answer") from None
        except (TimeoutError, Error, OSError) as error:
            raise Away(str(error) or "no answer in time") from None


class Engine:
    """A client of the engine.

    Args:
        servers: `tls://HOST:PORT`, one or more.
        ca: whom the server's certificate must come from.
        credentials: who we are.
        name: what the engine shows of us.
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
        """Set whenever a connection begins: what was said meanwhile was not heard."""
        self.refused = asyncio.Event()
        """Set when the engine does not take these credentials."""
        try:
            self._tls = ssl.create_default_context(cafile=str(ca))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"--engine-ca {ca}: {getattr(error, 'strerror', None) or error}") from None
        for server in servers:
            if not server.startswith("tls://"):
                raise ConfigError(f"--engine {server}: not tls://HOST:PORT")

    @property
    def connected(self) -> bool:
        """Whether the engine is there now."""
        return bool(self._client.is_connected)

    async def run(self) -> None:
        """Connect, now and whenever it is lost; for ever."""
        while True:
            # The client's own way back gives up after some errors, and keeps what was to be said for later.
            client, closed = Client(), asyncio.Event()
            try:
                with _cancellable():
                    await self._connect(client, closed)
                    for subject, callback in self._subscriptions:
                        await client.subscribe(subject, cb=callback)
                self._client = client
                LOG.info("the engine is there") if self._warned else None
                self.problem, self._warned = None, False
                self.reconnected.set()
                # To end a connection to who does not answer takes TLS half a minute, in which another server may.
                while client.is_connected and not closed.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(AGAIN_SECONDS):
                            await closed.wait()
                await self._note(ConnectionError("the connection was lost"))
            except asyncio.CancelledError:
                # Whatever is said of the end is nobody's trouble.
                self._warned = True
                raise
            except (TimeoutError, Error, OSError) as error:
                if not isinstance(error, NoServersError):
                    await self._note(error)
            finally:
                with contextlib.suppress(Error, OSError, TimeoutError):
                    async with asyncio.timeout(SECONDS):
                        with _cancellable():
                            await client.close()
            await asyncio.sleep(AGAIN_SECONDS)

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
        """Say once what is wrong, until it is mended."""
        where, text = ", ".join(self._servers), " ".join(str(error).split()) or type(error).__name__
        if "permissions" in text:
            # Of one message, which nobody gets; the connection goes on.
            LOG.warning("the engine at %s: %s", where, text)
            return
        if "authorization" in text.lower() or "authentication" in text.lower():
            self.refused.set()
            text = "it does not take these credentials: they have run out, or are another engine's"
        self.problem = f"the engine at {where} is away: {text}; trying again"
        if not self._warned:
            LOG.warning("%s", self.problem)
        self._warned = True

    async def hear(self, subject: str, heard: Callable[[str, bytes], None]) -> None:
        """Call with every message's subject and data."""

        async def callback(message: Msg) -> None:
            heard(message.subject, message.data)

        await self._subscribe(subject, callback)

    async def answer(self, subject: str, answering: Answering) -> None:
        """Answer what is asked; several at a time, so that a long one holds up none."""
        under_way: set[asyncio.Task[None]] = set()

        async def respond(message: Msg) -> None:
            answer = await answering(message.data)
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

    async def say(self, subject: str, data: bytes) -> None:
        """Tell whoever listens; nobody hears it while the engine is away."""
        if self.connected:
            with contextlib.suppress(Error):
                await self._client.publish(subject, data)

    async def ask(
        self, subject: str, data: bytes, seconds: float = SECONDS, headers: dict[str, str] | None = None
    ) -> Msg:
        """Ask, and wait for the answer; raises `Away`."""
        if not self.connected:
            raise Away(self.problem)
        with _asking():
            return await self._client.request(subject, data, timeout=seconds, headers=headers)

    async def value(self, bucket: str, name: str, seconds: float = SECONDS) -> tuple[int, bytes] | None:
        """A value and its revision; None for none. Raises `Away`."""
        key = key_of(name)
        answer = await self.ask(f"$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.{key}", b"", seconds)
        return _found(answer)

    async def put(self, bucket: str, name: str, data: bytes, based_on: int, seconds: float = SECONDS) -> int:
        """Put a value in the place of the one with this revision (0: of none); returns its own. Raises `Conflict` and
        `Away`."""
        headers = {"Nats-Expected-Last-Subject-Sequence": str(based_on)}
        return _kept(await self.ask(f"$KV.{bucket}.{key_of(name)}", data, seconds, headers))

    async def log(self, subject: str, data: bytes, once: str) -> None:
        """Keep a message in the log, once, however often it is said. Raises `Away`."""
        _kept(await self.ask(subject, data, headers={"Nats-Msg-Id": once}))

    async def logged(self, after: int, subject: str) -> tuple[int, str, bytes] | None:
        """The next message of the log, with its number and subject; None when there is none yet. Raises `Away`."""
        wanted = json.dumps({"seq": after + 1, "next_by_subj": subject}).encode()
        answer = await self.ask(f"$JS.API.DIRECT.GET.{HISTORY}", wanted)
        found = _found(answer)
        return None if found is None else (found[0], (answer.headers or {})["Nats-Subject"], found[1])

    async def begun(self) -> str:
        """When the log was made: another one counts anew. Raises `Away`."""
        with _asking():
            info = await self._client.jetstream(timeout=SECONDS).stream_info(HISTORY)
        return str(info.created)

    async def names(self, bucket: str) -> list[str]:
        """Whatever has a value. Raises `Away`."""
        with _asking():
            info = await self._client.jetstream(timeout=SECONDS).stream_info(f"KV_{bucket}", subjects_filter=">")
        prefix = f"$KV.{bucket}."
        return [subject.removeprefix(prefix).replace("=", ".") for subject in info.state.subjects or ()]

    async def prepare(self, copies: int) -> None:
        """Make what is not there yet; raises `Away`."""
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
                duplicate_window=TWICE_SECONDS,
                allow_direct=True,
                num_replicas=copies,
            )
        )
        manager = self._client.jetstream(timeout=SECONDS)
        for stream in streams:
            with _asking():
                try:
                    await manager.add_stream(stream)
                except APIError as error:
                    # Somebody has set it up in another way: it is theirs to know why.
                    LOG.warning("the engine's %s: %s: it is left as it is", stream.name, error.description)


def _found(answer: Msg) -> tuple[int, bytes] | None:
    headers: dict[Any, Any] = answer.headers or {}
    if "Nats-Sequence" in headers:
        return int(headers["Nats-Sequence"]), answer.data
    if headers.get("Status") == "404":
        return None
    raise Away(f"the engine answers {headers.get('Status', 'nothing that is known')}")


def _kept(answer: Msg) -> int:
    try:
        said = json.loads(answer.data)
        if "error" not in said:
            return int(said["seq"])
        wrong, text = said["error"].get("err_code"), said["error"].get("description")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Away("the engine answers nothing that is known") from None
    if wrong == WRONG_SEQUENCE:
        raise Conflict(text)
    raise Away(f"the engine keeps nothing: {text}")
