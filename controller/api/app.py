# SPDX-License-Identifier: Apache-2.0
"""The application: routes, guard, problem details, OpenAPI, and the page's files.

    curl --oauth2-bearer $TOKEN localhost:8080/api/v1/access-points
    curl --oauth2-bearer $TOKEN localhost:8080/api/v1/access-points/ap1/feedback
    curl --oauth2-bearer $TOKEN -X PATCH localhost:8080/api/v1/access-points/ap1/features \\
         -H 'content-type: application/json' -d '{"ncr": false}'

Lists come in pages (`limit`, `offset`; `X-Total-Count` and `Link`). Every GET of a resource that can be changed has an
ETag, and a change with `If-Match` is only done if it was not changed in between. POST and PATCH take an
`Idempotency-Key`. Errors are problem details (RFC 9457): a wrong value is 422 and named, an unreachable switch 503, one
that refuses 502, and then nothing has changed.
"""

import functools
import json
from pathlib import Path
from typing import Any

import prometheus_client
from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles
from starlette.responses import FileResponse

from ..metrics import Requests, exposition
from . import access_points, admin, agents, events, examples, live
from .connections import BoundedProtocol
from .events import Streams
from .http import Serving, operation_id
from .idempotency import HEADER, MAX_KEY_LENGTH, Idempotency
from .models import HealthAnswer, ReadyAnswer
from .problems import MEDIA_TYPE, Problem, ProblemError, install, responses
from .security import Guard
from .service import Service

VERSION = "1.0.0"
PAGE = Path(__file__).parent.parent / "web"
"""The live page is `index.html`, served at `/`; the API to be read `docs.html`, at `/docs`; the rest at `/static/`."""


def create_app(service: Service, **limits: float) -> FastAPI:
    """Return the application over a service; it may start later."""
    app = FastAPI(
        title="Access point controller",
        version=VERSION,
        # The first line is for readers of the code.
        description=(__doc__ or "").partition("\n\n")[2],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # see `_describe`
        generate_unique_id_function=operation_id,
    )
    registry = prometheus_client.CollectorRegistry()
    requests = Requests(registry)
    app.state.service, app.state.streams, app.state.requests = service, Streams(), requests
    install(app)
    for router in (access_points.router, live.router, events.router, agents.router, admin.router):
        # `include_router` would make all routes a second time, when the first request comes.
        app.router.routes += router.routes
    _system(app, service, registry)
    app.mount("/static", StaticFiles(directory=PAGE), name="page")

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def reference() -> FileResponse:
        return FileResponse(PAGE / "docs.html")

    _describe(app)
    app.state.guard = Guard(Idempotency(app, service), service, requests, **limits)
    return app


def _system(app: FastAPI, service: Service, registry: prometheus_client.CollectorRegistry) -> None:
    prometheus_client.ProcessCollector(registry=registry)

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        seen, lost, ended = service.monitor.all_seen(), service.monitor.lost, BoundedProtocol.ended
        differ = {name: service.standing(name).since is not None for name in service.every}
        text = await service.compute(
            lambda: prometheus_client.generate_latest(registry) + exposition(seen, lost, ended, differ).encode()
        )
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", response_model=HealthAnswer, tags=["health"], openapi_extra={"security": []})
    async def health() -> Any:
        """Answers while the process runs; needs no token."""
        return HealthAnswer(status="ok")

    @app.head("/readyz", include_in_schema=False)
    @app.get(
        "/readyz",
        response_model=ReadyAnswer,
        tags=["health"],
        openapi_extra={"security": []},
        responses={503: responses()[503]},
    )
    async def ready(service: Serving) -> Any:
        """Answers when the service can do its work: it has started, and the database answers; needs no token."""
        if not service.started:
            raise ProblemError(503, "starting")
        await service.read(service.store.check)
        return ReadyAnswer(
            status="ready", access_points=len(service.names), history=service.monitor.history_problem or "ok"
        )


def _describe(app: FastAPI) -> None:
    """Complete FastAPI's OpenAPI document: security, headers, examples."""
    plain = app.openapi

    def complete() -> dict[str, Any]:
        if app.openapi_schema:
            return app.openapi_schema
        document = plain()
        app.openapi_schema = None  # until it is complete
        components = document["components"]
        components["schemas"].pop("HTTPValidationError", None)
        components["schemas"].pop("ValidationError", None)
        components["schemas"]["Problem"] = Problem.model_json_schema()
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "A token: `Authorization: Bearer TOKEN`."},
            "cookie": {"type": "apiKey", "in": "cookie", "name": "session", "description": "A browser's session."},
        }
        document["security"] = [{"bearer": []}, {"cookie": []}]
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                _complete_operation(path, method, operation)
        for name, schema in components["schemas"].items():
            _untuple(schema)
            if name in examples.EXAMPLES:
                schema["examples"] = [examples.EXAMPLES[name]]
        app.openapi_schema = document
        return document

    app.openapi = complete  # type: ignore[method-assign]
    # It takes a quarter of a start to make, and few ask for it; in a thread, so that the event loop goes on meanwhile.
    described = functools.cache(lambda: json.dumps(app.openapi(), separators=(",", ":")).encode())

    @app.get("/openapi.json", include_in_schema=False)
    async def document(service: Serving) -> Response:
        return Response(await service.compute(described), media_type="application/json")


def _untuple(schema: Any) -> None:
    """A pair of two numbers is an array of two, which every tool understands."""
    if isinstance(schema, dict):
        items = schema.pop("prefixItems", None) or schema.get("items")
        if isinstance(items, list):
            schema["items"] = items[0]
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _untuple(part)


def _complete_operation(path: str, method: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    for status, answer in answers.items():
        if status.startswith(("4", "5")) and "content" in answer:
            # FastAPI adds its own form of 422, which is never sent.
            answer["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    tagged = "304" in answers or "412" in answers
    parameters = operation.setdefault("parameters", [])

    def header(name: str, description: str, example: str, **bounds: int) -> None:
        schema = {"type": "string", **bounds}
        parameters.append(
            {"name": name, "in": "header", "description": description, "schema": schema, "example": example}
        )

    if method in ("post", "patch") and "401" in answers and not path.endswith("/session"):
        text = "A POST or PATCH with the key of an earlier one is not done again."
        header(HEADER, text, "8f1c5e7a", minLength=1, maxLength=MAX_KEY_LENGTH)
    if "412" in answers:
        header("if-match", "Only when the ETag is still this one.", '"1f0c9a"')
    if "304" in answers:
        header("if-none-match", "Only when the ETag is not this one any more.", '"1f0c9a"')
    if tagged and "200" in answers:
        answers["200"].setdefault("headers", {})["ETag"] = {
            "schema": {"type": "string"},
            "description": "For `If-Match` and `If-None-Match`.",
        }
    if any(entry["name"] == "limit" for entry in parameters):
        answers["200"].setdefault("headers", {}).update(
            {
                "X-Total-Count": {"schema": {"type": "integer"}, "description": "How long the whole list is."},
                "Link": {"schema": {"type": "string"}, "description": "The next part (RFC 8288)."},
            }
        )
    if "401" in answers:
        answers["413"] = {**answers["401"], "description": "The body is larger than 1 MB."}
    for entry in parameters:
        # FastAPI leaves examples inside of the schema, where few tools look.
        if "example" not in entry and "examples" not in entry:
            entry["example"] = examples.PARAMETERS[entry["name"]]
