# SPDX-License-Identifier: Apache-2.0
"""The controller in simulated time: an event loop whose clock is ns-3's, and P4Runtime to a switch in this process.

The session, learning and the ticks are the coroutines of `accesspoint.controller.agent.access_point`, as with any
switch. ns-3 rings when the next of them is due (`ap_alarm`), and when the switch has sent something; then all
coroutines that can run do, and take no time. So a run depends on its seed alone.
"""

import asyncio
import contextvars
import ctypes
import functools
import heapq
import itertools
import math
import os
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from finsy.proto import rpc_code, rpc_status

from accesspoint.controller.agent.access_point import ManagedAccessPoint
from accesspoint.controller.agent.transport import ANSWER_SECONDS, RpcError
from accesspoint.controller.config import AccessPointConfig
from accesspoint.topologies.ns3 import build
from accesspoint.topologies.requirements import LabError

OK, NOTHING, ERROR, STATUS = range(4)
METHODS = {
    "Write": 0,
    "Read": 1,
    "SetForwardingPipelineConfig": 2,
    "GetForwardingPipelineConfig": 3,
    "Capabilities": 4,
}
"""Numbers of aps_method."""
NS = 1_000_000_000

_Callback = ctypes.CFUNCTYPE(None)


class Bytes(ctypes.Structure):
    """aps_bytes: owned by the library until its next call."""

    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t))

    def get(self) -> bytes:
        return ctypes.string_at(self.data, self.length) if self.length else b""


@functools.cache
def load() -> ctypes.CDLL:
    """Load the project's C++ in ns-3, as it is at the first call: a process has it once. Raises LabError."""
    path = build.library()
    # Lazily, which ctypes does not: ns-3's LTE needs a module that has a window, of a library that no wheel brings.
    linker = ctypes.CDLL(None)
    linker.dlopen.restype, linker.dlerror.restype = ctypes.c_void_p, ctypes.c_char_p
    handle = linker.dlopen(str(path).encode(), os.RTLD_LAZY)
    if not handle:
        error = linker.dlerror().decode()
        raise LabError(f"{path} cannot be loaded: {error}; remove it, and `make ns3` makes it again")
    library = ctypes.CDLL(str(path), handle=handle)
    library.ap_now.restype = ctypes.c_uint64
    pointer, size, u64 = ctypes.POINTER(Bytes), ctypes.c_size_t, ctypes.c_uint64
    library.ap_alarm.argtypes = (u64, _Callback)
    library.ap_call.argtypes = (u64, ctypes.c_uint32, ctypes.c_char_p, size, pointer)
    library.ap_stream_open.argtypes = (u64, ctypes.POINTER(u64), _Callback)
    library.ap_stream_send.argtypes = (u64, u64, ctypes.c_char_p, size, pointer)
    library.ap_stream_take.argtypes = (u64, pointer)
    library.ap_stream_close.argtypes = (u64, u64)
    return library


_simulations: list[str] = []
"""Kind of the one simulation of this process; empty: there is none."""


def claim(kind: str) -> None:
    """Claim ns-3's simulator, of which a process has one, before a simulation is made. Raises LabError when it is in
    use."""
    if _simulations:
        raise LabError(
            f"a {_simulations[0]} is there already, and ns-3 has one simulator in a process: leave that one first"
        )
    _simulations.append(kind)


def release() -> None:
    """Release ns-3's simulator after the simulation has ended."""
    _simulations.clear()


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop in simulated time. It never waits: `run_ready` does all that can be done now."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        """A heap of (time in ns, order of the requests, timer)."""
        self._count = itertools.count()
        self._ring = _Callback(self.run_ready)
        self._running = False
        self.failure: BaseException | None = None
        """First exception of a callback that nobody waits for."""

    def time(self) -> float:
        """Simulated seconds."""
        return float(self._library.ap_now()) / NS

    def run_ready(self) -> None:
        """Do what can be done at this time, and have ns-3 ring for what is due next."""
        if self._running:
            return
        self._running = True
        asyncio._set_running_loop(self)
        try:
            while self.failure is None:
                now = self._library.ap_now()
                while self._timers and self._timers[0][0] <= now:
                    self._ready.append(heapq.heappop(self._timers)[2])
                if not self._ready:
                    break
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        except BaseException as error:
            # A callback of C has nowhere to raise it to: see `failure`.
            self.failure = error
        finally:
            asyncio._set_running_loop(None)
            self._running = False
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if self.failure is not None:
            self._library.ap_stop()
        elif self._timers:
            self._library.ap_alarm(self._timers[0][0], self._ring)
        else:
            self._library.ap_no_alarm()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Implement asyncio.AbstractEventLoop."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Implement asyncio.AbstractEventLoop."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Implement asyncio.AbstractEventLoop."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        # Never early: who is called looks at the time.
        heapq.heappush(self._timers, (math.ceil(when * NS), next(self._count), timer))
        return timer

    def create_future(self) -> "asyncio.Future[Any]":
        """Implement asyncio.AbstractEventLoop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> "asyncio.Task[Any]":
        """Implement asyncio.AbstractEventLoop."""
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the exception and end the run, as nobody waits for it."""
        error = context.get("exception")
        self.failure = self.failure or (error if error else RuntimeError(context.get("message", "unknown")))

    def get_debug(self) -> bool:
        """Implement asyncio.AbstractEventLoop."""
        return False

    def is_running(self) -> bool:
        """Implement asyncio.AbstractEventLoop."""
        return self._running

    def is_closed(self) -> bool:
        """Implement asyncio.AbstractEventLoop."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when its time comes."""


