# SPDX-License-Identifier: Apache-2.0
"""Desired access points: add, remove, connect; features, weights, rules and NCR parameters.

Every GET has an ETag; a change with `If-Match` is only done if the same part was not changed in between. A PATCH is
a merge patch (RFC 7396). With `validate` a change is only checked.
"""

from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel

from ..agent.reconciler import Refused
from ..config import AccessPointConfig, ClassWeights, Features, Model, Ncr, Rule, migrate_entry
from ..observation import Observation
from ..state.store import Revision, document
from .http import (
    NOT_MODIFIED,
    PREFIX,
    AnyName,
    ApName,
    Asked,
    How,
    Serving,
    Validate,
    answered,
    change_of,
    needs,
    page_of,
    patched,
    plain,
    require_match,
    router_of,
    tagged,
)
from .models import (
    AccessPointAnswer,
    AccessPointPatch,
    ClassWeightsPatch,
    FeaturesPatch,
    LoopAnswer,
    NcrPatch,
    Page,
    RevisionAnswer,
)
from .problems import ProblemError, changes, responses
from .service import Service

AP = PREFIX + "/access-points/{name}"

router = router_of("access points")

RevisionPath = Annotated[int, Path(ge=0, lt=2**31, description="The number of a revision.", examples=[17])]


def _answer(service: Service, name: str) -> AccessPointAnswer:
    config, standing, problem = service.config(name), service.standing(name), None
    try:
        seen: Observation | None = service.monitor.observe(name)
    except Refused as error:
        seen, problem = service.monitor.seen.get(name), error.detail
    return AccessPointAnswer(
        name=name,
        revision=standing.revision,
        revision_in_effect=standing.in_effect,
        address=config.address,
        device_id=config.device_id,
        enabled=config.enabled,
        state=seen["state"] if seen else "connecting",
        problem=problem or service.problem(name, seen),
        differs_since=standing.since,
        p4runtime_version=seen["p4runtime_version"] if seen else None,
        sessions=seen["sessions"] if seen else 0,
        features=config.features,
        stations=seen["stations"] if seen else 0,
        flows=seen["flows"] if seen else 0,
        flows_free=seen["flows_free"] if seen else 0,
        loop=LoopAnswer(
            ticks=seen["ticks"] if seen else 0,
            late=seen["late"] if seen else 0,
            missed=seen["missed"] if seen else 0,
            tick_ms_p50=seen["tick_ms_p50"] if seen else 0.0,
            tick_ms_p99=seen["tick_ms_p99"] if seen else 0.0,
        ),
    )


@router.get(PREFIX + "/access-points", response_model=list[AccessPointAnswer], responses=responses())
async def list_access_points(
    service: Serving,
    request: Request,
    response: Response,
    page: Annotated[Page, Query()],
    state: Literal["connecting", "backup", "ready", "stopped"] | None = None,
) -> Any:
    """All access points with their states; `state` selects one state."""
    names = [name for name in service.names if state is None or _answer(service, name)["state"] == state]
    return [_answer(service, name) for name in page_of(request, response, page, names)]


@router.post(
    PREFIX + "/access-points",
    status_code=201,
    response_model=AccessPointConfig,
    responses=changes(409) | {200: {"description": "The configuration after the change", "model": AccessPointConfig}},
    dependencies=[needs("admin")],
)
async def add_access_point(service: Serving, request: Request, body: AccessPointConfig, how: Asked) -> Response:
    """Add an access point; it is connected at once unless `enabled` is false."""
    config = await service.add(body, change_of(request, body, 201), how.dry)
    if how.dry:
        return tagged(request, config)
    answer = tagged(request, config, 201)
    answer.headers["location"] = f"{PREFIX}/access-points/{config.name}"
    return await answered(answer, how, service, config.name)


@router.get(AP, response_model=AccessPointAnswer, responses=responses(404))
async def get_access_point(service: Serving, name: ApName) -> Any:
    """One access point with its state."""
    return _answer(service, name)


@router.delete(AP, status_code=204, responses=responses(404, 412), dependencies=[needs("admin")])
async def remove_access_point(service: Serving, request: Request, name: AnyName, validate: Validate = False) -> None:
    """Remove an access point and its history. Its switch keeps forwarding, without feedback."""
    change = change_of(request, None, 204)
    await service.remove(name, change, lambda: require_match(request, service.config(name)), validate)


