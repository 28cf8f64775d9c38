# SPDX-License-Identifier: Apache-2.0
"""`Idempotency-Key`: a POST or PATCH that is repeated, since its answer was lost, is done only once.

The first answer is kept for a day and sent for every repetition, by each replica on the database. The same key
with another request is 422; while the first one is on its way, or within a minute after its controller died, 409. An
answer that holds a secret is not kept: its repetition is 409.
"""

import base64
import contextlib
import hashlib
from typing import Any

from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ..state.database import explain
from ..state.store import Token
from .problems import methods_of, problem
from .service import Service

HEADER = "idempotency-key"
MAX_KEY_LENGTH = 255
KEPT_HEADERS = ("content-type", "etag", "location")


class Idempotency:
    """ASGI middleware, behind the guard."""

    def __init__(self, app: FastAPI, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a repeated request from memory; pass on a new one, and remember its answer."""
        token: Token | None = scope.get("state", {}).get("token")
        key = Headers(scope=scope).get(HEADER) if scope["type"] == "http" else None
        # A method that the resource does not have is no request at all.
        if key is None or token is None or scope["method"] not in {"POST", "PATCH"} & methods_of(self._app, scope):
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if not 0 < len(key) <= MAX_KEY_LENGTH:
            await problem(422, f"header.idempotency-key: 1 to {MAX_KEY_LENGTH} characters", path)(scope, receive, send)
            return
        try:
            await self._once(scope, receive, send, token.id, key)
        except SQLAlchemyError as error:
            await problem(503, explain(error), path)(scope, receive, send)

    async def _once(self, scope: Scope, receive: Receive, send: Send, actor: str, key: str) -> None:
        body = await _body(receive)
        asked = f"{scope['method']} {scope['path']}?{scope['query_string'].decode('latin-1')}\n".encode() + body
        fingerprint = hashlib.sha256(asked).hexdigest()
        store = self._service.store
        known = await self._service.write(store.reserve, actor, key, fingerprint)
        if known is not None:
            await _again(known, fingerprint, scope["path"])(scope, receive, send)
            return
        answer: dict[str, Any] = {"headers": {}}
        sent = bytearray()

        async def replay() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        held: list[Message] = []

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = Headers(raw=message["headers"])
                answer["status"] = message["status"]
                answer["headers"] = {name: headers[name] for name in KEPT_HEADERS if name in headers}
                answer["secret"] = headers.get("cache-control") == "no-store"
            else:
                sent.extend(message.get("body", b""))
            held.append(message)

        try:
            await self._app(scope, replay, keep)
        finally:
            is_done = answer.get("status", 500) < 500
            if is_done:
                answer["body"] = "" if answer["secret"] else base64.b64encode(sent).decode()
            # The change stays when the database cannot remember its answer.
            with contextlib.suppress(SQLAlchemyError):
                await self._service.write(store.remember, actor, key, answer if is_done else None)
        for message in held:
            await send(message)


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or not message.get("more_body"):
            return bytes(body)


def _again(known: tuple[str, dict[str, Any] | None], fingerprint: str, path: str) -> Response:
    before, answer = known
    if before != fingerprint:
        return problem(422, "header.idempotency-key: it was used for another request", path)
    if answer is None:
        return problem(409, "the first request with this key is still on its way", path)
    if answer["secret"]:
        return problem(409, "it was done already; its secret was shown once", path)
    headers = {**answer["headers"], "idempotent-replayed": "true"}
    return Response(base64.b64decode(answer["body"]), answer["status"], headers)
