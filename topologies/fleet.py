# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.topologies.fleet`: a fleet on one machine. An engine (NATS), two replicas of the service, and
access points in namespaces of their own, each with a switch, an agent, a station, a server and some traffic between
them.

Every process is restarted when it ends, as systemd does with units, so any of them may be killed to see the effect.
An agent reaches the engine through a relay of this process, as there is no network between the namespaces; all of
them end with this process, whatever ends it.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from accesspoint.topologies import targets
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.namespaces.namespace import Namespace, end_with_parent
from accesspoint.topologies.namespaces.scratch import ScratchFolder
from accesspoint.topologies.processes import WAIT_SECONDS, wait_for
from accesspoint.topologies.requirements import ROOT, LabError

AGAIN_SECONDS = 1.0
"""Delay before a process that has ended is restarted (s)."""
ENGINE_PORT = 4222
"""The engine's port in the namespaces of the agents."""
RATES = {1: 14_000_000, 2: 1_000_000}
REPLICAS = 2
PACKET = 1514

BANNER = """
  the page   {page}      (and {others}: both replicas show the same)
  token      {token}
  agents     {agents}
  logs       {directory}

  Kill what you like, it is started again after a second; `agents` of one access point take over from each other:
{processes}
  REST       export APCTL_URL={page} APCTL_TOKEN={token}
  Ctrl-C ends all of it.
"""


def missing() -> str | None:
    """Return the reason why there can be no fleet here, or None."""
    if os.geteuid() != 0:
        return "needs root, for namespaces"
    if engine() is None:
        return "nats-server is missing: apt-get install nats-server"
    try:
        targets.find("apswitch")
    except LabError as error:
        return str(error)
    return None


def engine() -> str | None:
    """The engine's program."""
    return shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def keep_port() -> socket.socket:
    """Return a socket that keeps a free TCP port on loopback for its server, also while that one restarts.

    Linux lets a server that sets SO_REUSEADDR listen beside a socket that does not listen; nobody else is given it."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return holder


@dataclass
class Part:
    """A process that is restarted when it ends."""

    name: str
    command: list[str]
    log: Path
    within: Namespace | None = None
    process: "subprocess.Popen[Any] | None" = None
    ended: float | None = None
    starts: int = 0

    def start(self) -> None:
        """Start the process."""
        self.ended, self.starts = None, self.starts + 1
        with self.log.open("ab") as log:
            options: dict[str, Any] = {"cwd": ROOT, "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            if self.within is not None:
                self.process = self.within.popen(*self.command, **options)
            else:
                self.process = subprocess.Popen(self.command, preexec_fn=end_with_parent, **options)

    @property
    def pid(self) -> int:
        """Process id of the current process."""
        assert self.process is not None
        return self.process.pid

    def said(self, text: str) -> bool:
        """Return whether the process's log has this text."""
        return self.log.exists() and text in self.log.read_text(errors="replace")

    def look(self) -> None:
        """Restart the process, AGAIN_SECONDS after it has ended."""
        if self.process is None or self.process.poll() is None:
            return
        now = time.monotonic()
        if self.ended is None:
            self.ended = now
        elif now - self.ended > AGAIN_SECONDS:
            self.start()


class Relay:
    """TCP from a port in a namespace to one of this machine's loopback; after `cut` nothing passes, without an
    error."""

    def __init__(self, within: Namespace, port: int, to: int) -> None:
        self._to = to
        self._open = threading.Event()
        self._open.set()
        with within.entered():
            self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.setblocking(False)

    def cut(self) -> None:
        """Hold up all data from now on."""
        self._open.clear()

    def mend(self) -> None:
        """Pass data again, first the data that was held up."""
        self._open.set()

    async def run(self) -> None:
        """Relay connections until cancelled."""
        server = await asyncio.start_server(self._pass, sock=self._listener)
        await server.serve_forever()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.close()
            return
        ways = self._copy(reader, far_writer), self._copy(far_reader, writer)
        await asyncio.gather(*ways, return_exceptions=True)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                while not self._open.is_set():
                    await asyncio.sleep(0.05)
                writer.write(data)
                await writer.drain()
        writer.close()


@dataclass
class FleetMember:
    """An access point of the fleet, with its switch, agents, station and server."""

    name: str
    within: Namespace
    station: Namespace
    server: Namespace
    relay: Relay
    parts: dict[str, Part] = field(default_factory=dict)


