# SPDX-License-Identifier: Apache-2.0
"""An engine of a test's own: nats-server on loopback, with credentials made for it."""

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from accesspoint.checks.harness.switches import end
from accesspoint.checks.harness.waiting import free_port
from accesspoint.controller.fleet.credentials import Credentials, Key, agent, init, load_key
from accesspoint.controller.fleet.engine import Engine
from accesspoint.topologies.fleet import engine as program
from accesspoint.topologies.namespaces.contain import end_with_parent


def missing_engine() -> str | None:
    """Return the reason why no engine can run here, or None."""
    return None if program() else "nats-server is missing: apt-get install nats-server"


class Server:
    """The engine, which may be killed and started again."""

    def __init__(self, directory: Path) -> None:
        self.keys = directory / "engine"
        self.port = free_port()
        init(self.keys, ["127.0.0.1"], f"127.0.0.1:{self.port}")
        self.url = f"tls://127.0.0.1:{self.port}"
        self._log = directory / "engine.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Again, with what it has on its disk."""
        command = [str(program()), "-c", str(self.keys / "nats.conf")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=end_with_parent)

    def kill(self) -> None:
        """By SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """It answers no more, and its connections stay, as those of a machine that has lost its power."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After `stop`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """The end."""
        if self._process is not None:
            end(self._process)

    @property
    def account(self) -> Key:
        """Key that signs tokens."""
        return load_key("A", self.keys / "account.seed")

    def client(self, credentials: Credentials | None = None, name: str = "test") -> Engine:
        """Return a client that is not connected yet; without credentials the service's."""
        return Engine(
            [self.url], self.keys / "ca.pem", credentials or Credentials.load(self.keys / "service.creds"), name
        )

    def agent(self, name: str) -> Engine:
        """Return a client with the credentials of an access point's agent."""
        key = Key("U")
        return self.client(Credentials(key, agent(self.account, key.public, name)))


@contextlib.contextmanager
def server(directory: Path) -> Iterator[Server]:
    """A running one."""
    made = Server(directory)
    made.start()
    try:
        yield made
    finally:
        made.close()


@contextlib.asynccontextmanager
async def connected(client: Engine) -> AsyncIterator[Engine]:
    """While the block runs."""
    running = asyncio.create_task(client.run())
    try:
        async with asyncio.timeout(240):
            await client.reconnected.wait()
        yield client
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
