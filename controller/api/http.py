# SPDX-License-Identifier: Apache-2.0
"""Common parts of the routes: pages, ETags, the token that asks, and the dependencies that give them the service."""

import hashlib
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from .. import strict_json
from ..config import AccessPointConfig
from ..state.store import ROLES, Change, Role, Token
from .models import Page
from .problems import ProblemError
from .service import Service

NOT_YET = 202

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

PREFIX = "/api/v1"
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "Nothing has changed since (`If-None-Match`)."}}


class _StrictRequest(Request):
    async def json(self) -> Any:
        """Return the body's value; raises `JSONDecodeError`."""
        try:
            return strict_json.loads(await self.body())
        except json.JSONDecodeError:
            raise
        except ValueError as error:
            raise json.JSONDecodeError(str(error), "", 0) from None


class Route(APIRoute):
    """A route that refuses a body with more than one meaning, where the framework would take one of them."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def operation_id(route: APIRoute) -> str:
    """Return the id of a route in OpenAPI: its function's name."""
    return route.name


def router_of(tag: str) -> APIRouter:
    """Return a router whose routes `create_app` takes as they are."""
    return APIRouter(tags=[tag], route_class=Route, generate_unique_id_function=operation_id)


# All of them are coroutines: functions would be called in a thread of their own.
async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]


async def _access_point(
    service: Serving, name: Annotated[str, Path(description="The name of an access point.", examples=["ap1"])]
) -> str:
    return service.config(name).name


ApName = Annotated[str, Depends(_access_point)]


async def _access_point_or_unusable(
    service: Serving, name: Annotated[str, Path(description="The name of an access point.", examples=["ap1"])]
) -> str:
    return name if name in service.unusable else service.config(name).name


AnyName = Annotated[str, Depends(_access_point_or_unusable)]
"""Name of an access point, also of one with an unusable configuration: it can be replaced and removed."""
Validate = Annotated[
    bool, Query(description="Only check: the answer is what would be, and nothing is changed.", examples=[True])
]
MAX_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class How:
    """Terms of a change: a check only, or a wait for its effect."""

    dry: bool
    """True: it is only checked."""
    wait: float
    """Seconds that the client waits for it to be in effect."""


async def _how(
    validate: Validate = False,
    wait: Annotated[
        float,
        Query(
            ge=0,
            le=MAX_WAIT_SECONDS,
            description="Answer when the change is in effect, or 202 after so many seconds.",
            examples=[5],
        ),
    ] = 0.0,
) -> How:
    return How(validate, wait)


Asked = Annotated[How, Depends(_how)]


async def answered(answer: Response, how: How, service: Service, *names: str) -> Response:
    """Return the answer to a kept change of these access points, when it is in effect; with 202 when that is later."""
    if how.wait and not how.dry and not await service.in_effect(names, how.wait):
        answer.status_code = NOT_YET
    return answer


def token_of(request: Request) -> Token:
    """Return the token that asks; the guard has made sure that there is one."""
    token: Token = request.scope["state"]["token"]
    return token


def needs(role: Role) -> Any:
    """Return a dependency that needs this role, or a higher one."""

    async def check(request: Request) -> None:
        token = token_of(request)
        if ROLES.index(token.role) < ROLES.index(role):
            raise ProblemError(403, f"this needs the role {role}; token {token.name} has {token.role}")

    return Depends(check)


def change_of(request: Request, body: object, status: int = 200) -> Change:
    """Return the line of the audit log for a change that is about to be made."""
    token = token_of(request)
    client = request.client.host if request.client else "unknown"
    if isinstance(body, BaseModel):
        body = body.model_dump(mode="json", exclude_unset=True)
    return Change(f"{token.name} ({token.id})", client, request.method, request.url.path, status, body)


def page_of(
    request: Request, response: Response, page: Page, entries: Sequence[T], total: int | None = None
) -> list[T]:
    """Return one part of a list, or `entries` with `total`; set the headers for the next part."""
    part = list(entries) if total is not None else list(entries[page.offset : page.offset + page.limit])
    total = len(entries) if total is None else total
    response.headers["x-total-count"] = str(total)
    if page.offset + page.limit < total:
        query = request.url.include_query_params(limit=page.limit, offset=page.offset + page.limit).query
        response.headers["link"] = f'<{request.url.path}?{query}>; rel="next"'
    return part


def etag(content: object) -> str:
    """Return the strong entity tag of an answer."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'


def plain(content: object) -> Any:
    """Return a model, or a list of models, as plain data for JSON. A configuration can be given back: a weight that a
    station has from its group is left out."""
    if isinstance(content, AccessPointConfig):
        groups = {address for address, station in content.stations.items() if "weight" not in station.model_fields_set}
        return content.model_dump(mode="json", exclude={"stations": {address: {"weight"} for address in groups}})
    if isinstance(content, BaseModel):
        return content.model_dump(mode="json")
    if isinstance(content, list):
        return [plain(entry) for entry in content]
    return content


def weakly_tagged(content: object, of: object) -> Response:
    """Return the answer with the ETag of the part that can be changed: its observations change every second."""
    return JSONResponse(plain(content), headers={"etag": f"W/{etag(plain(of))}"})


def tagged(request: Request, content: object, status: int = 200) -> Response:
    """Return the answer with its ETag, or 304 for a client that has it already."""
    content = plain(content)
    tag = etag(content)
    if request.method == "GET" and _among(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers={"etag": tag})
    return JSONResponse(content, status, {"etag": tag})


def require_match(request: Request, content: object) -> None:
    """Raises `ProblemError` 412 when the request was made for another state of `content` (`If-Match`)."""
    wanted = request.headers.get("if-match")
    if wanted is not None and not _among(wanted, tag := etag(plain(content))):
        raise ProblemError(412, f"it has changed since: its ETag is {tag} now", {"etag": tag})


def _among(header: str | None, tag: str) -> bool:
    if header is None:
        return False
    tags = [entry.strip().removeprefix("W/") for entry in header.split(",")]
    return "*" in tags or tag in tags


def patched(current: Any, patch: BaseModel) -> Any:
    """Apply a merge patch (RFC 7396): objects field by field, null removes a field."""
    return merged(current, patch.model_dump(mode="json", exclude_unset=True))


def merged(current: Any, patch: Any) -> Any:
    """`MergePatch` of RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(current) if isinstance(current, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