class Fleet:
    """A context manager.

    Args:
        directory: takes state and logs.
        agents: how many access points.
        backups: how many more agents the first of them has.
        rest: ports of the replicas' REST; 0: any.
        traffic: whether stations send something all the time.
        config: what the service is told of access points beforehand.
        rates: what each port's link carries, in bit/s.
        database: its URL; None: SQLite in `directory`.
    """

    def __init__(
        self,
        directory: Path,
        agents: int = 3,
        backups: int = 0,
        rest: tuple[int, ...] = (0, 0),
        traffic: bool = True,
        config: Path | None = None,
        rates: Mapping[int, int] = RATES,
        database: str | None = None,
    ) -> None:
        self.directory = directory
        self._config, self._rates = config, rates
        self._database = database or f"sqlite:///{directory / 'fleet.db'}"
        self._agents, self._backups, self._traffic = agents, backups, traffic
        self._kept = [keep_port() for _ in range(1 + len(rest))]
        self.engine_port, *free = (holder.getsockname()[1] for holder in self._kept)
        self.urls = [f"http://127.0.0.1:{port or own}" for port, own in zip(rest, free, strict=True)]
        self.parts: dict[str, Part] = {}
        self.access_points: list[FleetMember] = []
        self.token = ""
        self._namespaces: list[Namespace] = []
        self._relaying: threading.Thread | None = None
        self._runner = asyncio.Runner()
        # One client, as each reads the system's certificates; a connection a request, as replicas come and go.
        self._http = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes and namespaces."""
        for part in reversed(self.parts.values()):
            if part.process is not None:
                stop_process(part.process)
        for namespace in self._namespaces:
            namespace.close()
        if self._relaying is not None:
            self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(self._loop)])
            self._relaying.join()
        for holder in self._kept:
            holder.close()

    def look(self) -> None:
        """Restart the processes that have ended."""
        for part in self.parts.values():
            part.look()

    def looking(self, what: Callable[[], Any], why: str, seconds: float = WAIT_SECONDS) -> Any:
        """Wait as `wait_for` does, and restart processes that end meanwhile."""

        def look() -> Any:
            self.look()
            return what()

        return wait_for(look, why, seconds)

    def ask(self, method: str, path: str, replica: int = 0, **options: Any) -> httpx.Response:
        """A request to a replica, as an admin; raises `httpx.HTTPError`."""
        headers = {"authorization": f"Bearer {self.token}"} | options.pop("headers", {})
        return self._http.request(method, f"{self.urls[replica]}/api/v1{path}", headers=headers, **options)

    def get(self, path: str, replica: int = 0) -> Any:
        """Return a replica's answer to GET; None while it does not answer."""
        try:
            answer = self.ask("GET", path, replica)
        except httpx.HTTPError:
            return None
        return answer.json() if answer.is_success else None

    def states(self, replica: int = 0) -> dict[str, str]:
        """Return the state of each access point, by name."""
        return {found["name"]: found["state"] for found in self.get("/access-points", replica) or ()}

    def part(self, name: str, command: list[str], within: Namespace | None = None) -> Part:
        """Add a process to the fleet, and start it."""
        part = self.parts[name] = Part(name, command, self.directory / f"{name}.log", within)
        part.start()
        return part

    def _namespace(self) -> Namespace:
        made = Namespace()
        self._namespaces.append(made)
        return made

    def _start(self) -> None:
        program, keys = engine(), self.directory / "engine"
        if program is None:
            raise LabError("nats-server is missing: apt-get install nats-server")
        python = [sys.executable, "-m"]
        listen = f"127.0.0.1:{self.engine_port}"
        init = [
            *python,
            "accesspoint.controller.fleet.credentials",
            "init",
            str(keys),
            "--host",
            "127.0.0.1",
            "--listen",
            listen,
        ]
        subprocess.run(init, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        self.part("engine", [program, "-c", str(keys / "nats.conf")])
        wait_for(lambda: self.parts["engine"].said("Server is ready"), "the engine starts")
        token_file = self.directory / "admin.token"
        for number, url in enumerate(self.urls):
            command = [*python, "accesspoint.controller", "--database", self._database]
            command += ["--token-file", str(token_file), "--rest", url.removeprefix("http://")]
            command += ["--engine", f"tls://{listen}", "--engine-keys", str(keys)]
            command += ["--config", str(self._config)] if self._config else []
            part = self.part(f"service{number + 1}", command)
            # One after the other: the first makes the database.
            wait_for(lambda part=part: part.said("rest http"), f"{part.name} starts: see {part.log}")  # type: ignore[misc]
        self.token = token_file.read_text().strip()
        for number in range(1, self._agents + 1):
            self._make(f"ap{number}", 1 + (self._backups if number == 1 else 0), keys)
        if not self.access_points:
            return
        self._loop = self._runner.get_loop()
        self._relaying = threading.Thread(target=self._relay, daemon=True)
        self._relaying.start()
        self._adopt()
        expected = {ap.name: "ready" for ap in self.access_points}
        self.looking(lambda: self.states() == expected, "all access points are ready")

    def _make(self, name: str, agents: int, keys: Path) -> None:
        within, station, server = self._namespace(), self._namespace(), self._namespace()
        for port, far, address in ((1, station, "10.0.0.1/24"), (2, server, "10.0.0.2/24")):
            within.ip("link", "add", f"port{port}", "type", "veth", "peer", "name", "eth0", "netns", str(far.pid))
            within.ip("link", "set", f"port{port}", "up")
            far.ip("address", "add", address, "dev", "eth0")
            far.ip("link", "set", "eth0", "up")
            far.run("ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off", check=False)
        grpc = "127.0.0.1:9559"
        ap = FleetMember(name, within, station, server, Relay(within, ENGINE_PORT, self.engine_port))
        self.access_points.append(ap)
        links = {port: f"rate={rate}bit,limit=1000" for port, rate in self._rates.items()}
        wiring = targets.Wiring({1: "port1", 2: "port2"}, grpc, links=links)
        ap.parts["switch"] = self.part(f"{name}-switch", targets.TARGETS["apswitch"].command(wiring), within)
        roles = {1: "station", 2: "uplink"}
        ports = [{"port": port, "role": roles[port], "capacity_bps": rate} for port, rate in self._rates.items()]
        config = self.directory / f"{name}.json"
        config.write_text(json.dumps({"access_points": [{"name": name, "address": grpc, "ports": ports}]}))
        for number in range(1, agents + 1):
            state = self.directory / f"{name}-agent{number}"
            command = [sys.executable, "-m", "accesspoint.controller.agent", "--name", name, "--state", str(state)]
            command += ["--engine", f"tls://127.0.0.1:{ENGINE_PORT}", "--engine-ca", str(keys / "ca.pem")]
            command += ["--enrol", str(keys / "enrol.creds"), "--config", str(config)]
            ap.parts[f"agent{number}"] = self.part(f"{name}-agent{number}", command, within)
        if self._traffic:
            self.part(f"{name}-sink", ["iperf3", "-s"], server)
            send = ["iperf3", "-c", "10.0.0.2", "-t", "0", "-b", "300k", "-P", "2"]
            self.part(f"{name}-source", send, station)

    def _relay(self) -> None:
        async def relays() -> None:
            await asyncio.gather(*(ap.relay.run() for ap in self.access_points))

        with contextlib.suppress(asyncio.CancelledError):
            self._runner.run(relays())
        # This cancels the tasks of open connections, too.
        self._runner.close()

    def _adopt(self) -> None:
        wanted = sum(1 for name in self.parts if "-agent" in name)

        def adopt() -> bool:
            agents = self.get("/agents") or []
            for agent in agents:
                if agent["access_point"] is None:
                    answer = self.ask("PUT", f"/agents/{agent['id']}", json={"access_point": agent["name"]})
                    if not answer.is_success:
                        raise LabError(f"{agent['name']} is not adopted: {answer.text}")
            return len(agents) == wanted and all(agent["access_point"] for agent in agents)

        self.looking(adopt, "all agents announce themselves")


@contextlib.contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
        return
    with ScratchFolder("fleet-") as made:
        yield made.path


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.topologies.fleet", description="A fleet of access points."
    )
    parser.add_argument("--agents", type=int, default=3, metavar="N", help="access points (default: 3)")
    parser.add_argument("--backups", type=int, default=1, metavar="N", help="more agents of ap1 (default: 1)")
    parser.add_argument(
        "--rest", type=int, default=8080, metavar="PORT", help="of the first replica; the others follow"
    )
    options = parser.parse_args(argv)
    if not 1 <= options.agents <= 50 or not 0 <= options.backups <= 3:
        print("error: --agents is from 1 to 50, --backups from 0 to 3", file=sys.stderr)
        return 2
    reason = missing()
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        with _place(None) as directory:
            rest = tuple(options.rest + number for number in range(REPLICAS))
            print(f"starting an engine, {REPLICAS} replicas of the service and {options.agents} access points ...")
            with Fleet(directory, options.agents, options.backups, rest) as fleet:
                processes = "".join(
                    f"    kill -9 {part.pid:<8} {name}\n" for name, part in fleet.parts.items() if "-s" not in name[3:5]
                )
                print(
                    BANNER.format(
                        page=fleet.urls[0],
                        others=", ".join(fleet.urls[1:]),
                        token=fleet.token,
                        agents=", ".join(ap.name for ap in fleet.access_points),
                        directory=directory,
                        processes=processes,
                    ),
                    flush=True,
                )
                while True:
                    before = {name: part.starts for name, part in fleet.parts.items()}
                    fleet.look()
                    for name, part in fleet.parts.items():
                        if part.starts != before[name]:
                            print(f"  started again: {name}, now {part.pid}", flush=True)
                    time.sleep(0.2)
    except KeyboardInterrupt:
        return 0
    except (LabError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
