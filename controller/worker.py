# SPDX-License-Identifier: Apache-2.0
"""The loop's work: ticks of some access points, and nothing else. `worker_main` is its process, `loop` talks to it.

One thread polls: a tick is due, a switch has answered, or the parent has something to say, which waits while a tick
is due. A message is an operation, the key of a session, arguments.
"""

import heapq
import math
import pickle
import select
import socket
import time
import traceback
from collections.abc import Callable
from typing import Any

from .board import Board
from .http2 import ChannelError
from .messages import LENGTH_BYTES, packed
from .ticker import Ended, Ticker

CHECK_SECONDS = 0.1
"""How often it is looked for switches that do not answer."""
LISTEN_SECONDS = 0.001
"""How long messages of the parent are handled at once."""
PHASE_SECONDS = 0.002
PHASES = 5
"""Access points begin their ticks at different times, but some together: one wake-up then does for all of them."""


class Worker:
    """The process behind one end of a socket pair."""

    def __init__(self, parent: socket.socket) -> None:
        self._parent = parent
        self._inbox = bytearray()
        self._tickers: dict[int, Ticker] = {}
        self._watched: dict[int, int] = {}
        """What is polled for, of each session's connection."""
        self._by_fd: dict[int, int] = {}
        self._busy = 0
        """Sessions that are in a tick."""
        self._due: list[tuple[float, int]] = []
        """A heap: when the next tick of a session begins that is not in one."""
        self._check_at = 0.0
        self._poll, self._quiet_poll = select.epoll(), select.epoll()
        self._poll.register(parent, select.EPOLLIN)
        self._quiet_poll.register(parent, select.EPOLLIN)

    def run(self) -> None:
        """Work until the parent is gone."""
        parent = self._parent.fileno()
        while True:
            if not self._busy:
                # Who answers a Write between two ticks wakes nobody: that is taken when the next tick begins.
                self._quiet_poll.poll(self._idle_seconds())
            for fd, events in self._poll.poll(self._idle_seconds()):
                if fd == parent:
                    data = self._parent.recv(1 << 18)
                    if not data:
                        return
                    self._inbox += data
                elif fd in self._by_fd:
                    key = self._by_fd[fd]
                    self._guarded(key, self._tickers[key].channel.handle, events)
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                key = heapq.heappop(self._due)[1]
                ticker = self._tickers.get(key)
                if ticker is not None and not ticker.busy and ticker.due <= now:
                    self._guarded(key, ticker.begin, now)
            if now >= self._check_at:
                self._check_at = now + CHECK_SECONDS
                for key, ticker in list(self._tickers.items()):
                    self._guarded(key, ticker.check, now)
            if self._inbox:
                self._listen()

    def _idle_seconds(self) -> float:
        """How long there is nothing to do."""
        if self._inbox and self._has_message():
            return 0.0
        due = self._due[0][0] if self._due else math.inf
        return min(CHECK_SECONDS, max(0.0, due - time.monotonic()))

    def _guarded(self, key: int, step: Callable[[Any], None], argument: Any) -> None:
        """Let a session go on; what ends it is told to the parent."""
        ticker = self._tickers[key]
        was_busy = ticker.busy
        try:
            step(argument)
        except Exception as error:
            # Whatever it is, it ends no other access point's loop.
            if not isinstance(error, (Ended, ChannelError)):
                traceback.print_exc()
            self._tell("ended", key, str(error) or type(error).__name__)
            self._stop(key)
            return
        finally:
            self._busy += ticker.busy - was_busy
        if ticker.released:
            self._tell("released", key)
            self._stop(key)
            return
        if was_busy and not ticker.busy:
            heapq.heappush(self._due, (ticker.due, key))
        events = ticker.channel.events
        if events != self._watched[key]:
            self._poll.modify(ticker.channel.fileno(), events)
            self._watched[key] = events

    def _has_message(self) -> bool:
        size = len(self._inbox)
        return size >= LENGTH_BYTES and size >= LENGTH_BYTES + int.from_bytes(self._inbox[:LENGTH_BYTES])

    def _listen(self) -> None:
        """Do what the parent says, for a while."""
        until = time.monotonic() + LISTEN_SECONDS
        while self._has_message() and time.monotonic() < until:
            end = LENGTH_BYTES + int.from_bytes(self._inbox[:LENGTH_BYTES])
            message = pickle.loads(self._inbox[LENGTH_BYTES:end])
            del self._inbox[:end]
            self._do(*message)

    def _do(self, operation: str, key: int, *arguments: Any) -> None:
        if operation == "start":
            self._start(key, *arguments)
            return
        ticker = self._tickers.get(key)
        if ticker is None:
            # It has ended, and the parent is about to hear of it.
            return
        match operation:
            case "stop":
                self._stop(key)
            case "release":
                self._guarded(key, lambda _: ticker.release(), 0.0)
            case "configure":
                ticker.configure(*arguments)
            case "add":
                for flow in arguments[0]:
                    ticker.add(flow)
            case "change":
                ticker.change(*arguments)
            case "remove":
                ticker.remove(*arguments)

    def _start(self, key: int, config: Any, session: Any, board: tuple[int, int, int]) -> None:
        shared = Board.attach(*board)
        now = time.monotonic() + key % PHASES * PHASE_SECONDS
        try:
            ticker = self._tickers[key] = Ticker(config, session, shared, now)
        except ChannelError as error:
            self._tell("ended", key, str(error))
            return
        heapq.heappush(self._due, (now, key))
        fd, events = ticker.channel.fileno(), ticker.channel.events
        self._poll.register(fd, events)
        self._by_fd[fd], self._watched[key] = key, events

    def _stop(self, key: int) -> None:
        ticker = self._tickers.pop(key)
        fd = ticker.channel.fileno()
        del self._by_fd[fd], self._watched[key]
        self._poll.unregister(fd)
        self._busy -= ticker.busy
        ticker.channel.close()

    def _tell(self, *message: Any) -> None:
        self._parent.sendall(packed(message))
