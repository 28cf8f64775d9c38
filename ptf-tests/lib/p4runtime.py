# SPDX-License-Identifier: Apache-2.0
"""The packet tests' P4Runtime client: `checks/harness/p4runtime.py` with finsy's entities (`P4TableEntry`, ...).

It knows neither the program nor the target; finsy's own client is asynchronous, and PTF is not.
"""

import os
import queue
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc
from finsy import P4Schema
from finsy.p4entity import decode_entity, decode_stream
from finsy.proto import p4r

from accesspoint.checks.harness import p4runtime
from accesspoint.checks.harness.p4runtime import WAIT, describe, details, name_of
from accesspoint.checks.harness.waiting import eventually


class Entity(Protocol):
    """An entity of finsy's."""

    def encode(self, schema: P4Schema) -> p4r.Entity: ...


class Message(Protocol):
    """A stream message of finsy's to the target: a packet-out or a digest acknowledgment."""

    def encode_update(self, schema: P4Schema) -> p4r.StreamMessageRequest: ...


class P4RuntimeError(Exception):
    """A refused call, with the error of each update (P4Runtime 1.4, section 10)."""

    def __init__(self, failure: grpc.RpcError) -> None:
        updates = [
            f"update {number}: {name_of(error.canonical_code)}: {error.message}"
            for number, error in enumerate(details(failure))
            if error.canonical_code
        ]
        super().__init__("; ".join([describe(failure), *updates]))


@contextmanager
def refusals() -> Iterator[None]:
    """Raise P4RuntimeError for a refused call."""
    try:
        yield
    except grpc.RpcError as failure:
        raise P4RuntimeError(failure) from None


class Client:
    """One primary connection. Stream messages are kept by kind until a test takes them."""

    def __init__(self, address: str, p4info: Path, election_id: int = 1) -> None:
        self.schema = P4Schema(p4info)
        self._client = p4runtime.Client(address)
        self._kept: defaultdict[str | None, deque[p4r.StreamMessageResponse]] = defaultdict(deque)
        try:
            grpc.channel_ready_future(self._client.channel).result(timeout=WAIT)
        except grpc.FutureTimeoutError:
            raise TimeoutError(f"nothing answers P4Runtime at {address}") from None
        try:
            self._client.become_primary(election_id)
        except (AssertionError, grpc.RpcError) as failure:
            raise ConnectionError(f"not the primary controller: {failure}") from None

    def close(self) -> None:
        """End the stream and the connection."""
        self._client.close()

    def push_pipeline(self, device_config: bytes) -> None:
        """Verify and commit the compiled program with the P4Info of this client."""
        with refusals():
            self._client.push(p4info=self.schema.p4info, p4_device_config=device_config)

    def insert(self, *entities: Entity) -> None:
        """Insert entities: one request, in order."""
        self._write(p4r.Update.INSERT, entities)

    def modify(self, *entities: Entity) -> None:
        """Modify entities: one request, in order."""
        self._write(p4r.Update.MODIFY, entities)

    def delete(self, *entities: Entity) -> None:
        """Delete entities: one request, in order."""
        self._write(p4r.Update.DELETE, entities)

    def read(self, *entities: Entity) -> list[Any]:
        """Read entities; one without a key stands for all of its kind."""
        with refusals():
            found = self._client.read_all(*(entity.encode(self.schema) for entity in entities))
        return [decode_entity(entity, self.schema) for entity in found]

    def send(self, message: Message) -> None:
        """Send a packet-out or a digest acknowledgment."""
        self._client.send_message(message.encode_update(self.schema))

    def receive(self, kind: str, timeout: float) -> Any:
        """Take the oldest message of a kind (`packet`, `digest`, ...); None when none comes within `timeout` s."""
        deadline = time.monotonic() + timeout
        while not self._kept[kind]:
            try:
                message = self._client.received.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return None
            if not isinstance(message, p4r.StreamMessageResponse):
                return None  # the target ended the stream; the next call says why
            self._kept[message.WhichOneof("update")].append(message)
        taken = self._kept[kind].popleft()
        return taken.error if kind == "error" else decode_stream(taken, self.schema)

    def drain(self) -> None:
        """Forget everything that was received."""
        self._kept.clear()
        while not self._client.received.empty():
            self._client.received.get_nowait()

    def _write(self, kind: p4r.Update.Type.ValueType, entities: tuple[Entity, ...]) -> None:
        with refusals():
            self._client.write(*(p4r.Update(type=kind, entity=entity.encode(self.schema)) for entity in entities))


PATIENCE = float(os.environ.get("PTF_PATIENCE", "60"))
"""s, for what must happen: a busy machine may hold a switch up for seconds."""


def poll(condition: Callable[[], bool], timeout: float = PATIENCE, interval: float = 0.005) -> bool:
    """Wait until the condition holds; False when it does not within `timeout` s."""
    return bool(eventually(condition, timeout, interval))
