# SPDX-License-Identifier: Apache-2.0
"""The guard in front of every route: authentication, roles and rates; and headers that protect browsers.

    Authorization: Bearer TOKEN         programs
    Cookie: session=...                 browsers, after POST /api/v1/session; HttpOnly, SameSite=Strict

Every request that is not in `OPEN` needs a token, also for a path that does not exist. Reading needs a viewer, any
other method an operator; routes may need more. A cookie alone changes nothing when the request comes from another site.
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..metrics import Requests
from ..state.store import ROLES, Token, digest
from .problems import problem
from .service import Service

LOGIN = ("POST", "/api/v1/session")
OPEN = {*((method, path) for method in ("GET", "HEAD") for path in ("/healthz", "/readyz")), LOGIN}
"""Requests that need no token: health, and login. The pages' own files hold no data (`STATIC`)."""
STATIC = ("/", "/docs", "/static/")

SESSION_SECONDS = 12 * 3600.0
REQUESTS_PER_SECOND = 500.0
"""Requests of one token; twice as many at once. A page and a Prometheus need one or two."""
FAILURES_PER_SECOND = 1.0
FAILURES_AT_ONCE = 30.0
"""Failures of one address without a valid token."""
LOGINS_PER_SECOND = 0.5
LOGINS_AT_ONCE = 20.0
"""Logins of one address, also with a valid token: each makes a session and a line of the audit log."""
TOLD_SECONDS = 60.0
"""Seconds between two log lines on one address's failures."""
MAX_ADDRESSES = 10_000
MAX_BODY_BYTES = 1_000_000
"""Bytes of a request's body."""
MAX_OPEN_BODY_BYTES = 4096
"""Bytes of the body of a request that needs no token: a login."""
STALE_SECONDS = 1.0
"""Seconds until a token that was made or revoked elsewhere is known."""

SAFE = ("GET", "HEAD", "OPTIONS")
METHODS = (*SAFE, "POST", "PUT", "PATCH", "DELETE")

LOG = logging.getLogger(__name__)

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "content-security-policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'",
}


@dataclass(slots=True)
class TokenBucket:
    """A token bucket."""

    level: float
    filled: float

    def take(self, rate: float, size: float, now: float) -> float:
        """Take one; returns 0, or after how many seconds there will be one."""
        self.level = min(size, self.level + (now - self.filled) * rate)
        self.filled = now
        if self.level < 1:
            return (1 - self.level) / rate
        self.level -= 1
        return 0.0


