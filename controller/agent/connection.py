# SPDX-License-Identifier: Apache-2.0
"""One P4Runtime session: connect, become primary, push the pipeline, carry reads, writes and the stream.

`Connection.run` keeps a session up for ever, with backoff between attempts, and calls `serve` whenever the pipeline
is in place; `serve` is cancelled when the session ends or another controller takes over. A problem is one line
in `problem`, until it is fixed: no message of a switch ends more than its own session.

A backup that takes over chooses an election id above all that were ever used, so the switch refuses messages of the
former primary, which may be alive and only cut off. While the backup waits, it polls the switch for its capabilities,
since a switch without power reports nothing.
"""

import asyncio
import contextlib
import enum
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence

import finsy as fy
from finsy.proto import U128, p4r, rpc_code

from ..config import AccessPointConfig
from .program import Program
from .refusals import DIGESTS, ERRORS, PACKETS, UNKNOWN, Refusals
from .transport import GrpcTransport, RpcError, Stream, Transport, code_name

LOG = logging.getLogger(__name__)

FIRST_BACKOFF = 0.2
LAST_BACKOFF = 5.0
ARBITRATION_SECONDS = 5.0
"""Seconds that the switch may take to answer the arbitration request."""
PIPELINE_SECONDS = 120.0
"""A busy switch takes long to make a pipeline ready, and commits one that nobody waits for any more: that would empty
the tables that the next session has filled."""
WATCH_SECONDS = 2.0
"""Seconds between a backup's checks that its switch is there, and for each answer: a primary's loop takes no longer to
notice."""
MAX_QUEUED = 1000
"""Digest lists, and lists of idle entries, that wait to be handled."""
ELECTION_ID_USED = "election id"
"""BMv2 and others say INVALID_ARGUMENT, and this in their text, when another session has the same one."""


class State(enum.StrEnum):
    """State of the session."""

    CONNECTING = "connecting"
    BACKUP = "backup"
    READY = "ready"
    STOPPED = "stopped"


class SessionError(Exception):
    """The session has failed; the text is one line with the reason and the fix."""


def over_grpc(config: AccessPointConfig) -> Transport:
    """Return the transport to an access point's switch, by its configuration; raises `SessionError`."""
    try:
        return GrpcTransport(config.address, config.tls)
    except OSError as error:
        raise SessionError(f"{config.name}: {error.filename}: {error.strerror}: correct `tls`") from None


Elect = Callable[[int], Awaitable[int]]
"""Gives the election id with which to ask for being primary; it is told the highest that was heard of (0: none yet)."""


