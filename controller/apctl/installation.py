# SPDX-License-Identifier: Apache-2.0
"""Commands of `apctl` that make this machine an access point, or a replica of a fleet's service, and undo it."""

import contextlib
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ..client import ApiError, Client
from . import doctor as diagnosis
from . import fleet as fleets
from . import install as machine
from .settings import UsageError

READY_WITHIN, POLL = 30.0, 0.5  # s

Root = Annotated[Path, typer.Option(help="Write below this directory (services are started only when it is /).")]
Started = Annotated[bool, typer.Option("--start/--no-start", help="Start it now and at boot.")]


def init(
    radio: Annotated[str | None, typer.Option(help="The interface of the stations: hostapd's, or a cable's.")] = None,
    uplink: Annotated[str | None, typer.Option(help="The interface towards the network.")] = None,
    down: Annotated[str | None, typer.Option(help="Rate from the radio to the stations, e.g. 14mbit; or auto.")] = None,
    up: Annotated[str | None, typer.Option(help="Rate of the uplink, e.g. 1mbit; or auto.")] = None,
    fleet: Annotated[
        list[str] | None, typer.Option(help="tls://HOST:PORT of a fleet's engine: with an agent, and no controller.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="Of a fleet: the folder with ca.pem and enrol.creds.")] = None,
    name: Annotated[str, typer.Option(help="Of a fleet: proposed name of the access point.")] = "",
    root: Root = Path("/"),
    started: Started = True,
) -> None:
    """Make this machine an access point: configuration and systemd units, started. It prompts for missing options."""
    if bool(fleet) != bool(keys) or (name and not fleet):
        raise UsageError("--fleet and --keys: give both, and --name with them alone")
    known = f"one of {', '.join(diagnosis.interfaces())}"
    radio = _given("--radio", radio, f"Interface of the radio ({known})")
    uplink = _given("--uplink", uplink, f"Interface of the uplink ({known})")
    rates = [
        machine.parse_rate(_given(option, given, f"Rate of {name}, a little below its link's, e.g. 14mbit; or auto"))
        for option, given, name in (("--down", down, radio), ("--up", up, uplink))
    ]
    ports = [
        machine.Port(number, name, rate)
        for number, name, rate in zip((machine.RADIO, machine.UPLINK), (radio, uplink), rates, strict=True)
    ]
    name = name or socket.gethostname()[:64]
    plan = fleets.agent(ports, fleet, keys, name) if fleet and keys else machine.access_point(ports)
    if not _installed(plan, root, started):
        return
    if fleet:
        print(f"it waits to be adopted; its id: `journalctl -u {machine.AGENT} -o cat`")
        return
    token_file = Path("/") / machine.TOKEN
    _await_ready(token_file)
    print(f"the page: {machine.URL}/, and its token: {token_file}")
    print(f"{machine.command()} login {machine.URL} --token-file {token_file}")


def init_replica(
    fleet: Annotated[list[str], typer.Option(help="tls://HOST:PORT of the fleet's engine; repeatable.")],
    keys: Annotated[Path, typer.Option(help="The folder with account.seed, ca.pem and service.creds.")],
    database: Annotated[str, typer.Option(help="postgresql://USER@HOST/NAME, the same for all replicas.")],
    tls_cert: Annotated[Path, typer.Option(help="Certificate (chain) of page and REST, PEM.")],
    tls_key: Annotated[Path, typer.Option(help="Its key, PEM.")],
    rest: Annotated[str, typer.Option(help="Where page and REST are.")] = "0.0.0.0:8443",
    pgpass: Annotated[Path | None, typer.Option(help="The database's password, as libpq's ~/.pgpass has it.")] = None,
    copies: Annotated[int, typer.Option(help="How many servers of a cluster keep each value.", min=1, max=5)] = 1,
    root: Root = Path("/"),
    started: Started = True,
) -> None:
    """Make this machine a replica of a fleet's service: its keys and its systemd unit, started."""
    plan = fleets.replica(fleet, keys, database, rest, tls_cert, tls_key, pgpass, copies)
    if _installed(plan, root, started):
        print(f"the page: https://{rest}/; if the database was new, a token: /{machine.TOKEN}")


def _installed(plan: machine.Plan, root: Path, started: bool) -> bool:
    """Install a plan unless there is a problem; return whether it was started."""
    root = root.resolve()
    here = root == Path("/")
    findings = list(machine.problems(plan, root, here, started and here))
    for finding in findings:
        print(finding)
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)
    with _errors_in_one_line():
        for path in machine.install(plan, root, here):
            print(f"wrote {path}")
    if not (started and here):
        print(f"not started: `systemctl enable --now {' '.join(plan.units)}` does it")
        return False
    machine.start(plan)
    return True


@contextlib.contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Report errors of the operating system in one line."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None


def _await_ready(token_file: Path) -> None:
    """Wait until the controller holds its session. Raises UsageError with the problem."""
    error = "the controller did not start"
    for _ in range(round(READY_WITHIN / POLL)):
        time.sleep(POLL)
        try:
            with Client(machine.URL, token_file.read_text().strip()) as client:
                for one in client.list_access_points():
                    if one["state"] == "ready":
                        return
                    error = f"{one['name']} is {one['state']}: {one['problem'] or 'its switch does not answer'}"
        except (ApiError, OSError) as problem:
            error = str(problem)
    raise UsageError(f"{error}: `journalctl -u {machine.SWITCH} -u {machine.CONTROLLER}` says more")


def uninstall(root: Annotated[Path, typer.Option(help="Where `init` wrote.")] = Path("/")) -> None:
    """Remove everything that `init` made: units, configuration, state. Interfaces get their former settings back."""
    root = root.resolve()
    with _errors_in_one_line():
        for path in machine.remove(root, running=root == Path("/") and Path("/run/systemd/system").exists()):
            print(f"removed {path}")


def _given(option: str, value: str | None, question: str) -> str:
    """Return an option's value, or what its question is answered with."""
    if value:
        return value
    if not sys.stdin.isatty():
        raise UsageError(f"{option} is missing: {question}")
    return str(typer.prompt(question))
