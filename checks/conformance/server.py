# SPDX-License-Identifier: Apache-2.0
"""The server under test: one that runs already, or one that is started here and started again when it ends."""

import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
from finsy.proto import p4r

from accesspoint.checks.conformance.fixture import Place
from accesspoint.checks.harness.p4runtime import Client
from accesspoint.topologies import targets
from accesspoint.topologies.links import veth
from accesspoint.topologies.requirements import LabError

PORTS = (1, 2, 3)
GRPC, THRIFT = 9559, 9090
START = 30.0  # s; a server that does not listen by then will not


class ServerError(Exception):
    """A server that cannot be reached; the text names it and the fix."""


class Server:
    """A server that runs already. name: what the result calls it. restarts: whether `revive` can start it again."""

    restarts = False

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.version = ""

    def __enter__(self) -> Self:
        self.wait()
        client = Client(self.place.address, credentials=self.place.credentials)
        try:
            version = client.stub.Capabilities(p4r.CapabilitiesRequest(), timeout=5).p4runtime_api_version
            self.version += f"P4Runtime {version}"
        except grpc.RpcError as failure:
            if failure.code() == grpc.StatusCode.UNAVAILABLE:
                said = (failure.details() or "").strip().splitlines()[0]
                raise ServerError(f"{self.place.address} does not speak gRPC: {said}") from None
            self.version += f"P4Runtime of an unknown version ({failure.code().name})"
        finally:
            client.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def ended(self) -> str:
        """Return the reason why the server does not answer any more; empty if it does."""
        return "" if self.listens() else "the server does not listen any more"

    def revive(self) -> None:
        """Starts it again. Raises ServerError."""
        raise ServerError(f"{self.place.address} does not listen any more: start the server again")

    def listens(self) -> bool:
        """Return whether the server's port is open."""
        host, _, port = self.place.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError:
            return False
        return True

    def wait(self) -> None:
        """Wait until the server listens. Raises ServerError."""
        if not self.listens():
            raise ServerError(f"nothing listens at {self.place.address}: start the server, or correct --address")


class StartedServer(Server):
    """A server that is started here with a command. log: what it prints."""

    restarts = True

    def __init__(self, target: targets.Target, place: Place, command: list[str], log: Path) -> None:
        super().__init__(target.name, place)
        self.version = f"{target.title} {target.version()}, "
        self.log = log
        self._command = command
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes]
        self._start()

    def _start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._process = self._stack.enter_context(veth.running(self._command, self.log))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def runs(self) -> bool:
        """Return whether the server's process runs."""
        return self._process.poll() is None

    def ended(self) -> str:
        """A crash takes a moment to become an exit code."""
        if self.listens():
            return ""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the server does not listen any more"
        return f"the server ended: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"

    def revive(self) -> None:
        self._stack.close()
        self._start()
        self.wait()

    def wait(self) -> None:
        deadline = time.monotonic() + START
        while not self.listens():
            if not self.runs() or time.monotonic() > deadline:
                said = self.log.read_text(errors="replace").strip().splitlines()
                raise ServerError(f"{self.name} does not start: {said[-1] if said else 'it says nothing'}")
            time.sleep(0.02)


class OwnServer(StartedServer):
    """A server on veth pairs, within `contain.own_network`. number: tells several apart."""

    def __init__(self, name: str, wait: float, log: Path, ports: tuple[int, ...] = PORTS, number: int = 0) -> None:
        target = targets.find(name)
        near, far = veth.make(ports, ("switch", "host") if not number else (f"switch{number}-", f"host{number}-"))
        address = f"127.0.0.1:{GRPC + number}"
        wiring = targets.Wiring(near, address, THRIFT + number, log=log.with_suffix(".own"))
        place = Place(address, cpu_port=targets.CPU_PORT, ports=far, wait=wait)
        super().__init__(target, place, target.command(wiring), log)


__all__ = ["LabError", "OwnServer", "Server", "ServerError", "StartedServer"]
