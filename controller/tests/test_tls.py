# SPDX-License-Identifier: Apache-2.0
"""TLS: of REST, and mutual towards the switch."""

import contextlib
import json
import shutil
import signal
import ssl
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from accesspoint.checks.harness.certificates import Authority
from accesspoint.checks.harness.switches import ROOT, WAIT_SECONDS, Controller, SwitchLab, end, wait_for
from accesspoint.controller.fleet.credentials import init

from .test_config import access_point
from .test_entries import PIPELINE

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One for all tests."""
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


def shake_hands(certificate: Path, key: Path, ca: Path) -> None:
    """As strictly as Python 3.13 asks for by itself; raises `ssl.SSLError`."""
    contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=ca)
    contexts[0].load_cert_chain(certificate, key)
    contexts[1].verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = contexts[0].wrap_bio(up, down, server_side=True), contexts[1].wrap_bio(down, up, server_hostname="127.0.0.1")
    for _ in range(3):
        for side in reversed(ends):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert ends[1].getpeercert()


def test_every_python_takes_our_certificates(authority: Authority, tmp_path: Path) -> None:
    shake_hands(*authority.certificate("strict"), authority.ca)
    init(tmp_path / "keys", ["127.0.0.1"], "127.0.0.1:4222")
    shake_hands(*(tmp_path / "keys" / name for name in ("server.pem", "server.key", "ca.pem")))


def test_rest_over_tls(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.certificate("controller")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"access_points": [access_point(pipeline=PIPELINE, enabled=False)]}))
    controller = Controller(path, "--tls-cert", str(cert), "--tls-key", str(key))
    try:
        assert controller.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(authority.ca))
        with httpx.Client(base_url=controller.url, verify=context, timeout=WAIT_SECONDS) as client:
            answer = client.post("/api/v1/session", json={"token": controller.token})
            assert answer.status_code == 201
            assert answer.headers["set-cookie"].startswith("__Host-session=")
            assert "secure" in answer.headers["set-cookie"].lower()
            assert "max-age" in answer.headers["strict-transport-security"]
            assert client.get("/api/v1/access-points/ap1").json()["state"] == "stopped"
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{controller.url}/healthz", timeout=WAIT_SECONDS)
    finally:
        end(controller.process)


def test_renewed_certificates_are_used_without_a_restart(tmp_path: Path) -> None:
    before, after = Authority(tmp_path / "before"), Authority(tmp_path / "after")
    cert, key = before.certificate("controller")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"access_points": [access_point(pipeline=PIPELINE, enabled=False)]}))
    controller = Controller(path, "--tls-cert", str(cert), "--tls-key", str(key))

    def trusts(authority: Authority) -> bool:
        try:
            context = ssl.create_default_context(cafile=str(authority.ca))
            return httpx.get(f"{controller.url}/healthz", verify=context, timeout=WAIT_SECONDS).status_code == 200
        except httpx.ConnectError:
            return False

    try:
        assert trusts(before)
        renewed, its_key = after.certificate("controller")
        # First one of two that do not fit: what was there goes on.
        shutil.copy(renewed, cert)
        controller.process.send_signal(signal.SIGHUP)
        assert controller.line() == f"reloaded {path}"
        assert trusts(before) and not trusts(after)
        assert "the one before stays in use" in controller.errors.read_text()
        shutil.copy(its_key, key)
        controller.process.send_signal(signal.SIGHUP)
        assert controller.line() == f"reloaded {path}"
        assert trusts(after) and not trusts(before)
    finally:
        end(controller.process)


OFTEN = (
    "import runpy, sys, accesspoint.controller.app; accesspoint.controller.app.RENEW_SECONDS = 0.2; "
    "sys.argv[:] = ['controller', *sys.argv[4:]]; runpy.run_module('accesspoint.controller', run_name='__main__')"
)
"""Looks for renewed certificates more often."""


@pytest.mark.long
def test_renewed_certificates_are_found_by_themselves(tmp_path: Path) -> None:
    before, after = Authority(tmp_path / "before"), Authority(tmp_path / "after")
    cert, key = before.certificate("controller")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"access_points": [access_point(pipeline=PIPELINE, enabled=False)]}))
    options = ("--tls-cert", str(cert), "--tls-key", str(key))
    controller = Controller(path, *options, before=[sys.executable, "-c", OFTEN])

    def trusts(authority: Authority) -> bool:
        try:
            context = ssl.create_default_context(cafile=str(authority.ca))
            return httpx.get(f"{controller.url}/healthz", verify=context, timeout=WAIT_SECONDS).status_code == 200
        except httpx.ConnectError:
            return False

    try:
        assert trusts(before)
        for new, old in zip(after.certificate("controller"), (cert, key), strict=True):
            shutil.copy(new, old)
        wait_for(lambda: trusts(after))
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
    command = [sys.executable, "-m", "accesspoint.controller", "--config", str(path), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {words}") and done.stderr.count("\n") == 1


def _has_problem(controller: Controller) -> bool:
    return controller.get()["problem"] is not None


def test_p4runtime_by_mutual_tls(authority: Authority, link_lab: SwitchLab, tmp_path: Path) -> None:
    cert, key = map(str, authority.certificate("switch"))
    link_lab.start_switch(options=["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", str(authority.ca)])
    strangers = Authority(tmp_path / "strangers")

    def options(of: Authority) -> dict[str, str]:
        cert, key = of.certificate("controller")
        return {"ca": str(authority.ca), "cert": str(cert), "key": str(key), "server_name": "switch"}

    ours = link_lab.controller(tls=options(authority))
    link_lab.introduce(ours)
    wait_for(lambda: ours.get()["loop"]["ticks"] > 2)
    wrongs: list[dict[str, Any]] = [{"tls": options(strangers)}, {}]
    for wrong in wrongs:
        stranger = link_lab.controller(ready=False, **wrong)
        wait_for(partial(_has_problem, stranger))
        problem = stranger.get()["problem"]
        assert problem.startswith("ap1: ") and "\n" not in problem
        assert stranger.get()["sessions"] == 0
        end(stranger.process)
    assert ours.get()["state"] == "ready"