@router.get(AP + "/config", response_model=AccessPointConfig, responses={**responses(404), **NOT_MODIFIED})
async def get_config(service: Serving, request: Request, name: ApName) -> Response:
    """Whole configuration of an access point, as it is in use."""
    return tagged(request, service.config(name))


@router.patch(
    AP + "/config",
    response_model=AccessPointConfig,
    responses=changes(404, 412),
    dependencies=[needs("admin")],
)
async def change_config(
    service: Serving,
    request: Request,
    name: ApName,
    patch: AccessPointPatch,  # type: ignore[valid-type]
    how: Asked,
) -> Response:
    """Change anything: `{"enabled": false}` disconnects. Another address or role of a port begins a new session."""
    assert isinstance(patch, BaseModel)

    def entry() -> dict[str, Any]:
        require_match(request, service.config(name))
        before = service.wanted[name]
        return service.bounded(patched(before, patch), before)

    config = await service.change(name, change_of(request, patch), entry, how.dry)
    return await answered(tagged(request, config), how, service, name)


@router.put(
    AP + "/config",
    response_model=AccessPointConfig,
    responses=changes(404, 412),
    dependencies=[needs("admin")],
)
async def replace_config(
    service: Serving, request: Request, name: AnyName, body: AccessPointConfig, how: Asked
) -> Response:
    """Replace the whole configuration: fields that are left out get their defaults."""
    if body.name != name:
        raise ProblemError(422, f"the path names access point {name}, the body {body.name}")

    def entry() -> dict[str, Any]:
        if name not in service.unusable:
            require_match(request, service.config(name))
        return service.bounded(document(body), service.wanted.get(name))

    config = await service.change(name, change_of(request, body), entry, how.dry, whatever=True)
    return await answered(tagged(request, config), how, service, name)


@router.get(AP + "/revisions", response_model=list[RevisionAnswer], responses=responses(404))
async def list_revisions(
    service: Serving, request: Request, response: Response, name: ApName, page: Annotated[Page, Query()]
) -> Any:
    """Desired configurations of the access point and who changed them, newest first; the last 100 are kept."""
    found, total = await service.read(service.store.revisions_of, name, page.limit, page.offset)
    return page_of(request, response, page, [_revision(revision) for revision in found], total)


def _revision(revision: Revision) -> RevisionAnswer:
    return RevisionAnswer(revision=revision.number, time=revision.time, actor=revision.actor, config=revision.config)


async def _find_revision(service: Service, name: str, number: int) -> Revision:
    found = await service.read(service.store.revision, name, number)
    if found is None:
        raise ProblemError(404, f"{name} has no revision {number}, or not any more")
    return found


@router.get(AP + "/revisions/{revision}", response_model=RevisionAnswer, responses=responses(404))
async def get_revision(service: Serving, name: ApName, revision: RevisionPath) -> Any:
    """One revision of an access point."""
    return _revision(await _find_revision(service, name, revision))


@router.post(
    AP + "/revisions/{revision}/restore",
    response_model=AccessPointConfig,
    responses=changes(404, 412),
    dependencies=[needs("admin")],
)
async def restore_revision(
    service: Serving, request: Request, name: ApName, revision: RevisionPath, how: Asked
) -> Response:
    """Restore the configuration of a revision. `If-Match` is about the whole configuration."""
    found = await _find_revision(service, name, revision)

    def entry() -> dict[str, Any]:
        require_match(request, service.config(name))
        return migrate_entry(found.config)

    config = await service.change(name, change_of(request, {"revision": revision}), entry, how.dry)
    return await answered(tagged(request, config), how, service, name)


async def _change_part(service: Service, request: Request, name: str, part: str, patch: object, how: How) -> Response:
    assert isinstance(patch, BaseModel)

    def entry() -> dict[str, Any]:
        require_match(request, getattr(service.config(name), part))
        wanted = service.wanted[name]
        return wanted | {part: patched(wanted.get(part, {}), patch)}

    config = await service.change(name, change_of(request, patch), entry, how.dry)
    return await answered(tagged(request, getattr(config, part)), how, service, name)


