# SPDX-License-Identifier: Apache-2.0
"""Server-sent events (WHATWG HTML, section 9.2).

    event: access_point         its state, ports, classes and feedback: one JSON object of a line
    event: problem              it cannot be observed now; the stream continues
    : keep-alive                every 15 s, so that proxies do not close a quiet stream

A reader that is too slow gets the state at the time when it can take more, never a backlog.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic_core import to_json
from starlette.responses import StreamingResponse

from ..agent.reconciler import Refused
from ..config import AccessPointConfig
from ..observation import Observation
from .access_points import AP
from .http import PREFIX, ApName, Serving, router_of, token_of
from .live import classes_of, ports_of
from .problems import ProblemError, responses
from .service import Service

router = router_of("events")

SECOND = 1.0
KEEP_ALIVE_SECONDS = 15.0
MAX_STREAMS = 256
MAX_STREAMS_PER_TOKEN = 32
"""Streams of one token, so none keeps others out."""
AT_ONCE = 50
"""Access points whose events are sent between two turns of others."""
MAX_TICK_STREAMS = 8
"""Streams of one tick at once: each costs the loops about a hundredth of a core."""

STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream of events; `data` is JSON.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


class Streams:
    """Open event streams, and the last event of each access point."""

    def __init__(self) -> None:
        self.open = 0
        self.by_token: Counter[str] = Counter()
        self.ticks = 0
        self.closing = asyncio.Event()
        self.last_events: dict[str, tuple[Observation, AccessPointConfig, str]] = {}
        """Last event of each access point, and what it was made of: all streams send the same."""


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {to_json(data).decode()}\n\n"


def _look(service: Service, streams: Streams, name: str, fresh: float) -> tuple[int, str]:
    """Return the ticks so far, and the event."""
    last = streams.last_events.pop(name, None)
    try:
        seen = service.monitor.observe(name, fresh)
        config = service.config(name)
    except Refused as error:
        return -1, _event("problem", {"name": name, "detail": error.detail})
    except ProblemError as error:
        return -1, _event("problem", {"name": name, "detail": error.detail})
    if last is not None and last[0] is seen and last[1] is config:
        streams.last_events[name] = last
        return seen["ticks"], last[2]
    standing = service.standing(name)
    loop = {key: seen[key] for key in ("ticks", "late", "missed", "tick_ms_p50", "tick_ms_p99")}
    data = {
        **{key: seen[key] for key in ("name", "time", "state", "stations", "flows")},
        "problem": service.problem(name, seen),
        "revision": standing.revision,
        "revision_in_effect": standing.in_effect,
        "differs_since": standing.since,
        "loop": loop,
        "ports": ports_of(config, seen),
        "classes": classes_of(config, seen),
    }
    event = _event("access_point", data)
    streams.last_events[name] = seen, config, event
    return seen["ticks"], event


async def _stream(
    service: Service, streams: Streams, request: Request, names: list[str] | None, tick: bool
) -> AsyncIterator[str]:
    """Yield events until the reader goes, its token ends, or the process does; `names` None: all access points."""
    guard = request.app.state.guard
    token = token_of(request)
    last: dict[str, int] = {}
    streams.open += 1
    streams.by_token[token.id] += 1
    streams.ticks += tick
    said = time.monotonic()
    try:
        yield "retry: 2000\n\n"
        while not streams.closing.is_set() and guard.still_valid(token):
            pause = SECOND
            there = [*service.names] if names is None else names
            for start in range(0, len(there), AT_ONCE):
                events = ""
                for name in there[start : start + AT_ONCE]:
                    if names is not None and name not in service.names:
                        yield _event("problem", {"name": name, "detail": "removed"})
                        return
                    interval = service.config(name).ncr.device_interval if tick else SECOND
                    ticks, event = _look(service, streams, name, interval / 2)
                    if ticks < 0 or not tick or ticks != last.get(name):
                        events += event
                    last[name] = ticks
                    if tick and ticks >= 0:
                        pause = interval
                if events:
                    yield events
                    said = time.monotonic()
                await asyncio.sleep(0)
            if time.monotonic() - said > KEEP_ALIVE_SECONDS:
                yield ": keep-alive\n\n"
                said = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await streams.closing.wait()
    finally:
        streams.open -= 1
        streams.by_token[token.id] -= 1
        streams.by_token += Counter()
        streams.ticks -= tick


def _respond(service: Service, request: Request, names: list[str] | None, tick: bool) -> StreamingResponse:
    streams: Streams = request.app.state.streams
    of_one = streams.by_token[token_of(request).id]
    if streams.open >= MAX_STREAMS or of_one >= MAX_STREAMS_PER_TOKEN or (tick and streams.ticks >= MAX_TICK_STREAMS):
        request.app.state.requests.refused.labels("streams").inc()
        raise ProblemError(429, "too many streams are open", {"retry-after": "5"})
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(
        _stream(service, streams, request, names, tick), media_type="text/event-stream", headers=headers
    )


@router.get(PREFIX + "/events", response_class=StreamingResponse, responses={**responses(), **STREAM})
async def stream_all(service: Serving, request: Request) -> StreamingResponse:
    """Every access point, once a second."""
    return _respond(service, request, None, tick=False)


@router.get(AP + "/events", response_class=StreamingResponse, responses={**responses(404), **STREAM})
async def stream_access_point(
    service: Serving,
    request: Request,
    name: ApName,
    every: Annotated[Literal["tick", "second"], Query(description="How often.")] = "second",
) -> StreamingResponse:
    """One access point, once a second or with every tick of its loop."""
    return _respond(service, request, [name], tick=every == "tick")
