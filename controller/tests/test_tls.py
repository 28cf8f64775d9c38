# SPDX-License-Identifier: Apache-2.0
"""TLS: of REST, and mutual towards the switch."""

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from .switches import ROOT, Controller, Lab, end, free_port, wait_for
from .test_config import access_point
from .test_entries import PIPELINE

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl")


class Authority:
    """Certificates from a new authority."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.ca = directory / "ca.pem"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        self._openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)

    def certificate(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for a name on loopback."""
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        self._openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.directory / "names").write_text(f"subjectAltName=DNS:{name},IP:127.0.0.1\n")
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
        return self.directory / f"{name}.pem", self.directory / f"{name}.key"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One for all tests."""
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


def test_rest_over_tls(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.certificate("controller")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"access_points": [access_point(pipeline=PIPELINE, enabled=False)]}))
    controller = Controller(path, "--tls-cert", str(cert), "--tls-key", str(key))
    try:
        assert controller.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(authority.ca))
        with httpx.Client(base_url=controller.url, verify=context) as client:
            answer = client.post("/api/v1/session", json={"token": controller.token})
            assert answer.status_code == 201
            assert answer.headers["set-cookie"].startswith("__Host-session=")
            assert "secure" in answer.headers["set-cookie"].lower()
            assert "max-age" in answer.headers["strict-transport-security"]
            assert client.get("/api/v1/access-points/ap1").json()["state"] == "stopped"
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{controller.url}/healthz")
    finally:
        end(controller.process)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rest", "0.0.0.0:0"], "--rest 0.0.0.0:0: tokens would be in the clear"),
        (["--tls-cert", "/no/such"], "--tls-cert /no/such: no such file"),
        (["--tls-cert", __file__], "--tls-cert and --tls-key: give both or none"),
        (["--tls-cert", __file__, "--tls-key", __file__], f"--tls-cert {__file__}: "),
        (["--database", "mysql://here"], "--database mysql://here: neither sqlite"),
        (["--token-file", "/no/such/folder/token"], "--token-file /no/such/folder/token: no such file or directory"),
    ],
)
def test_a_wrong_option_is_one_line_and_code_2(tmp_path: Path, arguments: list[str], words: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"access_points": [access_point(pipeline=PIPELINE)]}))
    command = [sys.executable, "-m", "controller", "--config", str(path), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {words}") and done.stderr.count("\n") == 1


@contextlib.contextmanager
def tls_in_front(authority: Authority, behind: int) -> Iterator[int]:
    """A port that speaks mutual TLS and passes on to a switch, as one with TLS of its own does."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    context.load_cert_chain(*authority.certificate("switch"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    port, loop = free_port(), asyncio.new_event_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", behind)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(pump(reader, back), pump(there, writer))

    async def stop() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", port, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield port
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _has_problem(controller: Controller) -> bool:
    return controller.get()["problem"] is not None


def test_p4runtime_by_mutual_tls(authority: Authority, link_lab: Lab, tmp_path: Path) -> None:
    link_lab.start_switch()
    strangers = Authority(tmp_path / "strangers")
    with tls_in_front(authority, link_lab.grpc) as port:
        address = f"127.0.0.1:{port}"

        def options(of: Authority) -> dict[str, str]:
            cert, key = of.certificate("controller")
            return {"ca": str(authority.ca), "cert": str(cert), "key": str(key), "server_name": "switch"}

        ours = link_lab.controller(address=address, tls=options(authority))
        link_lab.introduce(ours)
        wait_for(lambda: ours.get()["loop"]["ticks"] > 2)
        wrongs: list[dict[str, Any]] = [{"address": address, "tls": options(strangers)}, {"address": address}]
        for wrong in wrongs:
            stranger = link_lab.controller(ready=False, **wrong)
            wait_for(partial(_has_problem, stranger))
            problem = stranger.get()["problem"]
            assert problem.startswith("ap1: ") and "\n" not in problem
            assert stranger.get()["sessions"] == 0
            end(stranger.process)
        assert ours.get()["state"] == "ready"
