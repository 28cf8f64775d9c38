# SPDX-License-Identifier: Apache-2.0
"""A machine of a fleet: one with a switch and its agent, or one with a replica of the service, and checks of
either."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from .doctor import EXPIRES_SOON, Finding
from .install import AGENT, KEYS, MANIFEST, PRIVATE_STATE, REPLICA, Plan, Port, access_point
from .settings import UsageError

MAX_BYTES = 65_536
"""Bytes of a file with a key or a certificate, and of an engine's first message."""
ANSWER_SECONDS = 3.0
"""Seconds that the engine may take for an answer."""
FIRST = {
    "ca.pem": "-----BEGIN CERTIFICATE-----",
    "rest.pem": "-----BEGIN",
    "rest.key": "-----BEGIN",
    "enrol.creds": "-----BEGIN NATS USER JWT-----",
    "service.creds": "-----BEGIN NATS USER JWT-----",
    "account.seed": "SA",
}
"""First line of a file of that name (a chain may have text before its certificates)."""
NEEDED = {
    AGENT: ("ca.pem", "enrol.creds"),
    REPLICA: ("account.seed", "ca.pem", "service.creds", "rest.pem", "rest.key"),
}
_SERVER = re.compile(r"tls://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):(\d{1,5})")
_WORD = re.compile(r"[^\s\"'\\$`]+")
"""Return it quoted for OPTIONS."""


def agent(ports: Sequence[Port], servers: Sequence[str], keys: Path, name: str) -> Plan:
    """Plan a switch and its agent. keys: the folder with ca.pem and enrol.creds. Raises UsageError."""
    from ..config import NAME

    if len(name) > 64 or not re.fullmatch(NAME, name):
        raise UsageError(f"--name {name!r}: letters, digits, . _ and -, at most 64, and not dots alone")
    plan = access_point(ports, AGENT, name, f" --name {name}{_engine(servers)}")
    return Plan(plan.units, plan.files | _keys({each: keys / each for each in NEEDED[AGENT]}), plan.ports)


def replica(
    servers: Sequence[str],
    keys: Path,
    database: str,
    rest: str,
    cert: Path,
    key: Path,
    pgpass: Path | None,
    copies: int,
) -> Plan:
    """Plan a replica of the service. keys: the folder with account.seed, ca.pem, service.creds. Raises UsageError."""
    url = urlsplit(database)
    if url.scheme not in ("postgresql", "postgres"):
        raise UsageError("--database: replicas share one: give postgresql://USER@HOST/NAME")
    if ":" in url.netloc.rpartition("@")[0]:
        raise UsageError("--database: all users here could read its password: put it in a file after --pgpass")
    for option, word in (("--database", database), ("--rest", rest)):
        if not _WORD.fullmatch(word):
            raise UsageError(f"{option} {word!r}: without spaces, quotes, $ and backslashes")
    options = f"--rest {rest} --database {database}{_engine(servers)} --engine-copies {copies}"
    named = {each: keys / each for each in NEEDED[REPLICA]} | {"rest.pem": cert, "rest.key": key}
    files = {f"etc/default/{REPLICA}": f'OPTIONS="{options}"\n', f"{KEYS}/pgpass": _text(pgpass) if pgpass else ""}
    return Plan((REPLICA,), files | _keys(named))


def _engine(servers: Sequence[str]) -> str:
    for server in servers:
        if not _SERVER.fullmatch(server):
            raise UsageError(f"--fleet {server}: not tls://HOST:PORT")
    return "".join(f" --engine {server}" for server in servers)


def _keys(named: dict[str, Path]) -> dict[str, str]:
    found = {name: _text(path) for name, path in named.items()}
    for name, text in found.items():
        if FIRST[name] not in text:
            raise UsageError(
                f"{named[name]}: no {name}: `accesspoint.controller.fleet.credentials init` makes an engine's"
            )
    return {f"{KEYS}/{name}": text for name, text in found.items()}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"{path}: longer than any key or certificate")
        return data.decode("ascii")
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise UsageError(f"{path}: not text") from None


