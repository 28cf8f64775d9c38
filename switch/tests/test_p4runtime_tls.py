# SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS of the P4Runtime server, and where it listens without."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy import GNMIPath
from finsy.proto import gnmi, gnmi_grpc, p4r, rpc_code

from accesspoint.checks.harness.apswitch import BINARY, free_address, running, start_switch, wait_until_it_listens
from accesspoint.checks.harness.certificates import Authority
from accesspoint.checks.harness.p4runtime import WAIT, Client, Program, modify

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl"
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@contextlib.contextmanager
def switch(*options: str) -> Iterator[str]:
    """Run a switch with these options; yield its address."""
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


def credentials(trusted: Authority, of: Authority | None = None, name: str = "client") -> grpc.ChannelCredentials:
    """A client's: the server's authority, and whose certificate the client shows, for which name."""
    if of is None:
        return grpc.ssl_channel_credentials(trusted.ca.read_bytes())
    cert, key = of.certificate(name)
    return grpc.ssl_channel_credentials(trusted.ca.read_bytes(), key.read_bytes(), cert.read_bytes())


def answers(address: str, offered: grpc.ChannelCredentials | None) -> bool:
    """Return whether the server answers a client; a rejected client gets UNAVAILABLE."""
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


def code_of(call: Callable[[], Any]) -> grpc.StatusCode:
    """Return the status code of a request's answer."""
    try:
        call()
    except grpc.RpcError as failure:
        return failure.code()
    return grpc.StatusCode.OK


def claim(client: Client, election_id: int) -> None:
    """Ask to become primary, and receive the answer."""
    client.arbitrate(election_id)
    client.status()


@needs_openssl
def test_a_certificate_s_name_says_what_its_client_may_do(authority: Authority, entities: Program) -> None:
    ok, denied = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED
    rules = ["client=default-role,gnmi-set", "monitor=read", "qos=role:qos", "nobody="]
    options = [option for rule in rules for option in ("--allow", rule)]
    enabled = gnmi.SetRequest(delete=[GNMIPath("/qos/scheduler-policies/scheduler-policy[name=x]").path])
    wanted = {  # default role, role qos, read, gNMI Get, gNMI Set
        "client": [ok, denied, ok, ok, ok],
        "monitor": [denied, denied, ok, ok, denied],
        "qos": [denied, ok, ok, ok, denied],
        "nobody": [denied, denied, denied, denied, denied],
        "stranger": [denied, denied, denied, denied, denied],
    }
    with switch(*server_options(authority), "--tls-client-ca", str(authority.ca), *options) as address:
        primary = Client(address, credentials=credentials(authority, authority), program=entities).become_primary()
        primary.push(program=entities)
        for name, codes in wanted.items():
            shown = credentials(authority, authority, name)
            # A client that knows the primary's election id is not the primary yet.
            entry = entities.entry("keyless_table", action=("say", 3), is_default_action=True)
            thief = Client(address, credentials=shown, program=entities, election_id=1)
            assert code_of(partial(thief.write, modify(entry))) == codes[0]
            thief.close()
            clients = [Client(address, credentials=shown, role=role) for role in ("", "qos")]
            stub = gnmi_grpc.gNMIStub(clients[0].channel)
            assert [
                code_of(partial(claim, clients[0], 0)),
                code_of(partial(claim, clients[1], 2)),
                code_of(partial(clients[0].read, table_entry=p4r.TableEntry())),
                code_of(partial(stub.Get, gnmi.GetRequest())),
                code_of(partial(stub.Set, enabled)),
            ] == codes, name
            for client in clients:
                client.close()
        primary.close()


@needs_openssl
def test_new_certificates_are_taken_over_while_it_serves(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    files = [tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"]

    def place(of: Authority) -> None:
        for source, target in zip((*of.certificate("switch"), of.ca), files, strict=True):
            (tmp_path / "new").write_bytes(source.read_bytes())
            (tmp_path / "new").replace(target)

    def wait_for(of: Authority) -> None:
        deadline = time.monotonic() + WAIT
        while not answers(address, credentials(of, of)):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    place(authority)
    cert, key, ca = map(str, files)
    with switch("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca) as address:
        before = Client(address, credentials=credentials(authority, authority)).become_primary()
        place(other)
        wait_for(other)
        assert not answers(address, credentials(authority, authority))
        # Invalid files change nothing.
        files[0].write_text("no certificate")
        time.sleep(3)
        assert answers(address, credentials(other, other))
        place(authority)
        wait_for(authority)
        # A client that was connected all the time did not notice.
        before.arbitrate(1)
        assert before.status()[1] == 1
        before.close()


def test_health_and_reflection(entities: Program) -> None:
    with switch() as address, grpc.insecure_channel(address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        for service in (b"", b"p4.v1.P4Runtime", b"gnmi.gNMI", b"apswitch.trace.v1.Trace"):
            request = bytes([0x0A, len(service)]) + service if service else b""
            assert check(request, timeout=WAIT) == b"\x08\x01"  # SERVING
        assert code_of(lambda: check(b"\x0a\x01x", timeout=WAIT)) == grpc.StatusCode.NOT_FOUND
        for version in ("v1", "v1alpha"):
            info = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
            listed = next(info(iter([b"\x3a\x00"]), timeout=WAIT))  # list_services
            services = (b"p4.v1.P4Runtime", b"gnmi.gNMI", b"apswitch.trace.v1.Trace", b"grpc.health.v1.Health")
            assert all(name in listed for name in services)
            symbol = b"p4.v1.WriteRequest"
            file = next(info(iter([bytes([0x22, len(symbol)]) + symbol]), timeout=WAIT))
            assert b"p4/v1/p4runtime.proto" in file and b"updates" in file


def test_a_packet_out_without_a_cpu_port_is_refused(entities: Program) -> None:
    address = free_address()
    command = [str(BINARY), "--no-p4", "--grpc-server-addr", address]
    with running(address, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)):
        client = Client(address, program=entities).become_primary()
        client.push(program=entities)
        client.send(packet=p4r.PacketOut(payload=b"frame", metadata=[p4r.PacketMetadata(metadata_id=1, value=b"\1")]))
        error = client.receive("error")
        assert error.canonical_code == rpc_code.FAILED_PRECONDITION and "--cpu-port" in error.message
        client.close()


def ends(address: str, *options: str) -> str:
    """Return the error output of a switch that does not start."""
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
