# SPDX-License-Identifier: Apache-2.0
"""One P4Runtime session: connect, become primary, push the pipeline, carry reads, writes and the stream.

`Connection.run` keeps a session up for ever, with backoff between attempts, and calls `serve` whenever the pipeline
is in place; `serve` is cancelled when the session ends or another controller takes over. What went wrong is one line
in `problem`, until it is mended.

A backup that takes over chooses an election id above all that were ever used, so the switch refuses whatever the
former primary still sends: it may be alive and only cut off.
"""

import asyncio
import contextlib
import enum
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import finsy as fy
import grpc
from finsy.proto import U128, p4r, rpc_code

from .config import AccessPointConfig
from .program import Program

LOG = logging.getLogger(__name__)

FIRST_BACKOFF = 0.2
LAST_BACKOFF = 5.0
ANSWER_SECONDS = 5.0
"""How long the switch may take to answer the arbitration request."""


class State(enum.StrEnum):
    """How far the session is."""

    CONNECTING = "connecting"
    BACKUP = "backup"
    READY = "ready"
    STOPPED = "stopped"


class SessionError(Exception):
    """The session cannot go on; the text is one line that says why and how to mend it."""


class Connection:
    """The P4Runtime session of one access point."""

    def __init__(self, config: AccessPointConfig, program: Program) -> None:
        self.config = config
        self.program = program
        self.state = State.CONNECTING
        self.problem: str | None = None
        self.sessions = 0
        self.p4runtime_version: str | None = None
        self.election_id = config.election_id
        self._highest = 0
        """The highest election id that this session has heard of."""
        self._client: fy.P4Client | None = None
        self._primary = asyncio.Event()
        self._lost_primary = asyncio.Event()
        self._send_lock = asyncio.Lock()
        self.digests: asyncio.Queue[p4r.DigestList] = asyncio.Queue(1000)
        self.idle_timeouts: asyncio.Queue[p4r.IdleTimeoutNotification] = asyncio.Queue()

    async def run(self, serve: Callable[[bool], Awaitable[None]]) -> None:
        """Hold a session for ever; ends only by cancellation. `serve` is told whether the switch had the pipeline
        already, and with it what was written there."""
        backoff = FIRST_BACKOFF
        try:
            while True:
                before = self.sessions
                try:
                    await self._session(serve)
                except SessionError as error:
                    self._note(str(error))
                except fy.P4ClientError as error:
                    self._note(self._explain(error))
                except grpc.RpcError as error:
                    self._note(str(error).splitlines()[0])
                self.state = State.CONNECTING
                backoff = FIRST_BACKOFF if self.sessions > before else min(backoff * 2, LAST_BACKOFF)
                await asyncio.sleep(backoff)
        finally:
            self.state = State.STOPPED

    def begin_service(self) -> None:
        """The switch has what it needs. Until now `problem` told why the session before was lost."""
        self.state, self.problem = State.READY, None

    async def write(self, updates: Sequence[p4r.Update]) -> None:
        """Send updates in one WriteRequest; raises `finsy.P4ClientError`."""
        if updates:
            client = self._require()
            await client.request(p4r.WriteRequest(device_id=self.config.device_id, updates=updates))

    async def insert(self, updates: Sequence[p4r.Update]) -> dict[int, str]:
        """Send insertions; entries that are there already are no error. Returns which were refused, and why."""
        try:
            await self.write(updates)
        except fy.P4ClientError as error:
            if not error.details:
                raise
            return {
                index: detail.message
                for index, detail in error.details.items()
                if detail.canonical_code != fy.GRPCStatusCode.ALREADY_EXISTS
            }
        return {}

    async def write_existing(self, updates: Sequence[p4r.Update]) -> None:
        """Send changes or deletions; entries that are gone already are no error."""
        try:
            await self.write(updates)
        except fy.P4ClientError as error:
            if not error.is_not_found_only:
                raise

    async def read(self, request: p4r.ReadRequest) -> AsyncIterator[p4r.Entity]:
        """The entities that the switch answers with, as messages."""
        async for response in self._require().request_iter(request):
            for entity in response.entities:
                yield entity

    async def resolve(self) -> tuple[int, Any]:
        """The address family and socket address at which the switch answers; raises `SessionError`."""
        host, _, port = self.config.address.rpartition(":")
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), ANSWER_SECONDS)
        except OSError as error:
            reason = (error.strerror or str(error) or "no answer").lower()
            raise SessionError(f"{self.config.name}: {self.config.address}: {reason}; trying again") from None
        connected = writer.get_extra_info("socket")
        family, address = connected.family, connected.getpeername()
        writer.close()
        return family, address

    async def read_all(self, entities: Iterable[p4r.Entity]) -> list[p4r.Entity]:
        """What the switch has of these entities; nothing of a kind that it does not let read."""
        found: list[p4r.Entity] = []
        for entity in entities:
            try:
                found += [
                    entity
                    async for entity in self.read(p4r.ReadRequest(device_id=self.config.device_id, entities=[entity]))
                ]
            except fy.P4ClientError as error:
                if not _cannot_read(error):
                    raise
        return found

    async def acknowledge(self, digest: p4r.DigestList) -> None:
        """Tell the switch that a digest list was handled (P4Runtime specification, section 9.6.4)."""
        await self._send(
            p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=digest.digest_id, list_id=digest.list_id))
        )

    def _require(self) -> fy.P4Client:
        if self._client is None:
            raise SessionError(f"{self.config.name}: not connected")
        return self._client

    async def _send(self, message: p4r.StreamMessageRequest) -> None:
        async with self._send_lock:
            await self._require().send(message)

    def _note(self, problem: str) -> None:
        """Say a problem once, however often it comes back."""
        if problem != self.problem:
            self.problem = problem
            LOG.warning("%s", problem, extra={"access_point": self.config.name})

    def _explain(self, error: fy.P4ClientError) -> str:
        """One line for a failed call."""
        name, address = self.config.name, self.config.address
        message = " ".join(error.message.split())
        if error.code == fy.GRPCStatusCode.UNAVAILABLE:
            return f"{name}: no P4Runtime switch answers at {address}: start it, or correct `address`; trying again"
        if error.is_election_id_used:
            return (
                f"{name}: another controller uses election id {self.config.election_id} at {address}: stop it, or set "
                f"another `election_id`; trying again"
            )
        if error.code == fy.GRPCStatusCode.NOT_FOUND and not error.details:
            return f"{name}: {address} has no device {self.config.device_id}: correct `device_id`; {message}"
        details = "; ".join(f"update {index}: {detail.message}" for index, detail in list(error.details.items())[:3])
        return f"{name}: {address} answers {error.code.name}: {message} {details}".rstrip()

    def _complete(self, request: object) -> None:
        """finsy calls this before each request: who we are."""
        if isinstance(request, (p4r.WriteRequest, p4r.SetForwardingPipelineConfigRequest)):
            request.election_id.CopyFrom(U128.encode(self.election_id))

    async def _session(self, serve: Callable[[bool], Awaitable[None]]) -> None:
        client = fy.P4Client(self.config.address, self._credentials(), wait_for_ready=False)
        await client.open(schema=self.program.schema, complete_request=self._complete)
        self._client = client
        self._primary.clear()
        try:
            self.election_id, self._highest = self.config.election_id, 0
            await self._request_primary()
            try:
                await asyncio.wait_for(self._receive(client), ANSWER_SECONDS)
            except TimeoutError:
                raise SessionError(
                    f"{self.config.name}: {self.config.address} accepts connections but does not answer as a P4Runtime "
                    f"switch: correct `address`; trying again"
                ) from None
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read_stream(client))
                tasks.create_task(self._serve_while_primary(client, serve))
        except ExceptionGroup as group:
            # One cause ends both tasks.
            raise _first(group) from None
        finally:
            self._client = None
            with contextlib.suppress(grpc.RpcError):
                await client.close()

    def _credentials(self) -> fy.GRPCCredentialsTLS | None:
        tls = self.config.tls
        if tls is None:
            return None
        try:
            ca, cert, key = (path.read_bytes() for path in (tls.ca, tls.cert, tls.key))
        except OSError as error:
            raise SessionError(f"{self.config.name}: {error.filename}: {error.strerror}: correct `tls`") from None
        return fy.GRPCCredentialsTLS(cacert=ca, cert=cert, private_key=key, target_name_override=tls.server_name or "")

    async def _serve_while_primary(self, client: fy.P4Client, serve: Callable[[bool], Awaitable[None]]) -> None:
        while True:
            if not self._primary.is_set():
                self.state = State.BACKUP
                await self._primary.wait()
            self._lost_primary.clear()
            kept = await self._has_pipeline(client)
            if not kept:
                await self._set_pipeline(client)
                self._drain()
            self.sessions += 1
            serving = asyncio.ensure_future(serve(kept))
            losing = asyncio.ensure_future(self._lost_primary.wait())
            try:
                await asyncio.wait((serving, losing), return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    serving.result()
            finally:
                for task in (serving, losing):
                    task.cancel()
                await asyncio.gather(serving, losing, return_exceptions=True)

    async def _has_pipeline(self, client: fy.P4Client) -> bool:
        """Whether the switch runs this very pipeline: the cookie is a hash of P4Info and device config."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self.config.device_id, response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY
        )
        with contextlib.suppress(fy.P4ClientError):
            reply = await client.request(p4r.CapabilitiesRequest())
            self.p4runtime_version = reply.p4runtime_api_version
            with contextlib.suppress(ValueError):
                self.program.schema.set_p4runtime_version(fy.P4RuntimeVersion.parse(reply.p4runtime_api_version))
        try:
            config = (await client.request(request)).config
        except fy.P4ClientError as error:
            if error.code != fy.GRPCStatusCode.FAILED_PRECONDITION:
                raise
            return False
        return bool(config.cookie.cookie == self.program.schema.p4cookie)

    async def _set_pipeline(self, client: fy.P4Client) -> None:
        """Push the pipeline; everything that was in the tables is gone."""
        try:
            await client.request(
                p4r.SetForwardingPipelineConfigRequest(
                    device_id=self.config.device_id,
                    action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                    config=self.program.schema.get_pipeline_config(),
                )
            )
        except fy.P4ClientError as error:
            if error.code == fy.GRPCStatusCode.UNAVAILABLE:
                raise
            pipeline = self.program.pipeline
            raise SessionError(
                f"{self.config.name}: {self.config.address} refuses the pipeline {pipeline.p4info} + "
                f"{pipeline.device_config}: {error.code.name}: {' '.join(error.message.split())}; "
                f"`make p4` renews both"
            ) from None

    def _drain(self) -> None:
        """Forget what the stream said about the tables before the pipeline was pushed."""
        for queue in (self.digests, self.idle_timeouts):
            while not queue.empty():
                queue.get_nowait()

    async def _read_stream(self, client: fy.P4Client) -> None:
        while True:
            await self._receive(client)

    async def _receive(self, client: fy.P4Client) -> None:
        try:
            message = await client.receive()
        except RuntimeError:
            # finsy's word for an orderly end of the stream.
            raise SessionError(
                f"{self.config.name}: the switch at {self.config.address} closed the session; trying again"
            ) from None
        match message.WhichOneof("update"):
            case "arbitration":
                await self._arbitrate(message.arbitration)
            case "digest":
                # The switch repeats a digest that nobody acknowledges, so a flood may be cut.
                with contextlib.suppress(asyncio.QueueFull):
                    self.digests.put_nowait(message.digest)
            case "idle_timeout_notification":
                self.idle_timeouts.put_nowait(message.idle_timeout_notification)
            case "error":
                LOG.warning(
                    "%s: the switch says: %s",
                    self.config.name,
                    message.error.message,
                    extra={"access_point": self.config.name},
                )

    async def _request_primary(self) -> None:
        await self._send(
            p4r.StreamMessageRequest(
                arbitration=p4r.MasterArbitrationUpdate(
                    device_id=self.config.device_id, election_id=U128.encode(self.election_id)
                )
            )
        )

    async def _arbitrate(self, update: p4r.MasterArbitrationUpdate) -> None:
        highest = U128.decode(update.election_id)
        passed_on = self._highest > self.election_id
        self._highest = max(self._highest, highest)
        if update.status.code == rpc_code.OK:
            if passed_on:
                # BMv2 makes a backup primary by itself, with its old id: what its predecessor knows is no fence.
                self.election_id = self._highest + self.config.election_id
                await self._request_primary()
                return
            self._primary.set()
            return
        self._primary.clear()
        self._lost_primary.set()
        if update.status.code == rpc_code.NOT_FOUND:
            # Nobody is primary any more, and only an id not below the highest ever seen may be (section 5.3). Backups
            # that try at the same time try with different ones.
            self.election_id = highest + self.config.election_id
            await self._request_primary()
            return
        self._note(
            f"{self.config.name}: another controller is primary at {self.config.address} (election id {highest}, "
            f"ours is {self.election_id}): stop it or raise `election_id`; waiting as backup"
        )


def _cannot_read(error: fy.P4ClientError) -> bool:
    """Whether a read failed for what was asked, not for the switch being away."""
    codes = {part.canonical_code for part in error.details.values()} or {error.code}
    return codes <= {fy.GRPCStatusCode.NOT_FOUND, fy.GRPCStatusCode.UNIMPLEMENTED, fy.GRPCStatusCode.INVALID_ARGUMENT}


def _first(error: Exception) -> Exception:
    """The first plain exception of a group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