def findings(root: Path = Path("/")) -> Iterator[Finding]:
    """Check this machine's agent or replica; no findings without one."""
    try:
        files = json.loads((root / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for unit in (AGENT, REPLICA):
        if f"etc/default/{unit}" in files:
            yield from _unit(unit)
            if not os.access(root / KEYS, os.X_OK):
                yield Finding("warning", "the rest is visible to root only", "call it with sudo")
                continue
            yield from _key_files(root, unit)
            yield from _engines(root, unit)
            if unit == AGENT:
                yield from _token(root)


def _unit(unit: str) -> Iterator[Finding]:
    if not shutil.which("systemctl") or not Path("/run/systemd/system").exists():
        yield Finding("warning", f"whether {unit} runs is not known", "systemd does not run here")
        return
    said = subprocess.run(["systemctl", "is-active", unit], capture_output=True, text=True, check=False).stdout.strip()
    if said == "active":
        yield Finding("ok", f"{unit} runs")
    else:
        yield Finding("error", f"{unit} is {said or 'not known'}", f"`journalctl -u {unit} -o cat` says why")


def _key_files(root: Path, unit: str) -> Iterator[Finding]:
    for name in NEEDED[unit]:
        path = root / KEYS / name
        if not path.is_file():
            yield Finding("error", f"{path} is missing", "bring it from the folder of the engine's keys")
        elif mode := path.stat().st_mode & 0o077:
            yield Finding("error", f"{path} is open to others (mode ...{mode:03o})", f"`chmod 600 {path}`")


def _engines(root: Path, unit: str) -> Iterator[Finding]:
    """Check that each server of the engine answers with the right certificate."""
    try:
        options = (root / f"etc/default/{unit}").read_text()
    except OSError as error:
        yield Finding("error", f"/etc/default/{unit}: {error.strerror}", "call it with sudo")
        return
    for server in dict.fromkeys(found[0] for found in _SERVER.finditer(options)):
        try:
            _greet(server, root / KEYS / "ca.pem")
            yield Finding("ok", f"the engine at {server} is there")
        except ssl.SSLCertVerificationError as error:
            reason = f"the engine at {server} is not trusted: {error.verify_message}"
            yield Finding(
                "error", reason, f"is {root / KEYS}/ca.pem of this engine, and its certificate for that name?"
            )
        except (OSError, ValueError) as error:
            reason = " ".join(str(getattr(error, "strerror", None) or error).split()).lower()
            yield Finding(
                "error",
                f"the engine at {server} does not answer: {reason}",
                "is nats-server up, and no firewall between?",
            )


def _greet(server: str, ca: Path) -> None:
    """Begin like a client of NATS: the server introduces itself, then comes TLS. Raises OSError, ValueError."""
    found = _SERVER.fullmatch(server)
    assert found
    host = found[1].strip("[]")
    context = ssl.create_default_context(cafile=ca)
    with socket.create_connection((host, int(found[2])), ANSWER_SECONDS) as plain:
        said = b""
        while not said.endswith(b"\r\n"):
            piece = plain.recv(MAX_BYTES)
            said += piece
            if not piece or len(said) > MAX_BYTES or not b"INFO ".startswith(said[:5]):
                raise ValueError("what is there is no NATS")
        with context.wrap_socket(plain, server_hostname=host):
            pass


def _token(root: Path) -> Iterator[Finding]:
    """Check that the agent was adopted, and when its token expires."""
    # Imported only here: an agent's machine has the whole project.
    from ..fleet.credentials import claims_of

    try:
        said = json.loads((root / PRIVATE_STATE / "adopted.json").read_text())
        name, ends = str(said["name"]), float(claims_of(said["jwt"])["exp"])
    except FileNotFoundError:
        yield Finding(
            "warning",
            "this agent was not adopted yet",
            "`apctl get agents` and `apctl adopt` on a replica, or the page",
        )
    except (OSError, ValueError, KeyError, TypeError):
        yield Finding(
            "error",
            f"{root / PRIVATE_STATE}/adopted.json cannot be read",
            "remove it: the agent asks for another token",
        )
    else:
        left = ends - time.time()
        if left > EXPIRES_SOON:
            yield Finding("ok", f"this agent was adopted as {name}")
        else:
            when = f"ends in {left / 86_400:.1f} days" if left > 0 else "has ended"
            yield Finding(
                "error" if left <= 0 else "warning",
                f"the token of this agent, {name}, {when}",
                "is there a replica that renews it?",
            )
