# SPDX-License-Identifier: Apache-2.0
"""Problem details (RFC 9457): every error has this form, and `detail` has its place and reason."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.types import Scope

from ..agent.reconciler import Refused
from ..config import AccessPointConfig
from ..mistakes import listed, one_line
from ..state.database import explain

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """An error (RFC 9457); `type` is `about:blank`, as the status says all that a program needs."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(default="about:blank", examples=["about:blank"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["no access point ap9; there are: ap1, ap2"])
    instance: str | None = Field(default=None, examples=["/api/v1/access-points/ap9"])


class ProblemError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}


def problem(status: int, detail: str, path: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return the answer of an error."""
    content = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, instance=path)
    return JSONResponse(content.model_dump(), status, headers, MEDIA_TYPE)


TEXTS = {
    400: "The request is not HTTP or not JSON.",
    401: "No valid token.",
    403: "The token's role is not enough, or the request comes from another site.",
    404: "There is no such thing.",
    405: "This resource has no such method.",
    409: "It exists already, or the same request is still on its way.",
    412: "It has changed since (`If-Match`).",
    422: "A value is wrong; `detail` says which and why.",
    429: "Too many requests; `Retry-After` says when to try again.",
    502: "The switch refuses; everything is as it was.",
    503: "The switch or the database is unreachable; nothing was changed.",
}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of an operation for OpenAPI, in addition to those that all have."""
    return {
        status: {
            "description": TEXTS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted({400, 401, 403, 405, 422, 429, 503, *statuses})
    }


def changes(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the answers of a change of access points for OpenAPI: its errors, and that it is not in effect yet."""
    text = "The change is kept, and was not in effect within `wait`: `problem` of the access point has the reason."
    return responses(*statuses) | {202: {"description": text}}


METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


def methods_of(app: FastAPI, scope: Scope) -> set[str]:
    """Return the methods that the path of a request has (RFC 9110, section 15.5.6)."""
    return {
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in app.routes)
    }


def install(app: FastAPI) -> None:
    """Answer every error in this form."""

    @app.exception_handler(ProblemError)
    async def known(request: Request, error: ProblemError) -> JSONResponse:
        return problem(error.status, error.detail, request.url.path, error.headers)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return problem(error.status, error.detail, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = error.errors()
        if errors[0]["type"] == "json_invalid":
            # Its place is a position in the text.
            errors = [errors[0] | {"loc": ("body",)}]
        body = getattr(request.scope["route"], "body_field", None)
        return problem(422, listed(errors, body and body.field_info.annotation), request.url.path)

    @app.exception_handler(ValidationError)
    async def inconsistent(request: Request, error: ValidationError) -> JSONResponse:
        return problem(422, one_line(error, AccessPointConfig), request.url.path)

    @app.exception_handler(SQLAlchemyError)
    async def database(request: Request, error: SQLAlchemyError) -> JSONResponse:
        return problem(503, explain(error), request.url.path)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        if error.status_code == 405:
            # The framework names the methods of one route of several with this path.
            headers["Allow"] = ", ".join(sorted(methods_of(app, request.scope)))
        return problem(error.status_code, str(error.detail), request.url.path, headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, _: Exception) -> JSONResponse:
        return problem(500, "this is a defect: the controller's log has more", request.url.path)
