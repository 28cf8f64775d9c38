# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime client of bare gRPC stubs.

It builds messages by name but never corrects them, so that a test can send what a library would refuse to. What the
server does otherwise than its caller expects is an AssertionError that says so.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc, rpc_code, rpc_status
from google.protobuf import text_format

WAIT = 60.0  # seconds; only a failing test waits that long
EMPTY = Path(os.devnull)


def binary(value: int) -> bytes:
    """The canonical binary string of an integer."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


class Program:
    """A compiled program, its objects by their short names; it has none when no files are named."""

    def __init__(self, json: Path = EMPTY, p4info: Path = EMPTY) -> None:
        self.device_config = json.read_bytes()
        self.p4info = text_format.Parse(p4info.read_text(), p4i.P4Info())

    def _find(self, objects: Any, name: str) -> Any:
        return next(o for o in objects if name in (o.preamble.alias, o.preamble.name))

    def id(self, kind: str, name: str) -> int:
        return self._find(getattr(self.p4info, kind), name).preamble.id

    def entry(
        self, table: str, match: Sequence[p4r.FieldMatch] = (), action: Any = None, **fields: Any
    ) -> p4r.TableEntry:
        """A table entry; `action` is a name and values in the order of the action's parameters."""
        entry = p4r.TableEntry(table_id=self.id("tables", table), match=match, **fields)
        if action is not None:
            name, *values = action
            call = entry.action.action
            call.action_id = self.id("actions", name)
            for number, value in enumerate(values, 1):
                call.params.add(param_id=number, value=value if isinstance(value, bytes) else binary(value))
        return entry


def exact(field_id: int, value: int | bytes) -> p4r.FieldMatch:
    value = value if isinstance(value, bytes) else binary(value)
    return p4r.FieldMatch(field_id=field_id, exact=p4r.FieldMatch.Exact(value=value))


def update(operation: str, **entity: Any) -> p4r.Update:
    """`update("INSERT", table_entry=...)`."""
    return p4r.Update(type=operation, entity=p4r.Entity(**entity))


def insert(entry: p4r.TableEntry) -> p4r.Update:
    return update("INSERT", table_entry=entry)


def modify(entry: p4r.TableEntry) -> p4r.Update:
    return update("MODIFY", table_entry=entry)


def delete(entry: p4r.TableEntry) -> p4r.Update:
    return update("DELETE", table_entry=entry)


def errors(failure: grpc.RpcError) -> list[p4r.Error]:
    """The error of each part of a batch."""
    trailers = dict(failure.trailing_metadata() or ())
    if "grpc-status-details-bin" not in trailers:
        raise AssertionError(f"no details of the updates, but {describe(failure)}")
    status = rpc_status.Status.FromString(trailers["grpc-status-details-bin"])
    assert status.code == rpc_code.UNKNOWN, f"the batch's code is {name_of(status.code)} instead of UNKNOWN"
    result = []
    for detail in status.details:
        error = p4r.Error()
        assert detail.Unpack(error), f"a detail is a {detail.type_url} instead of a p4.v1.Error"
        result.append(error)
    return result


def details(failure: grpc.RpcError) -> list[p4r.Error]:
    """The errors of a batch; none where the server sends none."""
    with contextlib.suppress(AssertionError):
        return errors(failure)
    return []


def name_of(code: int) -> str:
    """The name of a canonical code."""
    return rpc_code.Code.Name(code) if code in rpc_code.Code.values() else str(code)


def describe(failure: grpc.RpcError) -> str:
    """A gRPC error in one line."""
    return f"{failure.code().name}: {' '.join((failure.details() or '').split())}"


