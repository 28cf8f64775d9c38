# SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS of the P4Runtime server, and where it listens without."""

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r
from p4rt_client import WAIT, Client
from p4rt_switch import free_address, start_switch, wait_until_it_listens

from controller.tests.certificates import Authority

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl"
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@contextlib.contextmanager
def switch(*options: str) -> Iterator[str]:
    """Where a switch with these options listens."""
    address = free_address()
    process = start_switch(address, *options)
    try:
        wait_until_it_listens(address, process)
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=WAIT)


def server_options(authority: Authority) -> list[str]:
    cert, key = authority.certificate("switch")
    return ["--tls-cert", str(cert), "--tls-key", str(key)]


def credentials(trusted: Authority, of: Authority | None = None) -> grpc.ChannelCredentials:
    """A client's: the server's authority, and whose certificate the client shows."""
    if of is None:
        return grpc.ssl_channel_credentials(trusted.ca.read_bytes())
    cert, key = of.certificate("client")
    return grpc.ssl_channel_credentials(trusted.ca.read_bytes(), key.read_bytes(), cert.read_bytes())


def answers(address: str, offered: grpc.ChannelCredentials | None) -> bool:
    """Whether the server answers a client; one that it does not let in finds it unavailable."""
    client = Client(address, credentials=offered)
    try:
        return bool(client.stub.Capabilities(p4r.CapabilitiesRequest(), timeout=WAIT).p4runtime_api_version)
    except grpc.RpcError as failure:
        assert failure.code() == grpc.StatusCode.UNAVAILABLE
        return False
    finally:
        client.close()


@needs_openssl
def test_with_tls_clients_know_the_server(authority: Authority, tmp_path: Path) -> None:
    with switch(*server_options(authority)) as address:
        assert answers(address, credentials(authority))
        assert not answers(address, credentials(Authority(tmp_path / "strangers")))
        assert not answers(address, None)


@needs_openssl
def test_with_mutual_tls_the_server_knows_its_clients(authority: Authority, tmp_path: Path) -> None:
    strangers = Authority(tmp_path / "strangers")
    with switch(*server_options(authority), "--tls-client-ca", str(authority.ca)) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))):  # one that never begins its handshake
            assert answers(address, credentials(authority, authority))
            assert not answers(address, credentials(authority))
            assert not answers(address, credentials(authority, strangers))
        primary = Client(address, credentials=credentials(authority, authority)).become_primary()
        primary.close()


def ends(address: str, *options: str) -> str:
    """What a switch that does not start says."""
    process = start_switch(address, *options)
    _, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 2
    return errors


def test_without_tls_only_loopback_is_served() -> None:
    everywhere = free_address().replace("127.0.0.1", "0.0.0.0")
    said = ends(everywhere)
    assert said.count("\n") == 1 and everywhere in said and "--tls-cert" in said and "--insecure" in said
    process = start_switch(everywhere, "--insecure")
    try:
        here = everywhere.replace("0.0.0.0", "127.0.0.1")
        wait_until_it_listens(here, process)
        assert answers(here, None)
    finally:
        process.terminate()
        process.communicate(timeout=WAIT)


def test_bad_files_are_one_clear_line(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for cert in (nothing, garbage):
        said = ends(free_address(), "--tls-cert", str(cert), "--tls-key", str(garbage))
        assert said.count("\n") == 1 and str(cert) in said and "PEM" in said
