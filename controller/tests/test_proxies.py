# SPDX-License-Identifier: Apache-2.0
"""A reverse proxy in front: what it forwards is believed from its address, and from no other."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from accesspoint.controller.api.proxies import Forwarded, networks
from accesspoint.controller.config import ConfigError

PROXY, STRANGER = "192.0.2.1", "203.0.113.9"
SAID = {
    "x-forwarded-for": "10.9.9.9, 198.51.100.7, 192.0.2.2",
    "x-forwarded-proto": "https",
    "x-forwarded-host": "ap.example",
    "x-forwarded-prefix": "/net",
}
WEB = Path(__file__).parents[1] / "web"


async def said(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with what is known of the client."""
    request = Request(scope)
    known = [request.client.host if request.client else "", request.url.scheme, request.headers["host"]]
    headers = {"location": "/api/v1/x", "link": '</api/v1/x?offset=1>; rel="next"'}
    await JSONResponse(known, headers=headers)(scope, receive, send)


async def ask(address: str, headers: dict[str, str] | list[tuple[str, str]]) -> tuple[Any, str, str]:
    app = Forwarded(said, networks(["192.0.2.0/24"]))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app, client=(address, 1)), base_url="http://in"
    ) as client:
        answer = await client.get("/", headers=headers)
    return answer.json(), answer.headers["location"], answer.headers["link"]


async def test_proxy_that_is_trusted_forwards_its_client() -> None:
    known, location, link = await ask(PROXY, SAID)
    # The first address may be the client's own invention; the last one is another proxy.
    assert known == ["198.51.100.7", "https", "ap.example"]
    assert (location, link) == ("/net/api/v1/x", '</net/api/v1/x?offset=1>; rel="next"')


async def test_proxy_may_add_a_header_of_its_own_behind_the_clients() -> None:
    known, _, _ = await ask(PROXY, [("x-forwarded-for", "10.9.9.9"), ("x-forwarded-for", "198.51.100.7")])
    assert known[0] == "198.51.100.7"


@pytest.mark.parametrize(("address", "headers"), [(STRANGER, SAID), (PROXY, {})])
async def test_client_without_a_trusted_proxy_is_itself(address: str, headers: dict[str, str]) -> None:
    known, location, _ = await ask(address, headers)
    assert (known, location) == ([address, "http", "in"], "/api/v1/x")


def test_proxy_that_is_no_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="--proxy: 'example' does not appear to be"):
        networks(["example"])


def test_page_names_everything_relative_to_itself() -> None:
    """A proxy may serve it below a path of its own."""
    for file in WEB.glob("*.html"):
        text = file.read_text()
        assert 'href="/' not in text and 'src="/' not in text, file