@dataclass
class Client:
    """One P4Runtime client: a channel and a stream."""

    address: str
    program: Program = field(default_factory=Program)
    election_id: int | None = None
    role: str = ""
    device_id: int = 1
    credentials: grpc.ChannelCredentials | None = None
    wait: float = WAIT
    received: queue.Queue[Any] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        options = [("grpc.max_metadata_size", 1 << 20), ("grpc.max_receive_message_length", 1 << 26)]
        if self.credentials:
            self.channel = grpc.secure_channel(self.address, self.credentials, options)
        else:
            self.channel = grpc.insecure_channel(self.address, options)
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.outgoing: queue.Queue[Any] = queue.Queue()
        self.reader: threading.Thread | None = None

    def close(self) -> None:
        self.outgoing.put(None)
        self.channel.close()
        if self.reader:
            self.reader.join()

    def _read(self) -> None:
        try:
            for message in self.stub.StreamChannel(iter(self.outgoing.get, None)):
                self.received.put(message)
            self.received.put(None)
        except grpc.RpcError as failure:
            self.received.put(failure)

    def send(self, **message: Any) -> None:
        self.send_message(p4r.StreamMessageRequest(**message))

    def send_message(self, message: p4r.StreamMessageRequest) -> None:
        if self.reader is None:
            self.reader = threading.Thread(target=self._read, daemon=True)
            self.reader.start()
        self.outgoing.put(message)

    def receive(self, kind: str) -> Any:
        """The next message of the stream, which has to be of this kind."""
        try:
            message = self.received.get(timeout=self.wait)
        except queue.Empty:
            raise AssertionError(f"no {kind} message came within {self.wait:g} s") from None
        if isinstance(message, grpc.RpcError):
            raise message
        assert message is not None, "the server ended the stream"
        assert message.WhichOneof("update") == kind, f"another stream message than {kind} came: {message}"
        return getattr(message, kind)

    def receives_nothing(self, seconds: float = 0.2) -> bool:
        time.sleep(seconds)
        return self.received.empty()

    def arbitrate(self, election_id: int | None = None, **changes: Any) -> None:
        self.election_id = election_id
        message = p4r.MasterArbitrationUpdate(**{"device_id": self.device_id, **changes})
        if self.role:
            message.role.name = self.role
        if election_id is not None:
            message.election_id.CopyFrom(U128.encode(election_id))
        self.send(arbitration=message)

    def status(self) -> tuple[int, int | None]:
        """Canonical code and election id of the next arbitration message."""
        message = self.receive("arbitration")
        assert message.device_id == self.device_id, f"arbitration names device {message.device_id}"
        assert message.role.name == self.role, f"arbitration names role '{message.role.name}' instead of '{self.role}'"
        highest = U128.decode(message.election_id) if message.HasField("election_id") else None
        return message.status.code, highest

    def become_primary(self, election_id: int = 1) -> "Client":
        self.arbitrate(election_id)
        code, highest = self.status()
        said = f"{name_of(code)} with the highest election id {highest}"
        assert (code, highest) == (rpc_code.OK, election_id), f"client {election_id} is not primary: {said}"
        return self

    def _who(self) -> dict[str, Any]:
        who: dict[str, Any] = {"device_id": self.device_id, "role": self.role}
        if self.election_id is not None:
            who["election_id"] = U128.encode(self.election_id)
        return who

    def push(
        self, action: str = "VERIFY_AND_COMMIT", program: Program | None = None, cookie: int = 0, **config: Any
    ) -> None:
        """Sets the pipeline config; without a program and config fields none is sent."""
        request = p4r.SetForwardingPipelineConfigRequest(action=action, **self._who())
        if program is not None:
            config = {"p4info": program.p4info, "p4_device_config": program.device_config, **config}
        if config:
            request.config.CopyFrom(p4r.ForwardingPipelineConfig(**config))
            request.config.cookie.cookie = cookie
        self.stub.SetForwardingPipelineConfig(request, timeout=self.wait)

    def pipeline(self, response_type: str = "ALL") -> p4r.GetForwardingPipelineConfigResponse:
        request = p4r.GetForwardingPipelineConfigRequest(device_id=self.device_id, response_type=response_type)
        return self.stub.GetForwardingPipelineConfig(request, timeout=self.wait)

    def write(self, *updates: p4r.Update, **changes: Any) -> None:
        self.stub.Write(p4r.WriteRequest(**{**self._who(), **changes}, updates=updates), timeout=self.wait)

    def outcomes(self, *updates: p4r.Update, **changes: Any) -> list[int]:
        """The canonical code of each update."""
        try:
            self.write(*updates, **changes)
        except grpc.RpcError as failure:
            found = errors(failure)
            assert len(found) == len(updates), f"{len(found)} errors for {len(updates)} updates"
            return [error.canonical_code for error in found]
        return [rpc_code.OK] * len(updates)

    def read_all(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        """The entities that one request for several finds."""
        request = p4r.ReadRequest(device_id=self.device_id, entities=entities)
        return [found for response in self.stub.Read(request, timeout=self.wait) for found in response.entities]

    def read(self, **entity: Any) -> list[Any]:
        """The entities that one request finds, without their wrapping."""
        kind = next(iter(entity))
        return [getattr(found, kind) for found in self.read_all(p4r.Entity(**entity))]

    def read_code(self, **entity: Any) -> int:
        """The canonical code of one request."""
        try:
            self.read(**entity)
        except grpc.RpcError as failure:
            return errors(failure)[0].canonical_code
        return rpc_code.OK


def code(failure: Any) -> grpc.StatusCode:
    """The code of the gRPC error that `pytest.raises` caught."""
    return failure.value.code()
