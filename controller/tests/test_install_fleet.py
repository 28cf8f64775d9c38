# SPDX-License-Identifier: Apache-2.0
"""apctl init --fleet and init-replica: what they write are machines of a fleet, and nothing of it is left."""

import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from accesspoint.checks.harness.certificates import Authority
from accesspoint.checks.harness.switches import ROOT, end, wait_for
from accesspoint.controller.apctl import fleet, install
from accesspoint.controller.apctl.settings import UsageError
from accesspoint.controller.fleet.credentials import Key, token
from accesspoint.topologies.namespaces.namespace import Namespace

from .databases import missing_postgresql
from .engines import Server, missing_engine
from .test_install import PORTS, apctl, bounded, commands, hosts, left, place, state

__all__ = ["hosts", "place"]  # fixtures

pytestmark = [pytest.mark.long, pytest.mark.skipif(missing_engine() is not None, reason=missing_engine() or "")]


@pytest.fixture
def engine(place: Namespace, tmp_path: Path) -> Iterator[Server]:
    """One that is reached at that machine's loopback."""
    with place.entered():
        made = Server(tmp_path)
        made.start()
    yield made
    made.close()


def modes(root: Path) -> dict[str, str]:
    """Return the modes of the secret files."""
    keys = root / install.KEYS
    return {path.name: oct(path.stat().st_mode & 0o777) for path in (keys, *keys.iterdir())}


def test_what_they_write_is_a_fleet_and_nothing_of_it_is_left(
    place: Namespace, hosts: list[Namespace], engine: Server, server: str | None, tmp_path: Path
) -> None:
    if server is None:
        pytest.skip(str(missing_postgresql()))
    cert, key = Authority(tmp_path / "authority").certificate("localhost")
    before = state(place)
    one, two = tmp_path / "one", tmp_path / "two"
    for root in (one, two):
        (root / "var/lib").mkdir(parents=True)
    given = ("--fleet", engine.url, "--keys", str(engine.keys))
    running: list[subprocess.Popen[Any]] = []

    def start(root: Path, unit: str) -> None:
        text = (root / f"etc/systemd/system/{unit}.service").read_text()
        for name in re.findall(r"^LoadCredential=(.*?):(.*)$", text, re.M):
            assert (root / name[1].lstrip("/")).is_file()
        with (tmp_path / f"said-{unit}").open("ab") as said:
            words = [*bounded(root, unit), *commands(root, unit, "ExecStart")]
            running.append(place.popen(*words, cwd=ROOT, stdout=said, stderr=said))

    replica = ("--rest", "127.0.0.1:8443", "--tls-cert", str(cert), "--tls-key", str(key), "--root", str(one))
    done = apctl(place, "init-replica", *given, "--database", server, *replica)
    assert done.returncode == 0 and "`systemctl enable --now access-point-replica`" in done.stdout, done.stderr
    ports = ("--radio", "radio", "--uplink", "uplink", "--down", "14mbit", "--up", "1mbit", "--root", str(two))
    done = apctl(place, "init", *given, "--name", "hall", *ports)
    assert done.returncode == 0, done.stdout + done.stderr
    assert modes(two) == {"keys": "0o700", "ca.pem": "0o600", "enrol.creds": "0o600"}
    assert {*modes(one)} == {"keys", "ca.pem", "account.seed", "service.creds", "rest.pem", "rest.key", "pgpass"}
    assert {*modes(one).values()} == {"0o700", "0o600"}
    with place.entered():
        found = " ".join(map(str, fleet.findings(two)))
    assert f"the engine at {engine.url} is there" in found and "was not adopted yet" in found and "error" not in found
    (one / install.STATE).mkdir()
    try:
        start(one, install.REPLICA)
        place.run(*commands(two, install.SWITCH, "ExecStartPre"))
        start(two, install.SWITCH)
        start(two, install.AGENT)
        token_file = one / install.TOKEN
        wait_for(lambda: token_file.exists() and token_file.read_text().strip())

        def ask(method: str, path: str, **options: Any) -> Any:
            headers = {"authorization": f"Bearer {token_file.read_text().strip()}"}
            with place.entered():
                try:
                    url = f"https://127.0.0.1:8443/api/v1{path}"
                    return httpx.request(method, url, headers=headers, verify=False, timeout=60, **options).json()
                except httpx.HTTPError:
                    return None

        (agent,) = wait_for(lambda: ask("GET", "/agents"))
        assert agent["name"] == "hall" and agent["offers"]
        assert ask("PUT", f"/agents/{agent['id']}", json={"access_point": "hall"})["access_point"] == "hall"
        wait_for(lambda: (ask("GET", "/access-points/hall") or {}).get("state") == "ready")
        assert " 0% packet loss" in hosts[0].run("ping", "-c", "5", "-i", "0.2", "-W", "60", "10.7.0.2")
    finally:
        for process in running:
            end(process)
    assert "panicked" not in (tmp_path / f"said-{install.SWITCH}").read_text()
    # Where systemd keeps a dynamic user's, doctor looks.
    (two / "var/lib/private").mkdir()
    (two / install.STATE).rename(two / install.PRIVATE_STATE)
    with place.entered():
        assert "ok      this agent was adopted as hall" in " ".join(map(str, fleet.findings(two)))
    for root in (one, two):
        assert apctl(place, "uninstall", "--root", str(root)).returncode == 0
    (two / "var/lib/private").rmdir()
    assert left(one) == left(two) == ["var", "var/lib"]
    assert state(place) != before  # ports that are another machine's are nothing to `--root`


