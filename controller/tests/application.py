# SPDX-License-Identifier: Apache-2.0
"""The application of the REST API without a server, and clients of each role."""

from pathlib import Path

import httpx
import sqlalchemy as sa

from accesspoint.controller.agent.local_backend import LocalBackend
from accesspoint.controller.api.app import create_app
from accesspoint.controller.api.service import Service
from accesspoint.controller.config import AccessPointConfig
from accesspoint.controller.state.database import connect
from accesspoint.controller.state.store import Change

AP = "/api/v1/access-points/ap1"
CHANGE = Change("test", "127.0.0.1", "POST", "/", 201, None)


class Api:
    """An application over a database, or a new one in a directory, and clients of each role."""

    def __init__(self, database: Path | sa.Engine) -> None:
        self.backend = LocalBackend(lambda name: None)
        if isinstance(database, Path):
            database = connect(f"sqlite:///{database / 'state.db'}")
        self.service = Service(database, self.backend)
        self.app = create_app(self.service)
        self.secrets: dict[str, str] = {}

    async def start(self, *configs: AccessPointConfig) -> None:
        await self.service.load(configs)
        for role in ("viewer", "operator", "admin"):
            self.secrets[role] = self.service.store.new_token(role, role)[1]
        self.service.start()

    def client(self, role: str | None = "admin", **headers: str) -> httpx.AsyncClient:
        if role:
            headers["authorization"] = f"Bearer {self.secrets[role]}"
        transport = httpx.ASGITransport(self.app.state.guard, client=("192.0.2.7", 1))
        return httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers)
