# SPDX-License-Identifier: Apache-2.0
"""A synchronous P4Runtime client: what a packet test needs, nothing that knows the program or the target.

Entities are finsy's (`P4TableEntry`, `P4CounterEntry`, ...); finsy's own client is asynchronous, and PTF is not.
"""

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
from finsy import P4Schema
from finsy.p4entity import decode_entity, decode_stream, encode_entities
from finsy.proto import U128, p4r, p4r_grpc, rpc_code, rpc_status

DEVICE_ID = 1
RPC_TIMEOUT = 10  # seconds


class P4RuntimeError(Exception):
    """A refused call: `code` of the call, `codes` of each update (P4Runtime 1.4, section 10)."""

    def __init__(self, error: grpc.RpcError):
        self.code = error.code().name
        self.codes: list[str] = []
        lines = [f"{self.code}: {error.details()}"]
        trailers = dict(error.trailing_metadata() or ())
        status = rpc_status.Status.FromString(trailers.get("grpc-status-details-bin", b""))
        for detail in status.details:
            update = p4r.Error()
            if detail.Unpack(update):
                self.codes.append(rpc_code.Code.Name(update.canonical_code))
                if update.canonical_code:
                    lines.append(f"update {len(self.codes) - 1}: {self.codes[-1]}: {update.message}")
        super().__init__("; ".join(lines))


class Client:
    """One primary connection. What the target sends unasked is kept by kind until a test takes it."""

    def __init__(self, address: str, p4info: Path, election_id: int = 1):
        self.schema = P4Schema(p4info)
        self.election_id = U128.encode(election_id)
        self._channel = grpc.insecure_channel(address)
        try:
            grpc.channel_ready_future(self._channel).result(timeout=RPC_TIMEOUT)
        except grpc.FutureTimeoutError:
            raise TimeoutError(f"nothing answers P4Runtime at {address}") from None
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        self._inbox: dict[str, queue.SimpleQueue[Any]] = {
            kind: queue.SimpleQueue()
            for kind in ("arbitration", "packet", "digest", "idle_timeout_notification", "error")
        }
        self._stream = self._stub.StreamChannel(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._read_stream, daemon=True)
        self._reader.start()
        self._become_primary()

    def close(self) -> None:
        """End the stream, then the connection."""
        self._requests.put(None)
        self._reader.join(RPC_TIMEOUT)
        self._channel.close()

    def push_pipeline(self, device_config: bytes) -> None:
        """Verify and commit the compiled program with the P4Info of this client."""
        config = p4r.ForwardingPipelineConfig(p4info=self.schema.p4info, p4_device_config=device_config)
        self._call(
            self._stub.SetForwardingPipelineConfig,
            p4r.SetForwardingPipelineConfigRequest(
                device_id=DEVICE_ID,
                election_id=self.election_id,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=config,
            ),
        )

    def insert(self, *entities: Any) -> None:
        """Insert entities: one request, in order."""
        self._write(p4r.Update.INSERT, entities)

    def modify(self, *entities: Any) -> None:
        """Modify entities: one request, in order."""
        self._write(p4r.Update.MODIFY, entities)

    def delete(self, *entities: Any) -> None:
        """Delete entities: one request, in order."""
        self._write(p4r.Update.DELETE, entities)

    def read(self, *entities: Any) -> list[Any]:
        """Read entities; one without a key stands for all of its kind."""
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=encode_entities(entities, self.schema))
        responses = self._call(lambda message, timeout: list(self._stub.Read(message, timeout=timeout)), request)
        return [decode_entity(entity, self.schema) for response in responses for entity in response.entities]

    def send(self, message: Any) -> None:
        """Send a packet-out or a digest acknowledgment."""
        self._requests.put(message.encode_update(self.schema))

    def receive(self, kind: str, timeout: float) -> Any:
        """Take the oldest message of a kind (`packet`, `digest`, ...); None when none comes within `timeout` s."""
        try:
            return self._inbox[kind].get(timeout=timeout)
        except queue.Empty:
            return None

    def drain(self) -> None:
        """Forget everything that was received."""
        for inbox in self._inbox.values():
            while not inbox.empty():
                inbox.get_nowait()

    def _become_primary(self) -> None:
        arbitration = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id=self.election_id)
        self._requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        answer = self.receive("arbitration", RPC_TIMEOUT)
        if answer is None or answer.status.code != rpc_code.OK:
            raise ConnectionError(f"not the primary controller: {answer}")

    def _read_stream(self) -> None:
        try:
            for message in self._stream:
                kind = message.WhichOneof("update")
                decoded = message.arbitration if kind == "arbitration" else self._decode(kind, message)
                self._inbox[kind].put(decoded)
        except grpc.RpcError:
            pass  # the target ended the stream; the next call says why

    def _decode(self, kind: str, message: p4r.StreamMessageResponse) -> Any:
        return message.error if kind == "error" else decode_stream(message, self.schema)

    def _write(self, kind: Any, entities: Iterable[Any]) -> None:
        updates = [p4r.Update(type=kind, entity=entity.encode(self.schema)) for entity in entities]
        request = p4r.WriteRequest(device_id=DEVICE_ID, election_id=self.election_id, updates=updates)
        self._call(self._stub.Write, request)

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=RPC_TIMEOUT)
        except grpc.RpcError as error:
            raise P4RuntimeError(error) from None


PATIENCE = float(os.environ.get("PTF_PATIENCE", "20"))
"""s, for what must happen: a busy machine may hold a switch up for seconds."""


def poll(condition: Callable[[], bool], timeout: float = PATIENCE, interval: float = 0.005) -> bool:
    """Wait until the condition holds; False when it does not within `timeout` s."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(interval)
    return True