def test_doctor_finds_what_is_wrong(place: Namespace, engine: Server, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with place.entered():
        install.install(fleet.agent(PORTS, [engine.url], engine.keys, "hall"), root, here=True)
        other = tmp_path / "other"
        other.mkdir()
        authority = Authority(other / "authority").ca.read_text()

        def bad() -> list[str]:
            return [str(finding) for finding in fleet.findings(root) if finding.level == "error"]

        assert bad() == []
        ca = root / install.KEYS / "ca.pem"
        ours = ca.read_text()
        ca.write_text(authority)
        assert "is not trusted" in bad()[0] and "of this engine" in bad()[0]
        ca.write_text(ours)
        ca.chmod(0o644)
        assert "is open to others (mode ...044); `chmod 600" in bad()[0]
        ca.chmod(0o600)
        (root / install.KEYS / "enrol.creds").unlink()
        assert "enrol.creds is missing" in bad()[0]
        (root / install.KEYS / "enrol.creds").write_bytes((engine.keys / "enrol.creds").read_bytes())
        (root / install.KEYS / "enrol.creds").chmod(0o600)
        adopted = root / install.PRIVATE_STATE / "adopted.json"
        adopted.parent.mkdir(parents=True)
        for text in ("{", "[]", json.dumps({"name": "hall", "jwt": "a.b.c"})):
            adopted.write_text(text)
            assert "adopted.json cannot be read" in bad()[0]
        for days, said in ((-1, "has ended"), (3, "ends in ")):
            jwt = token(engine.account, Key("U").public, "hall", {}, days)
            adopted.write_text(json.dumps({"name": "hall", "jwt": jwt}))
            assert any(said in str(finding) for finding in fleet.findings(root))
        engine.kill()
        assert "does not answer: connection refused" in bad()[0]
        install.remove(root, running=False)
    assert left(root) == ["var", "var/lib", "var/lib/private"] or left(root) == []


def test_what_answers_and_is_no_engine(place: Namespace, engine: Server, tmp_path: Path) -> None:
    for said, text in ((b"SSH-2.0-x\r\n", "no NATS"), (b"INFO " + b"x" * 100_000, "no NATS"), (b"", "no NATS")):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer(listener: socket.socket = listener, said: bytes = said) -> None:
                with listener.accept()[0] as one:
                    one.sendall(said)

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises((OSError, ValueError), match=text):
                fleet._greet(f"tls://127.0.0.1:{listener.getsockname()[1]}", engine.keys / "ca.pem")
            thread.join()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"servers": ["nats://x:1"]}, "not tls://HOST:PORT"),
        ({"servers": ["tls://x:1 --check"]}, "not tls://HOST:PORT"),
        ({"database": "sqlite:///x.db"}, "replicas share one"),
        ({"database": "postgresql://me:secret@x/y"}, "put it in a file after --pgpass"),
        ({"database": 'postgresql://me@x/y"'}, "without spaces, quotes"),
        ({"rest": "0.0.0.0:8443 --check"}, "without spaces, quotes"),
        ({"cert": Path("/nothing")}, "/nothing: no such file or directory"),
        ({"pgpass": Path("/dev/zero")}, "longer than any key"),
        ({"key": Path("/dev/null")}, "no rest.key"),
        ({"keys": Path("/")}, "/account.seed: no such file"),
    ],
)
def test_a_replica_that_cannot_be(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    server = Server(tmp_path)
    given: dict[str, Any] = {
        "servers": ["tls://nats.example:4222"], "keys": server.keys, "database": "postgresql://me@x/y",
        "rest": "0.0.0.0:8443", "cert": server.keys / "server.pem", "key": server.keys / "server.key",
        "pgpass": None, "copies": 1,
    }  # fmt: skip
    plan = fleet.replica(**given)
    assert plan.units == (install.REPLICA,) and plan.files.keys() <= install.WRITTEN
    with pytest.raises(UsageError, match=re.escape(text)):
        fleet.replica(**(given | change))


def test_an_agent_that_cannot_be(place: Namespace, tmp_path: Path) -> None:
    for words in (("--fleet", "tls://x:1"), ("--keys", "/tmp"), ("--name", "hall")):
        done = apctl(place, "init", *words)
        assert done.returncode == 2 and "give both" in done.stderr
    server = Server(tmp_path)
    assert fleet.agent(PORTS, [server.url], server.keys, "hall").files.keys() <= install.WRITTEN
    with pytest.raises(UsageError, match="letters, digits"):
        fleet.agent(PORTS, [server.url], server.keys, "a b")
    with pytest.raises(UsageError, match=r"enrol\.creds: no such file"):
        (server.keys / "enrol.creds").unlink()
        fleet.agent(PORTS, [server.url], server.keys, "hall")