class Connection:
    """The P4Runtime session of one access point; `connect` makes the way to its switch for each session."""

    def __init__(
        self,
        config: AccessPointConfig,
        program: Program,
        connect: Callable[[AccessPointConfig], Transport] = over_grpc,
        elect: Elect | None = None,
    ) -> None:
        self.config = config
        self.program = program
        self.state = State.CONNECTING
        self.problem: str | None = None
        self.sessions = 0
        self.p4runtime_version: str | None = None
        self.election_id = config.election_id
        self.lost = Refusals(config.name, DIGESTS, UNKNOWN, ERRORS, PACKETS)
        self._connect = connect
        self._elect = elect or self._by_number
        self._mend = "waiting as backup" if elect else "stop it or raise `election_id`; waiting as backup"
        self._warned = ""
        self._highest = 0
        """Highest election id that the switch has reported in this session."""
        self._transport: Transport | None = None
        self._stream: Stream | None = None
        self._primary = asyncio.Event()
        self._lost_primary = asyncio.Event()
        self.digests: asyncio.Queue[p4r.DigestList] = asyncio.Queue(MAX_QUEUED)
        self.hear: Callable[[p4r.PacketIn], None] = lambda packet: None
        """Called with each packet that the switch copies to the controller."""
        self.idle_timeouts: asyncio.Queue[p4r.IdleTimeoutNotification] = asyncio.Queue(MAX_QUEUED)

    async def run(self, serve: Callable[[bool], Awaitable[None]]) -> None:
        """Hold a session for ever; ends only by cancellation.

        The argument of `serve` is True when the switch had the pipeline already, with its former entries.
        """
        backoff = FIRST_BACKOFF
        clock = asyncio.get_running_loop().time
        try:
            while True:
                began = clock()
                try:
                    await self._session(serve)
                except Exception as error:
                    self._note(self._explain(error))
                self.state = State.CONNECTING
                # A session that lasted restarts at once; one that always fails restarts less and less often.
                backoff = FIRST_BACKOFF if clock() - began > LAST_BACKOFF else min(backoff * 2, LAST_BACKOFF)
                await asyncio.sleep(backoff)
        finally:
            self.state = State.STOPPED

    def begin_service(self) -> None:
        """Mark the session ready: the switch has what it needs. Until now `problem` has the last session's end."""
        self.state, self.problem = State.READY, None

    @property
    def transport(self) -> Transport:
        """Transport to the switch, during a session; raises `SessionError` else."""
        if self._transport is None:
            raise SessionError(f"{self.config.name}: not connected")
        return self._transport

    def asks_to_write(self, updates: Iterable[p4r.Update]) -> bytes:
        """Return a serialised WriteRequest of this controller."""
        election = U128.encode(self.election_id)
        request = p4r.WriteRequest(device_id=self.config.device_id, election_id=election, updates=updates)
        return request.SerializeToString()

    async def write(self, updates: Sequence[p4r.Update]) -> None:
        """Send updates in one WriteRequest; raises `RpcError`."""
        if updates:
            await self.transport.call("Write", self.asks_to_write(updates))

    async def insert(self, updates: Sequence[p4r.Update]) -> dict[int, str]:
        """Send insertions; entries that are there already are no error. Returns which were refused, and why."""
        try:
            await self.write(updates)
        except RpcError as error:
            if not error.parts:
                raise
            refused = {number for number, part in error.parts.items() if part.canonical_code != rpc_code.ALREADY_EXISTS}
            return {number: error.parts[number].message for number in refused if number < len(updates)}
        return {}

    async def write_existing(self, updates: Sequence[p4r.Update]) -> None:
        """Send changes or deletions; entries that are gone already are no error."""
        try:
            await self.write(updates)
        except RpcError as error:
            if not error.parts or error.codes != {rpc_code.NOT_FOUND}:
                raise

    async def read(self, entities: Iterable[p4r.Entity]) -> list[p4r.Entity]:
        """Read these entities from the switch; raises `RpcError`."""
        request = p4r.ReadRequest(device_id=self.config.device_id, entities=entities)
        return list(
            p4r.ReadResponse.FromString(await self.transport.call("Read", request.SerializeToString())).entities
        )

    async def read_all(self, entities: Iterable[p4r.Entity]) -> list[p4r.Entity]:
        """Read these entities from the switch; a kind that it refuses to read is left out."""
        found: list[p4r.Entity] = []
        for entity in entities:
            try:
                found += await self.read([entity])
            except RpcError as error:
                if not error.codes <= {rpc_code.NOT_FOUND, rpc_code.UNIMPLEMENTED, rpc_code.INVALID_ARGUMENT}:
                    raise
        return found

    def acknowledge(self, digest: p4r.DigestList) -> None:
        """Tell the switch that a digest list was handled (P4Runtime specification, section 9.6.4)."""
        self._send(digest_ack=p4r.DigestListAck(digest_id=digest.digest_id, list_id=digest.list_id))

    def send_packet(self, port: int, frame: bytes) -> None:
        """Send a frame out of a port, where the program knows packets of the controller."""
        if self._stream is not None and self.program.schema.controller_packet_metadata.get("packet_out") is not None:
            packet = fy.P4PacketOut(frame, egress_port=port, pad=0).encode_update(self.program.schema)
            self._stream.send(packet.SerializeToString())

    def _send(self, **message: p4r.DigestListAck | p4r.MasterArbitrationUpdate) -> None:
        if self._stream is not None:
            self._stream.send(p4r.StreamMessageRequest(**message).SerializeToString())

    def warn(self, said: str) -> None:
        """Log something odd about the switch, once until something else is odd."""
        if said != self._warned:
            self._warned = said
            LOG.warning("%s: the switch says: %s", self.config.name, said, extra={"access_point": self.config.name})

    def _note(self, problem: str) -> None:
        """Log a problem once, however often it recurs."""
        if problem != self.problem:
            self.problem = problem
            LOG.warning("%s", problem, extra={"access_point": self.config.name})

    def _explain(self, error: Exception) -> str:
        """Explain the end of a session in one line."""
        while isinstance(error, ExceptionGroup):
            # One cause ends all tasks of a session.
            error = error.exceptions[0]
        name, address = self.config.name, self.config.address
        if isinstance(error, SessionError):
            return str(error)
        if not isinstance(error, RpcError):
            place = traceback.extract_tb(error.__traceback__)[-1]
            LOG.debug("%s", name, exc_info=error)
            return (
                f"{name}: what {address} said cannot be handled: {type(error).__name__}: "
                f"{' '.join(str(error).split())} ({place.name}, line {place.lineno}); trying again"
            )
        if error.code == rpc_code.UNAVAILABLE:
            return f"{name}: no P4Runtime switch answers at {address}: start it, or correct `address`; trying again"
        if error.code == rpc_code.DEADLINE_EXCEEDED:
            return f"{name}: the switch at {address} does not answer any more; trying again"
        if error.code == rpc_code.INVALID_ARGUMENT and ELECTION_ID_USED in error.message.lower():
            return (
                f"{name}: another controller uses election id {self.config.election_id} at {address}: stop it, or set "
                f"another `election_id`; trying again"
            )
        if error.code == rpc_code.NOT_FOUND and not error.parts:
            return f"{name}: {address} has no device {self.config.device_id}: correct `device_id`; {error.message}"
        return f"{name}: {address} answers {error}"

    async def _session(self, serve: Callable[[bool], Awaitable[None]]) -> None:
        self._transport = self._connect(self.config)
        try:
            self._stream = self._transport.stream()
            self._primary.clear()
            self._highest = 0
            await self._request_primary()
            try:
                async with asyncio.timeout(ARBITRATION_SECONDS):
                    await self._receive()
            except TimeoutError:
                raise SessionError(
                    f"{self.config.name}: {self.config.address} accepts connections but does not answer as a P4Runtime "
                    f"switch: correct `address`; trying again"
                ) from None
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read_stream())
                tasks.create_task(self._serve_while_primary(serve))
        finally:
            if self._stream is not None:
                self._stream.close()
            transport, self._transport, self._stream = self._transport, None, None
            await transport.close()

    async def _serve_while_primary(self, serve: Callable[[bool], Awaitable[None]]) -> None:
        while True:
            while not self._primary.is_set():
                self.state = State.BACKUP
                try:
                    async with asyncio.timeout(WATCH_SECONDS):
                        await self._primary.wait()
                except TimeoutError:
                    await self._watch()
            self._lost_primary.clear()
            kept = await self._has_pipeline()
            if not kept:
                await self._set_pipeline()
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

    async def _watch(self) -> None:
        """Raises `RpcError` when the switch does not answer; one that only knows no `Capabilities` does."""
        try:
            answer = await self.transport.call("Capabilities", b"", timeout=WATCH_SECONDS)
        except RpcError as error:
            if error.code in (rpc_code.UNAVAILABLE, rpc_code.DEADLINE_EXCEEDED):
                raise
            return
        self.p4runtime_version = p4r.CapabilitiesResponse.FromString(answer).p4runtime_api_version

    async def _has_pipeline(self) -> bool:
        """Check that the switch runs this very pipeline: the cookie is a hash of P4Info and device config."""
        await self._watch()
        with contextlib.suppress(ValueError):
            self.program.schema.set_p4runtime_version(fy.P4RuntimeVersion.parse(self.p4runtime_version or ""))
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self.config.device_id, response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY
        )
        try:
            answer = await self.transport.call("GetForwardingPipelineConfig", request.SerializeToString())
        except RpcError as error:
            if error.code != rpc_code.FAILED_PRECONDITION:
                raise
            return False
        config = p4r.GetForwardingPipelineConfigResponse.FromString(answer).config
        return bool(config.cookie.cookie == self.program.schema.p4cookie)

    async def _set_pipeline(self) -> None:
        """Push the pipeline; everything that was in the tables is gone."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.config.device_id,
            election_id=U128.encode(self.election_id),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=self.program.schema.get_pipeline_config(),
        )
        try:
            await self.transport.call(
                "SetForwardingPipelineConfig", request.SerializeToString(), timeout=PIPELINE_SECONDS
            )
        except RpcError as error:
            if error.is_away:
                raise
            pipeline = self.program.pipeline
            raise SessionError(
                f"{self.config.name}: {self.config.address} refuses the pipeline {pipeline.p4info} + "
                f"{pipeline.device_config}: {code_name(error.code)}: {error.message}; `make p4` renews both"
            ) from None

    def _drain(self) -> None:
        """Forget what the stream said about the tables before the pipeline was pushed."""
        for queue in (self.digests, self.idle_timeouts):
            while not queue.empty():
                queue.get_nowait()

    async def _read_stream(self) -> None:
        while True:
            await self._receive()

    async def _receive(self) -> None:
        assert self._stream is not None
        message = p4r.StreamMessageResponse.FromString(await self._stream.receive())
        match message.WhichOneof("update"):
            case "arbitration":
                await self._arbitrate(message.arbitration)
            case "digest":
                # The switch repeats a digest that nobody acknowledges, so a flood may be cut.
                try:
                    self.digests.put_nowait(message.digest)
                except asyncio.QueueFull:
                    self.lost.add(DIGESTS, "more digests come than can be handled: %d lists wait", MAX_QUEUED)
            case "packet":
                self.hear(message.packet)
            case "idle_timeout_notification":
                await self.idle_timeouts.put(message.idle_timeout_notification)
            case "error":
                self.lost.by_reason[ERRORS] += 1
                self.warn(" ".join(message.error.message.split()))

    async def _by_number(self, highest: int) -> int:
        return highest + self.config.election_id

    async def _request_primary(self) -> None:
        self.election_id = await self._elect(self._highest)
        self._send(
            arbitration=p4r.MasterArbitrationUpdate(
                device_id=self.config.device_id, election_id=U128.encode(self.election_id)
            )
        )

    async def _arbitrate(self, update: p4r.MasterArbitrationUpdate) -> None:
        highest = U128.decode(update.election_id)
        passed_on = self._highest > self.election_id
        self._highest = max(self._highest, highest)
        if update.status.code == rpc_code.OK:
            if passed_on:
                # BMv2 makes a backup primary by itself, with its old id, which does not fence off its predecessor.
                await self._request_primary()
                return
            self._primary.set()
            return
        self._primary.clear()
        self._lost_primary.set()
        if update.status.code == rpc_code.NOT_FOUND:
            # Nobody is primary any more, and only an id not below the highest ever seen may be (section 5.3). Backups
            # that try at the same time try with different ones.
            await self._request_primary()
            return
        self._note(
            f"{self.config.name}: another controller is primary at {self.config.address} (election id {highest}, "
            f"this one has {self.election_id}): {self._mend}"
        )
