# SPDX-License-Identifier: Apache-2.0
"""Access points as they shall be: add, remove, connect; features, weights, rules and NCR parameters.

Every GET has an ETag; a change with `If-Match` is only done when nobody changed the same thing in between.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from ..config import AccessPointConfig, ClassWeights, Features, Ncr, Rule
from ..control import Refused
from ..observation import Observation
from .http import (
    NOT_MODIFIED,
    PREFIX,
    ApName,
    Serving,
    change_of,
    needs,
    page_of,
    patched,
    plain,
    require_match,
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
)
from .problems import ProblemError, responses
from .service import Service

AP = PREFIX + "/access-points/{name}"

router = APIRouter(tags=["access points"])


def _answer(service: Service, name: str) -> AccessPointAnswer:
    config = service.config(name)
    try:
        seen: Observation | None = service.observe(name)
    except Refused:
        seen = service.seen.get(name)
    return AccessPointAnswer(
        name=name,
        address=config.address,
        device_id=config.device_id,
        enabled=config.enabled,
        state=seen["state"] if seen else "connecting",  # type: ignore[typeddict-item]
        problem=seen["problem"] if seen else None,
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
    """Every access point and how it is; `state` leaves out the others."""
    answers = [_answer(service, name) for name in service.names]
    wanted = [answer for answer in answers if state is None or answer["state"] == state]
    return page_of(request, response, page, wanted)


@router.post(
    PREFIX + "/access-points",
    status_code=201,
    response_model=AccessPointConfig,
    responses=responses(409, 502),
    dependencies=[needs("admin")],
)
async def add_access_point(service: Serving, request: Request, body: AccessPointConfig) -> Response:
    """Add an access point; it is connected at once unless `enabled` is false."""
    config = await service.add(body, change_of(request, body, 201))
    answer = tagged(request, config, 201)
    answer.headers["location"] = f"{PREFIX}/access-points/{config.name}"
    return answer


@router.get(AP, response_model=AccessPointAnswer, responses=responses(404))
async def get_access_point(service: Serving, name: ApName) -> Any:
    """One access point and how it is."""
    return _answer(service, name)


@router.delete(AP, status_code=204, responses=responses(404, 412), dependencies=[needs("admin")])
async def remove_access_point(service: Serving, request: Request, name: ApName) -> None:
    """Remove an access point and its history. Its switch goes on forwarding, without feedback."""
    async with service.changing(name):
        require_match(request, service.config(name))
        await service.remove(name, change_of(request, None, 204))


@router.get(AP + "/config", response_model=AccessPointConfig, responses={**responses(404), **NOT_MODIFIED})
async def get_config(service: Serving, request: Request, name: ApName) -> Response:
    """The whole configuration of an access point, as it is in use."""
    return tagged(request, service.config(name))


@router.patch(
    AP + "/config",
    response_model=AccessPointConfig,
    responses=responses(404, 412, 502),
    dependencies=[needs("admin")],
)
async def change_config(
    service: Serving,
    request: Request,
    name: ApName,
    patch: AccessPointPatch,  # type: ignore[valid-type]
) -> Response:
    """Change anything: `{"enabled": false}` disconnects. Another address or other ports begin a new session."""
    async with service.changing(name):
        require_match(request, service.config(name))
        assert isinstance(patch, BaseModel)
        entry = patched(service.wanted[name], patch) | {"name": name}
        return tagged(request, await service.change(entry, change_of(request, patch)))


async def _change_part(service: Service, request: Request, name: str, part: str, patch: object) -> Response:
    assert isinstance(patch, BaseModel)
    async with service.changing(name):
        require_match(request, getattr(service.config(name), part))
        wanted = service.wanted[name]
        entry = wanted | {part: patched(wanted.get(part, {}), patch)}
        config = await service.change(entry, change_of(request, patch))
        return tagged(request, getattr(config, part))


@router.get(AP + "/class-weights", response_model=ClassWeights, responses={**responses(404), **NOT_MODIFIED})
async def get_class_weights(service: Serving, request: Request, name: ApName) -> Response:
    """What the classes are worth against each other."""
    return tagged(request, service.config(name).class_weights)


@router.patch(AP + "/class-weights", response_model=ClassWeights, responses=responses(404, 412, 502))
async def change_class_weights(
    service: Serving,
    request: Request,
    name: ApName,
    patch: ClassWeightsPatch,  # type: ignore[valid-type]
) -> Response:
    """Protect a class more or less: `{"downlink": 8}`"""
    return await _change_part(service, request, name, "class_weights", patch)


@router.get(AP + "/features", response_model=Features, responses={**responses(404), **NOT_MODIFIED})
async def get_features(service: Serving, request: Request, name: ApName) -> Response:
    """What is on."""
    return tagged(request, service.config(name).features)


@router.patch(AP + "/features", response_model=Features, responses=responses(404, 412, 502))
async def change_features(
    service: Serving,
    request: Request,
    name: ApName,
    patch: FeaturesPatch,  # type: ignore[valid-type]
) -> Response:
    """Turn features on or off: `{"sparse": false, "gate": {"2": {"buffer": 100, "batch": 16}}}`"""
    return await _change_part(service, request, name, "features", patch)


@router.get(AP + "/ncr", response_model=Ncr, responses={**responses(404), **NOT_MODIFIED})
async def get_ncr(service: Serving, request: Request, name: ApName) -> Response:
    """The parameters of the feedback, with the defaults for those that this access point leaves open."""
    return tagged(request, service.config(name).ncr)


@router.patch(AP + "/ncr", response_model=Ncr, responses=responses(404, 412))
async def change_ncr(
    service: Serving,
    request: Request,
    name: ApName,
    patch: NcrPatch,  # type: ignore[valid-type]
) -> Response:
    """Change parameters; the next tick uses them: `{"queue_target_ms": 5}`. Null follows the default again."""
    return await _change_part(service, request, name, "ncr", patch)


@router.get(PREFIX + "/ncr-defaults", response_model=Ncr, responses={**responses(), **NOT_MODIFIED})
async def get_ncr_defaults(service: Serving, request: Request) -> Response:
    """The parameters of every access point that says nothing else."""
    return tagged(request, service.defaults)


@router.patch(PREFIX + "/ncr-defaults", response_model=Ncr, responses=responses(412))
async def change_ncr_defaults(
    service: Serving,
    request: Request,
    patch: NcrPatch,  # type: ignore[valid-type]
) -> Response:
    """Change the defaults; every access point that follows them does so with its next tick."""
    assert isinstance(patch, BaseModel)
    async with service.defaults_lock:
        require_match(request, service.defaults)
        wanted = Ncr.model_validate(patched(service.defaults.model_dump(mode="json", exclude_unset=True), patch))
        return tagged(request, await service.change_defaults(wanted, change_of(request, patch)))


@router.get(AP + "/rules", response_model=list[Rule], responses={**responses(404), **NOT_MODIFIED})
async def get_rules(service: Serving, request: Request, name: ApName) -> Response:
    """The operator's rules: which packets belong to which class and queue."""
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


@router.put(AP + "/rules/{rule}", response_model=Rule, responses=responses(404, 412, 502))
async def put_rule(service: Serving, request: Request, name: ApName, rule: str, body: Rule) -> Response:
    """Add or replace a rule: `{"name": "voice", "dscp": 46, "class_id": 3, "queue": 6, "regulated": false}`"""
    if body.name != rule:
        raise ProblemError(422, f"the path names rule {rule}, the body {body.name}")
    async with service.changing(name):
        if request.headers.get("if-match") is not None:
            require_match(request, _rule(service, name, rule))
        rules = [plain(old) for old in service.config(name).rules if old.name != rule]
        entry = service.wanted[name] | {"rules": [*rules, plain(body)]}
        await service.change(entry, change_of(request, body))
        return tagged(request, body)


@router.delete(AP + "/rules/{rule}", status_code=204, responses=responses(404, 412, 502))
async def delete_rule(service: Serving, request: Request, name: ApName, rule: str) -> None:
    """Take a rule back."""
    async with service.changing(name):
        require_match(request, _rule(service, name, rule))
        rules = [plain(old) for old in service.config(name).rules if old.name != rule]
        await service.change(service.wanted[name] | {"rules": rules}, change_of(request, None, 204))
