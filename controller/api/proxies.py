# SPDX-License-Identifier: Apache-2.0
"""A reverse proxy in front: its headers about clients are believed from trusted addresses only."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..config import ConfigError

Network = IPv4Network | IPv6Network
SCHEMES = ("http", "https")


def networks(words: Sequence[str]) -> list[Network]:
    """Return the networks of these words; raises `ConfigError`."""
    try:
        return [ip_network(word, strict=False) for word in words]
    except ValueError as error:
        raise ConfigError(f"--proxy: {error}") from None


class Forwarded:
    """Replaces client, scheme and host of a request by those that a trusted proxy forwards, and puts the sub-path that
    it serves in front of the places that answers name.

    Args:
        app: answers.
        trusted: addresses of the proxies.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[Network]) -> None:
        self._app, self._trusted = app, trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        client = scope.get("client")
        if scope["type"] != "http" or client is None or not self._trusts(client[0]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        # From the nearest on, the first that is no proxy of ours: what stands before it, anybody may have written.
        hops = [hop.strip() for hop in ",".join(headers.getlist("x-forwarded-for")).split(",") if hop.strip()]
        client_address = next((hop for hop in reversed(hops) if not self._trusts(hop)), client[0])
        scope = {**scope, "client": (client_address[:64], 0)}
        if (scheme := headers.get("x-forwarded-proto", "").strip().lower()) in SCHEMES:
            scope["scheme"] = scheme
        if host := headers.get("x-forwarded-host", "").strip():
            kept = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope["headers"] = [*kept, (b"host", host.encode("latin-1"))]
        prefix = "/" + headers.get("x-forwarded-prefix", "").strip("/ ")

        async def prefixed(message: Message) -> None:
            if message["type"] == "http.response.start" and prefix != "/":
                answer = MutableHeaders(scope=message)
                if (place := answer.get("location", "")).startswith("/"):
                    answer["location"] = prefix + place
                if (link := answer.get("link", "")).startswith("</"):
                    answer["link"] = f"<{prefix}{link[1:]}"
            await send(message)

        await self._app(scope, receive, prefixed)

    def _trusts(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._trusted)
