# SPDX-License-Identifier: Apache-2.0
"""Tokens, browser sessions and the audit log."""

import time
from typing import Annotated, Any

from fastapi import Query, Request, Response

from ..state.store import LastAdmin, Token
from .http import PREFIX, Serving, change_of, needs, page_of, router_of, token_of
from .models import (
    AuditAnswer,
    Login,
    NewToken,
    NewTokenAnswer,
    Page,
    SessionAnswer,
    TokenAnswer,
)
from .problems import ProblemError, responses
from .security import SESSION_SECONDS, Guard

router = router_of("tokens and audit")


def _answer(token: Token) -> TokenAnswer:
    return TokenAnswer(
        id=token.id,
        name=token.name,
        role=token.role,
        created=token.created,
        expires=token.expires,
        revoked=token.revoked,
    )


def _guard(request: Request) -> Guard:
    guard: Guard = request.app.state.guard
    return guard


@router.get(PREFIX + "/tokens", response_model=list[TokenAnswer], responses=responses(), dependencies=[needs("admin")])
async def list_tokens(service: Serving, request: Request, response: Response, page: Annotated[Page, Query()]) -> Any:
    """Every token, also those that expired or were revoked."""
    tokens = [_answer(token) for token in (await service.read(service.store.tokens)).values() if token.kind == "token"]
    return page_of(request, response, page, tokens)


@router.post(
    PREFIX + "/tokens",
    status_code=201,
    response_model=NewTokenAnswer,
    responses=responses(409),
    dependencies=[needs("admin")],
)
async def create_token(service: Serving, request: Request, response: Response, body: NewToken) -> Any:
    """Make a token. Its secret is in this answer only."""
    expires = None if body.expires_in is None else time.time() + body.expires_in
    change = change_of(request, body, 201)
    token, secret = await service.write(service.store.new_token, body.name, body.role, expires, change)
    await _guard(request).refresh()
    response.headers["cache-control"] = "no-store"
    response.headers["location"] = f"{PREFIX}/tokens/{token.id}"
    return NewTokenAnswer(**_answer(token), token=secret)


@router.delete(
    PREFIX + "/tokens/{token_id}", status_code=204, responses=responses(404, 409), dependencies=[needs("admin")]
)
async def revoke_token(service: Serving, request: Request, token_id: str) -> None:
    """Revoke a token, and the sessions that were opened with it."""
    tokens = [token for token in (await service.read(service.store.tokens)).values() if token.kind == "token"]
    if not any(token.id == token_id for token in tokens):
        raise ProblemError(404, f"no token has the id {token_id}")
    try:
        await service.write(service.store.revoke, token_id, change_of(request, None, 204))
    except LastAdmin:
        raise ProblemError(409, "this is the last token of an admin: make another one first") from None
    await _guard(request).refresh()


@router.get(PREFIX + "/session", response_model=SessionAnswer, responses=responses())
async def who_am_i(request: Request) -> Any:
    """Name and role of the token that asks."""
    token = token_of(request)
    return SessionAnswer(name=token.name, role=token.role, expires=token.expires)


@router.post(
    PREFIX + "/session",
    status_code=201,
    response_model=SessionAnswer,
    responses=responses(),
    openapi_extra={"security": []},
)
async def log_in(service: Serving, request: Request, response: Response, body: Login) -> Any:
    """Open a session for a browser: a cookie that scripts cannot read and other sites cannot use."""
    guard = _guard(request)
    token = await guard.identify(body.token)
    if token is None or token.kind != "token":
        guard.count_failure(request.scope, "login")
        raise ProblemError(
            401, "this token is not valid: it is wrong, expired or revoked", {"www-authenticate": "Bearer"}
        )
    expires = min(time.time() + SESSION_SECONDS, token.expires or float("inf"))
    request.scope["state"]["token"] = token
    session, secret = await service.write(
        service.store.new_token, token.name, token.role, expires, change_of(request, None, 201), "session", token.id
    )
    await guard.refresh()
    guard.set_cookie(response, request.scope["scheme"], secret)
    return SessionAnswer(name=session.name, role=session.role, expires=session.expires)


@router.delete(PREFIX + "/session", status_code=204, responses=responses())
async def log_out(service: Serving, request: Request, response: Response) -> None:
    """End a browser's session."""
    token = token_of(request)
    if token.kind == "session":
        await service.write(service.store.revoke, token.id, change_of(request, None, 204))
        await _guard(request).refresh()
    _guard(request).clear_cookie(response, request.scope["scheme"])


@router.get(PREFIX + "/audit", response_model=list[AuditAnswer], responses=responses(), dependencies=[needs("admin")])
async def read_audit(
    service: Serving,
    request: Request,
    response: Response,
    page: Annotated[Page, Query()],
    actor: Annotated[str | None, Query(max_length=128, description="As in the answers: NAME (ID).")] = None,
    start: Annotated[float, Query(ge=0, le=1e11, description="Seconds since the epoch.")] = 0.0,
    end: Annotated[float, Query(ge=0, le=1e11)] = 1e11,
) -> Any:
    """All changes with actor, address, action and time; newest first."""
    rows, total = await service.read(service.store.audited, page.limit, page.offset, actor, start, end)
    return page_of(request, response, page, rows, total)