class InProcess:
    """P4Runtime to the switch of an access point (`lab_access_point`), a `Transport`. A call has
    its answer when it returns, at the same simulated time."""

    def __init__(self, library: ctypes.CDLL, loop: VirtualLoop, handle: int) -> None:
        self.library, self.loop, self.handle = library, loop, handle

    async def call(self, method: str, request: bytes, *, timeout: float = ANSWER_SECONDS) -> bytes:
        """Implement `Transport.call`."""
        if method not in METHODS:
            raise RpcError(rpc_status.Status(code=rpc_code.UNIMPLEMENTED, message=f"there is no {method}"))
        answer = Bytes()
        result = self.library.ap_call(self.handle, METHODS[method], request, len(request), ctypes.byref(answer))
        return self.answered(result, answer)

    def answered(self, result: int, answer: Bytes) -> bytes:
        """Return the bytes of an answer. Raises `RpcError`."""
        if result == STATUS:
            raise RpcError(rpc_status.Status.FromString(answer.get()))
        if result == ERROR:
            raise RpcError(rpc_status.Status(code=rpc_code.UNAVAILABLE, message="the access point has ended"))
        return answer.get()

    def stream(self) -> "InProcessStream":
        """Implement `Transport.stream`."""
        return InProcessStream(self)

    async def close(self) -> None:
        """Implement `Transport.close`."""


class InProcessStream:
    """A stream, as `accesspoint.controller.agent.transport.Stream`."""

    def __init__(self, to: InProcess) -> None:
        self._to = to
        self._messages: asyncio.Queue[bytes | RpcError] = asyncio.Queue()
        self._told = _Callback(self._tell)
        self._stream: int | None = None
        stream = ctypes.c_uint64()
        self._open = to.library.ap_stream_open(to.handle, ctypes.byref(stream), self._told) == OK
        self._stream = stream.value if self._open else None
        if not self._open:
            self._end("the access point has ended")

    def send(self, message: bytes) -> None:
        """Implement `Stream.send`."""
        answer = Bytes()
        if self._open:
            result = self._to.library.ap_stream_send(
                self._to.handle, self._stream, message, len(message), ctypes.byref(answer)
            )
            try:
                self._to.answered(result, answer)
            except RpcError as error:
                self._open = False
                self._messages.put_nowait(error)
            # The answer is there already, also before the simulation runs.
            self._take()

    async def receive(self) -> bytes:
        """Implement `Stream.receive`."""
        message = await self._messages.get()
        if isinstance(message, RpcError):
            self._messages.put_nowait(message)  # for who asks again
            raise message
        return message

    def close(self) -> None:
        """Implement `Stream.close`."""
        self._open = False
        # Also one that has ended: C has our callback until then.
        if self._stream is not None:
            self._to.library.ap_stream_close(self._to.handle, self._stream)
            self._stream = None

    def __del__(self) -> None:
        self.close()  # C has our callback

    def _tell(self) -> None:
        """Take the switch's messages. Called by ns-3 when there are some."""
        self._take()
        self._to.loop.run_ready()

    def _take(self) -> None:
        message = Bytes()
        while (result := self._to.library.ap_stream_take(self._to.handle, ctypes.byref(message))) != NOTHING:
            if result == OK:
                self._messages.put_nowait(message.get())
            else:
                self._open = False
                self._messages.put_nowait(RpcError(rpc_status.Status.FromString(message.get())))

    def _end(self, why: str) -> None:
        self._messages.put_nowait(RpcError(rpc_status.Status(code=rpc_code.UNAVAILABLE, message=why)))


class Controlled:
    """An access point of ns-3 with its controller: ready when this returns, at the same simulated time.

    Args:
        library: of `load`.
        handle: of the access point.
        config: of its ports and features; its address is not used.
        loop: of another of this simulation, which rings one alarm; None: this is the first.

    Raises LabError when it does not become ready.
    """

    def __init__(
        self, library: ctypes.CDLL, handle: int, config: AccessPointConfig, loop: VirtualLoop | None = None
    ) -> None:
        # No sockets, no processes: none is asked for.
        self.loop = loop or VirtualLoop(library)  # type: ignore[abstract]
        ready: list[str] = []
        asyncio._set_running_loop(self.loop)
        try:
            self.access_point = ManagedAccessPoint(
                config, ready.append, lambda _: InProcess(library, self.loop, handle)
            )
            self._task = self.loop.create_task(self.access_point.run())
            self._task.add_done_callback(self._ended)
        finally:
            asyncio._set_running_loop(None)
        self.loop.run_ready()
        try:
            self.check()
            if not ready:
                problem = self.access_point.connection.problem or "the switch does not answer"
                raise LabError(f"the controller is not ready: {problem}")
        except BaseException:
            self.stop()  # nobody else can: its alarm would ring when it is gone
            raise

    def check(self) -> None:
        """Raises LabError when the controller has ended."""
        if isinstance(self.loop.failure, KeyboardInterrupt):
            raise self.loop.failure
        if (failure := self.loop.failure) is not None:
            raise LabError(f"the controller has ended: {type(failure).__name__}: {failure}") from failure

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            self.loop.failure = self.loop.failure or task.exception() or RuntimeError("it has ended")

    def stop(self) -> None:
        """Stop the controller, before the simulation ends."""
        self.loop.failure = None  # what ended it was told; its coroutines end, too
        self._task.cancel()
        self.loop.run_ready()