class Guard:
    """ASGI middleware."""

    def __init__(
        self, app: ASGIApp, service: Service, counted: Requests, requests_per_second: float = REQUESTS_PER_SECOND
    ) -> None:
        self._app = app
        self._service = service
        self._counted = counted
        self._rate = requests_per_second
        self._tokens: dict[str, Token] = {}
        self._ids: dict[str, Token] = {}
        self._refreshed = -STALE_SECONDS
        self._refreshing = asyncio.Lock()
        self._requests: dict[str, TokenBucket] = {}
        self._failures: dict[str, TokenBucket] = {}
        self._logins: dict[str, TokenBucket] = {}
        self._told: dict[str, tuple[float, int]] = {}
        """Time at which each address's failures were last logged, and their number since."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer requests that are not allowed, pass on the others."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, headers = scope["path"], Headers(scope=scope)
        began = time.monotonic()

        async def protect(message: Message) -> None:
            if message["type"] == "http.response.start":
                _protect(MutableHeaders(scope=message), scope)
                # A client can send any method.
                method = scope["method"] if scope["method"] in METHODS else "other"
                self._counted.seconds.labels(method, str(message["status"])).observe(time.monotonic() - began)
            await send(message)

        refusal = await self._refusal(scope, headers, path)
        if refusal is not None:
            await refusal(scope, receive, protect)
            return
        await self._app(scope, _limited(receive, _most(scope)), protect)

    async def _refusal(self, scope: Scope, headers: Headers, path: str) -> Response | None:
        """Return the answer to a request that is not passed on, or None."""
        method = scope["method"]
        most = _most(scope)
        if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > most:
            return problem(413, f"the body is larger than {most} bytes", path)
        scope.setdefault("state", {})
        wait = self._failing(scope)
        is_open = (method, path) in OPEN or (method in SAFE and (path in STATIC or path.startswith(STATIC[-1])))
        if is_open:
            if method in SAFE:
                return None
            wait = wait or self._take(self._logins, _address(scope), LOGINS_PER_SECOND, LOGINS_AT_ONCE)
            return self._too_many(wait, path) if wait else self._cross_site(headers, path)
        secret, by_cookie = _secret(headers, scope["scheme"])
        token = await self.identify(secret) if secret else None
        if token is None:
            if wait:
                return self._too_many(wait, path)
            self.count_failure(scope, "token")
            text = "this token is not valid: it is wrong, expired or revoked" if secret else "a token is needed"
            return problem(
                401, f"{text}: `Authorization: Bearer TOKEN`", path, {"www-authenticate": 'Bearer realm="controller"'}
            )
        wait = self._take(self._requests, token.id, self._rate, 2 * self._rate)
        if wait:
            return self._too_many(wait, path)
        if method not in SAFE and path != "/api/v1/session":
            if by_cookie and (refusal := self._cross_site(headers, path)):
                return refusal
            if ROLES.index(token.role) < ROLES.index("operator"):
                return problem(403, f"token {token.name} may only read: it has the role {token.role}", path)
        scope["state"]["token"] = token
        return None

    @staticmethod
    def _cross_site(headers: Headers, path: str) -> Response | None:
        """Return the answer to a request that a browser sends for another site's page, or None."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        foreign = origin is not None and urlsplit(origin).netloc != headers.get("host", "")
        if foreign or site not in (None, "same-origin", "none"):
            return problem(403, "this request comes from another site's page", path)
        return None

    @staticmethod
    def _take(buckets: dict[str, TokenBucket], whose: str, rate: float, size: float) -> float:
        """Take one from the bucket of `whose`; return 0, or the seconds to wait."""
        now = time.monotonic()
        if len(buckets) >= MAX_ADDRESSES:
            buckets.clear()
        return buckets.setdefault(whose, TokenBucket(size, now)).take(rate, size, now)

    def _too_many(self, wait: float, path: str) -> Response:
        self._counted.refused.labels("rate").inc()
        return problem(429, "too many requests: wait", path, {"retry-after": str(int(wait) + 1)})

    def _failing(self, scope: Scope) -> float:
        """Return the seconds that this address has to wait after too many failures."""
        bucket = self._failures.get(_address(scope))
        if bucket is None:
            return 0.0
        level = bucket.level + (time.monotonic() - bucket.filled) * FAILURES_PER_SECOND
        return 0.0 if level >= 1 else (1 - level) / FAILURES_PER_SECOND

    def count_failure(self, scope: Scope, kind: str) -> None:
        """Count a request (`token`) or login of this address without a valid token. The first is logged, and once a
        minute the number since."""
        address, now = _address(scope), time.monotonic()
        self._counted.refused.labels(kind).inc()
        self._take(self._failures, address, FAILURES_PER_SECOND, FAILURES_AT_ONCE)
        if len(self._told) >= MAX_ADDRESSES:
            self._told.clear()
        told, since = self._told.get(address, (-TOLD_SECONDS, 0))
        if now - told < TOLD_SECONDS:
            self._told[address] = (told, since + 1)
            return
        self._told[address] = (now, 0)
        LOG.warning("%s from %s: no valid token; %d more since the last message", scope["path"], address, since)

    async def identify(self, secret: str) -> Token | None:
        """Return the valid token of a secret, or None."""
        key = digest(secret)
        if time.monotonic() - self._refreshed > STALE_SECONDS:
            await self.refresh(only_stale=True)
        token = self._tokens.get(key)
        return token if token is not None and token.valid(time.time()) else None

    def still_valid(self, token: Token) -> bool:
        """Return True while a token is valid: for requests that last."""
        known = self._ids.get(token.id)
        return known is not None and known.valid(time.time())

    async def refresh(self, only_stale: bool = False) -> None:
        """Read the tokens again; an unreachable database changes nothing."""
        async with self._refreshing:
            if only_stale and time.monotonic() - self._refreshed <= STALE_SECONDS:
                return
            with contextlib.suppress(SQLAlchemyError):
                self._tokens = await self._service.read(self._service.store.tokens)
                self._ids = {token.id: token for token in self._tokens.values()}
                self._requests = {key: bucket for key, bucket in self._requests.items() if key in self._ids}
            self._refreshed = time.monotonic()

    def set_cookie(self, response: Response, scheme: str, secret: str) -> None:
        """Give a browser its session."""
        response.set_cookie(
            _cookie(scheme), secret, int(SESSION_SECONDS), secure=scheme == "https", httponly=True, samesite="strict"
        )

    def clear_cookie(self, response: Response, scheme: str) -> None:
        """Delete the cookie of a session."""
        response.delete_cookie(_cookie(scheme), secure=scheme == "https", httponly=True, samesite="strict")


def _cookie(scheme: str) -> str:
    """Return the cookie's name; its prefix has browsers refuse a cookie that is not as safe as this one."""
    return "__Host-session" if scheme == "https" else "session"


def _secret(headers: Headers, scheme: str) -> tuple[str | None, bool]:
    """Return the secret of a request, and whether it came as a cookie, which browsers send by themselves."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip(), False
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(_cookie(scheme))
    except CookieError:
        return None, False
    return (morsel.value, True) if morsel else (None, False)


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "unknown"


def _protect(headers: MutableHeaders, scope: Scope) -> None:
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("cache-control", "no-cache" if "etag" in headers else "no-store")
    if scope["scheme"] == "https":
        headers.setdefault("strict-transport-security", "max-age=31536000")


def _most(scope: Scope) -> int:
    """Return the greatest size of the request's body, in bytes."""
    return MAX_OPEN_BODY_BYTES if (scope["method"], scope["path"]) in OPEN else MAX_BODY_BYTES


def _limited(receive: Receive, most: int) -> Receive:
    """Cut off a body that becomes too large, also one without a length."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        return message if size <= most else {"type": "http.disconnect"}

    return limited
