# SPDX-License-Identifier: Apache-2.0
"""The C library of the switch in virtual time, by ctypes: what a simulator does, in Python."""

import ctypes
from collections.abc import Iterator
from typing import Any, Protocol

from finsy.proto import U128, p4i, p4r, rpc_status

from accesspoint.topologies.requirements import ROOT

LIBRARY = ROOT / "target/release/libapswitch_c.so"
OK, NOTHING, ERROR, STATUS = range(4)
WRITE, READ, SET_PIPELINE, GET_PIPELINE, CAPABILITIES = range(5)
DEVICE = 1
ELECTION = U128.encode(1)


class Bytes(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t))

    def get(self) -> bytes:
        return ctypes.string_at(self.data, self.length) if self.length else b""


class Frame(ctypes.Structure):
    _fields_ = (("bytes", Bytes), ("at", ctypes.c_uint64), ("port", ctypes.c_uint16))


class Refused(Exception):
    """Error status of a P4Runtime answer."""

    def __init__(self, text: str, status: bytes) -> None:
        super().__init__(text)
        self.status = rpc_status.Status.FromString(status)


class Pipeline(Protocol):
    """A compiled program."""

    p4info: p4i.P4Info
    device_config: bytes


class Simulated:
    """A switch; `words` are options as on the command line of apswitch."""

    def __init__(self, *words: str) -> None:
        self.library = ctypes.CDLL(str(LIBRARY))
        self.library.aps_new.restype = ctypes.c_void_p
        self.library.aps_error.restype = ctypes.c_char_p
        for name in ("aps_now", "aps_deadline"):
            getattr(self.library, name).restype = ctypes.c_uint64
        error = ctypes.create_string_buffer(300)
        texts = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        new = self.library.aps_new(texts, ctypes.c_size_t(len(words)), error, ctypes.c_size_t(len(error)))
        if new is None:
            raise ValueError(error.value.decode())
        self.aps = ctypes.c_void_p(new)

    def close(self) -> None:
        self.library.aps_free(self.aps)

    def error(self) -> str:
        return str(self.library.aps_error(self.aps).decode())

    def _check(self, result: int, answer: Bytes | None = None) -> bool:
        if result == STATUS:
            raise Refused(self.error(), answer.get() if answer else b"")
        if result == ERROR:
            raise ValueError(self.error())
        return bool(result == OK)

    @property
    def now(self) -> int:
        return int(self.library.aps_now(self.aps))

    @property
    def deadline(self) -> int:
        return int(self.library.aps_deadline(self.aps))

    def advance(self, to: int) -> None:
        self._check(self.library.aps_advance(self.aps, ctypes.c_uint64(to)))

    def receive(self, port: int, frame: bytes) -> None:
        self._check(self.library.aps_receive(self.aps, ctypes.c_uint16(port), frame, ctypes.c_size_t(len(frame))))

    def allow(self, port: int, frames: int) -> None:
        self._check(self.library.aps_allow(self.aps, ctypes.c_uint16(port), ctypes.c_uint32(frames)))

    def sent(self) -> Iterator[tuple[int, int, bytes]]:
        """Port, time in ns and frame of all that was sent."""
        frame = Frame()
        while self._check(self.library.aps_sent(self.aps, ctypes.byref(frame))):
            yield frame.port, frame.at, frame.bytes.get()

    def call(self, method: int, request: Any) -> bytes:
        answer, message = Bytes(), request if isinstance(request, bytes) else request.SerializeToString()
        result = self.library.aps_call(
            self.aps, ctypes.c_uint32(method), message, ctypes.c_size_t(len(message)), ctypes.byref(answer)
        )
        self._check(result, answer)
        return answer.get()

    def open(self) -> int:
        stream = ctypes.c_uint64()
        self._check(self.library.aps_stream_open(self.aps, ctypes.byref(stream)))
        return stream.value

    def send(self, stream: int, message: Any) -> None:
        answer, sent = Bytes(), message if isinstance(message, bytes) else message.SerializeToString()
        result = self.library.aps_stream_send(
            self.aps, ctypes.c_uint64(stream), sent, ctypes.c_size_t(len(sent)), ctypes.byref(answer)
        )
        self._check(result, answer)

    def take(self, stream: int) -> Iterator[p4r.StreamMessageResponse]:
        answer = Bytes()
        while self._check(
            self.library.aps_stream_take(self.aps, ctypes.c_uint64(stream), ctypes.byref(answer)), answer
        ):
            yield p4r.StreamMessageResponse.FromString(answer.get())

    def become_primary(self) -> int:
        """The stream of a new primary."""
        stream = self.open()
        arbitration = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=ELECTION)
        self.send(stream, p4r.StreamMessageRequest(arbitration=arbitration))
        return stream

    def push(self, program: Pipeline) -> None:
        config = p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=program.device_config)
        commit = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE, election_id=ELECTION, action=commit, config=config
        )
        self.call(SET_PIPELINE, request)

    def write(self, *updates: p4r.Update) -> None:
        self.call(WRITE, p4r.WriteRequest(device_id=DEVICE, election_id=ELECTION, updates=updates))

    def read(self, **entity: Any) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=DEVICE, entities=[p4r.Entity(**entity)])
        return list(p4r.ReadResponse.FromString(self.call(READ, request)).entities)
