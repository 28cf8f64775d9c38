# SPDX-License-Identifier: Apache-2.0
"""Agents on machines of their own: announced ones, and adopted ones."""

from typing import Annotated, Any

from fastapi import Path, Query, Request, Response

from ..config import AccessPointConfig
from ..state import agents as kept
from .http import PREFIX, Serving, change_of, needs, page_of, router_of
from .models import Adoption, AgentAnswer, Page
from .problems import ProblemError, responses
from .service import Service

router = router_of("agents")

AgentPath = Annotated[
    str,
    Path(
        pattern=r"^U[A-Z2-7]{55}$",
        description="An agent's public key.",
        examples=["UABNEJFYOYAK6ZQKWG6K3N4AOJH6Z5IB7AA4QXNEPQVWWJBQLNPSCF6J"],
    ),
]


async def _agents(service: Service) -> list[AgentAnswer]:
    waiting = service.adoption.waiting if service.adoption else {}
    answers = [
        AgentAnswer(
            id=id,
            access_point=None,
            name=found.announcement.name,
            host=found.announcement.host,
            offers=found.announcement.config is not None,
            heard=found.heard,
            adopted=None,
        )
        for id, found in waiting.items()
    ]
    for agent in await service.read(kept.adopted, service.store.engine):
        answers.append(
            AgentAnswer(
                id=agent.id,
                access_point=agent.access_point,
                name=agent.access_point,
                host=None,
                offers=False,
                heard=None,
                adopted=agent.adopted,
            )
        )
    return answers


@router.get(PREFIX + "/agents", response_model=list[AgentAnswer], responses=responses())
async def list_agents(service: Serving, request: Request, response: Response, page: Annotated[Page, Query()]) -> Any:
    """Agents that wait to be adopted first, then adopted agents."""
    return page_of(request, response, page, await _agents(service))


@router.put(
    PREFIX + "/agents/{agent_id}",
    response_model=AgentAnswer,
    responses=responses(404, 409, 502),
    dependencies=[needs("admin")],
)
async def adopt_agent(service: Serving, request: Request, agent_id: AgentPath, body: Adoption) -> Any:
    """Adopt an agent for an access point: `{"access_point": "ap1"}`. A new access point is added, as the agent
    says that it is."""
    if service.adoption is None:
        raise ProblemError(409, "this controller has its access points in itself: agents need one with `--engine`")
    found = service.adoption.waiting.get(agent_id)
    known = {agent.id for agent in await service.read(kept.adopted, service.store.engine)}
    if found is None and agent_id not in known:
        raise ProblemError(404, f"no agent {agent_id} announces itself: start it, with the engine's address")
    change, name = change_of(request, body), body.access_point
    if name not in service.names:
        if found is None or found.announcement.config is None:
            raise ProblemError(
                409, f"no access point {name}: add it first, or start the agent with `--config`, which describes it"
            )
        said = found.announcement.config.model_dump(mode="json", exclude_unset=True)
        await service.add(AccessPointConfig.model_validate(said | {"name": name}), change)
    await service.write(kept.adopt, service.store.engine, agent_id, name, change)
    service.adoption.adopted(agent_id)
    return next(agent for agent in await _agents(service) if agent["id"] == agent_id)


@router.delete(PREFIX + "/agents/{agent_id}", status_code=204, responses=responses(404), dependencies=[needs("admin")])
async def forget_agent(service: Serving, request: Request, agent_id: AgentPath) -> None:
    """Renew its token no more: it ends by itself, 30 days after it was given."""
    if not await service.write(kept.forget, service.store.engine, agent_id, change_of(request, None, 204)):
        raise ProblemError(404, f"no agent {agent_id} was adopted")