def _part(part: str, model: type[Model], patch_model: type[Model], shown: str, changed: str) -> None:
    """The routes to a part of the configuration that has a path of its own."""

    async def show(service: Serving, request: Request, name: ApName) -> Response:
        return tagged(request, getattr(service.config(name), part))

    async def change(
        service: Serving,
        request: Request,
        name: ApName,
        patch: patch_model,  # type: ignore[valid-type]
        how: Asked,
    ) -> Response:
        return await _change_part(service, request, name, part, patch, how)

    path = f"{AP}/{part.replace('_', '-')}"
    may_be_known = {**responses(404), **NOT_MODIFIED}
    router.get(path, name=f"get_{part}", description=shown, response_model=model, responses=may_be_known)(show)
    may_be_refused = changes(404, 412)
    router.patch(path, name=f"change_{part}", description=changed, response_model=model, responses=may_be_refused)(
        change
    )


_part(
    "class_weights",
    ClassWeights,
    ClassWeightsPatch,
    "Weights of the classes.",
    'Protect a class more or less: `{"downlink": 8}`',
)
_part(
    "features",
    Features,
    FeaturesPatch,
    "Enabled features.",
    'Turn features on or off: `{"sparse": false, "gate": {"2": {"buffer": 100, "batch": 16}}}`',
)
_part(
    "ncr",
    Ncr,
    NcrPatch,
    "The parameters of the feedback, with the defaults for those that this access point leaves open.",
    'Change parameters; the next tick uses them: `{"queue_target_ms": 5}`. Null follows the default again.',
)


@router.get(PREFIX + "/ncr-defaults", response_model=Ncr, responses={**responses(), **NOT_MODIFIED})
async def get_ncr_defaults(service: Serving, request: Request) -> Response:
    """Default parameters, for every access point that does not set its own."""
    return tagged(request, service.defaults)


@router.patch(PREFIX + "/ncr-defaults", response_model=Ncr, responses=changes(412))
async def change_ncr_defaults(
    service: Serving,
    request: Request,
    patch: NcrPatch,  # type: ignore[valid-type]
    how: Asked,
) -> Response:
    """Change the defaults; every access point that follows them does so with its next tick."""
    assert isinstance(patch, BaseModel)

    def wanted() -> Ncr:
        require_match(request, service.defaults)
        return Ncr.model_validate(patched(service.defaults.model_dump(mode="json", exclude_unset=True), patch))

    ncr = await service.change_defaults(change_of(request, patch), wanted, how.dry)
    return await answered(tagged(request, ncr), how, service, *service.names)


@router.get(AP + "/rules", response_model=list[Rule], responses={**responses(404), **NOT_MODIFIED})
async def get_rules(service: Serving, request: Request, name: ApName) -> Response:
    """The operator's rules, which assign packets to classes and queues."""
    return tagged(request, service.config(name).rules)


def _rule(service: Service, name: str, rule: str) -> Rule:
    found = next((entry for entry in service.config(name).rules if entry.name == rule), None)
    if found is None:
        raise ProblemError(404, f"no rule {rule}")
    return found


@router.get(AP + "/rules/{rule}", response_model=Rule, responses={**responses(404), **NOT_MODIFIED})
async def get_rule(service: Serving, request: Request, name: ApName, rule: str) -> Response:
    """One rule."""
    return tagged(request, _rule(service, name, rule))


@router.put(AP + "/rules/{rule}", response_model=Rule, responses=changes(404, 412))
async def put_rule(service: Serving, request: Request, name: ApName, rule: str, body: Rule, how: Asked) -> Response:
    """Add or replace a rule: `{"name": "voice", "dscp": 46, "class_id": 3, "queue": 6, "regulated": false}`"""
    if body.name != rule:
        raise ProblemError(422, f"the path names rule {rule}, the body {body.name}")

    def entry() -> dict[str, Any]:
        if request.headers.get("if-match") is not None:
            require_match(request, _rule(service, name, rule))
        return service.wanted[name] | {"rules": [*_others(service, name, rule), plain(body)]}

    await service.change(name, change_of(request, body), entry, how.dry)
    return await answered(tagged(request, body), how, service, name)


@router.delete(AP + "/rules/{rule}", status_code=204, responses=changes(404, 412))
async def delete_rule(service: Serving, request: Request, name: ApName, rule: str, how: Asked) -> Response:
    """Remove a rule."""

    def entry() -> dict[str, Any]:
        require_match(request, _rule(service, name, rule))
        return service.wanted[name] | {"rules": _others(service, name, rule)}

    await service.change(name, change_of(request, None, 204), entry, how.dry)
    return await answered(Response(status_code=204), how, service, name)


def _others(service: Service, name: str, rule: str) -> list[Any]:
    return [plain(old) for old in service.config(name).rules if old.name != rule]
