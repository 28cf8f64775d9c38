# SPDX-License-Identifier: Apache-2.0
"""`apswitch trace`: packets of a running switch, explained with its entries and registers, for clients of any speed."""

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4d, p4r
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from accesspoint.checks.conformance.fixture import request_frame
from accesspoint.checks.conformance.stf.piped import Pipes
from accesspoint.checks.harness.apswitch import BINARY, ROOT, free_address, running, start_switch
from accesspoint.checks.harness.certificates import Authority
from accesspoint.checks.harness.p4runtime import WAIT, Client, Program, delete, exact, insert, update
from accesspoint.checks.harness.waiting import eventually

HOST = bytes.fromhex("020000000001")
READ_CELL, EXACT = 18, 1
MAX_CLIENTS, MAX_WAITING, MAX_PER_SECOND = 4, 64, 100


@dataclass
class TracedSwitch:
    """A running switch whose port 1 is a pipe, and its log."""

    address: str
    wire: Pipes
    process: subprocess.Popen
    log: Path

    def start(self, *options: str, out: Any = subprocess.PIPE) -> subprocess.Popen:
        """Start a trace, and return once it traces."""
        command = [BINARY, "trace", "--address", self.address, *options]
        client = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        assert client.stderr
        line = client.stderr.readline()
        assert line == f"tracing {self.address}\n", line
        return client

    def refused(self, *options: str) -> str:
        """Return the reason why a trace does not start."""
        command = [BINARY, "trace", "--address", self.address, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        return done.stderr

    def request(self, op: int, a: int, number: int = 1) -> None:
        for _ in range(number):
            self.wire.send(request_frame(HOST, op, a))


@pytest.fixture
def options() -> list[str]:
    return []


@pytest.fixture
def lab(tmp_path: Path, options: list[str]) -> Iterator[TracedSwitch]:
    address, wire, log = free_address(), Pipes(tmp_path / "left"), tmp_path / "log"
    files = ("-i", f"1@{tmp_path / 'left'}", "--use-files", "0", "--log-file", str(log))
    process = start_switch(address, *files, *options)
    with running(address, process):
        yield TracedSwitch(address, wire, process, log)
    wire.close()


@pytest.fixture
def primary(lab: TracedSwitch, entities: Program) -> Iterator[Client]:
    client = Client(lab.address, program=entities).become_primary()
    client.push(program=entities)
    yield client
    client.close()


def finished(client: subprocess.Popen) -> str:
    """Return the output of a trace that ends by itself."""
    out, err = client.communicate(timeout=3 * WAIT)
    assert (client.returncode, err) == (0, "")
    return str(out)


def events(line: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(line)["events"] if event["event"] == kind]


def test_trace_has_the_entries_and_registers_that_the_switch_has(
    lab: TracedSwitch, primary: Client, entities: Program
) -> None:
    cell = p4r.RegisterEntry(register_id=entities.id("registers", "cells"), index={"index": 3})
    cell.data.CopyFrom(p4d.P4Data(bitstring=b"\x12\x34"))
    entry = entities.entry("exact_table", [exact(1, 7), exact(2, 0)], ("count_and_say", 0x99))
    primary.write(update("MODIFY", register_entry=cell), insert(entry))
    client = lab.start("--count", "2")
    lab.request(READ_CELL, 3)
    lab.request(EXACT, 7)
    first, second = finished(client).split("packet 2: ")
    assert re.match(r"packet 1: \d+ bytes from port 1\n", first)
    assert "request: op = 0x12, a = 3" in first and "answer.value = 0x1234" in first
    assert "table EntitiesIngress.exact_table" in second and "hits [hdr.request.a 0x7, hdr.request.b 0x0]" in second, (
        second
    )

    client = lab.start("--count", "1", "--json")
    primary.write(delete(entry))
    lab.request(EXACT, 7)
    (line,) = finished(client).splitlines()
    assert events(line, "received")[0]["port"] == 1
    assert next(e for e in events(line, "table") if e["name"].endswith("exact_table"))["entry"] is None
    assert abs(json.loads(line)["time_ns"] / 1e9 - time.time()) < 3600


def test_trace_with_a_match_has_these_packets_alone(lab: TracedSwitch, primary: Client) -> None:
    client = lab.start("--match", "request.op=0x12,request.a=5", "--port", "1", "--count", "3", "--json")
    for number in range(10):
        lab.request(READ_CELL, number)
        lab.request(EXACT, 5)
    lab.request(READ_CELL, 5, 2)
    lines = finished(client).splitlines()
    assert [json.loads(line)["packet"] for line in lines] == [1, 2, 3]
    for line in lines:
        (request,) = (e["fields"] for e in events(line, "extracted") if e["header"] == "request")
        assert request[:2] == [["op", "0x12"], ["a", "5"]]


def test_trace_that_cannot_start_says_what_there_is(lab: TracedSwitch, entities: Program) -> None:
    assert lab.refused() == "apswitch trace: no program is loaded\n"
    primary = Client(lab.address, program=entities).become_primary()
    primary.push(program=entities)
    for options, reason in (
        (("--match", "ipv4.dst=1"), "there is no header `ipv4`: the program has packet_in, packet_out, "),
        (("--match", "request.e=1"), "`request` has no field `e`: it has op, a, b, c\n"),
        (("--match", "request.op=256"), "request.op=0x100 does not fit in 8 bits\n"),
        (("--match", "request.op=x"), "request.op: `x` is not a number"),
        (("--match", "request"), "`request` is not FIELD=VALUE"),
        (("--match", f"request.a={'9' * 20_000}"), "the limit is: 16384 bytes"),
        (("--port", "9"), "there is no port 9: the switch has 1\n"),
        (("--tls-ca", "/nowhere.pem"), "/nowhere.pem: No such file"),
    ):
        assert reason in lab.refused(*options), options
    primary.close()
    done = subprocess.run([BINARY, "trace", "--address", free_address()], capture_output=True, text=True)
    assert done.returncode == 2 and "refused" in done.stderr, done.stderr


def test_trace_continues_with_another_program(lab: TracedSwitch, primary: Client, entities: Program) -> None:
    client = lab.start("--count", "2", "--match", "request.a=4")
    lab.request(READ_CELL, 4)
    assert client.stdout and client.stdout.readline().startswith("packet 1: ")
    primary.push(program=entities)

    def ended() -> bool:
        lab.request(READ_CELL, 4)
        return client.poll() is not None

    assert eventually(ended)
    assert "packet 2: " in finished(client)


def test_packets_beyond_the_rate_are_counted(lab: TracedSwitch, primary: Client) -> None:
    client = lab.start("--json", "--match", "request.a=1")
    # All at once, however long this process has to wait between two of them.
    lab.process.send_signal(signal.SIGSTOP)
    lab.request(READ_CELL, 1, 3 * MAX_PER_SECOND)
    lab.process.send_signal(signal.SIGCONT)
    assert eventually(lambda: not lab.wire.unread())
    time.sleep(1.1)  # the next second
    lab.request(READ_CELL, 1)
    shown, lost = 0, 0
    assert client.stdout
    while shown + lost < 3 * MAX_PER_SECOND + 1:
        line = json.loads(client.stdout.readline())
        lost += line.get("lost", 0)
        shown += "packet" in line
    assert lost >= MAX_PER_SECOND
    client.terminate()
    client.communicate()


def traced_packet() -> Any:
    """The message of switch/cli/proto/trace.proto."""
    file = descriptor_pb2.FileDescriptorProto(name="trace.proto", package="apswitch.trace.v1", syntax="proto3")
    message = file.message_type.add(name="TracedPacket")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="text", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    message.field.add(name="lost", number=2, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("apswitch.trace.v1.TracedPacket"))


def follow(channel: grpc.Channel) -> Any:
    """Start a trace of all packets; return the call once it traces."""
    method = channel.unary_stream(
        "/apswitch.trace.v1.Trace/Follow",
        request_serializer=bytes,
        response_deserializer=traced_packet().FromString,
    )
    call = method(b"")
    call.initial_metadata()
    return call


def test_slow_client_loses_packets_and_gets_their_number(lab: TracedSwitch, primary: Client, tmp_path: Path) -> None:
    quick = tmp_path / "quick"
    with quick.open("wb") as out:
        other = lab.start("--json", out=out)
    # A window that does not grow.
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1)]
    with grpc.insecure_channel(lab.address, narrow) as channel:
        call = follow(channel)
        sent = 0
        while sent < 8 * MAX_WAITING:  # below the rate, and more than the switch and the connection hold
            lab.request(READ_CELL, 1, MAX_WAITING // 2)
            sent += MAX_WAITING // 2
            time.sleep(0.5)
        received, lost = 0, 0
        while not lost and received < sent:
            packet = next(call)
            received, lost = received + 1, packet.lost
            lab.request(READ_CELL, 1)  # the number comes with the next packet
            time.sleep(0.02)
        assert lost and received >= MAX_WAITING
        call.cancel()
    assert eventually(lambda: "trace ended: closed by the client; " in lab.log.read_text())
    assert eventually(lambda: quick.read_text().count('"packet":') > received), "another client loses nothing by it"
    other.terminate()
    other.wait()


def test_clients_beyond_the_limit_are_refused_until_one_ends(lab: TracedSwitch, primary: Client) -> None:
    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(lab.address))
        calls = [follow(channel) for _ in range(MAX_CLIENTS)]
        assert lab.refused() == f"apswitch trace: {MAX_CLIENTS} clients trace already\n"
        calls[0].cancel()
        assert eventually(lambda: "trace ended" in lab.log.read_text())
        client = lab.start("--count", "1")
        lab.request(READ_CELL, 1)
        finished(client)
    address = r"client 127\.0\.0\.1:\d+"
    traces = re.compile(rf"INFO {address}: traces packets\n")
    assert eventually(lambda: len(traces.findall(lab.log.read_text())) == MAX_CLIENTS + 1)


@pytest.mark.parametrize("options", [["-L", "trace"]])
def test_log_at_level_trace_has_the_steps_of_packets(lab: TracedSwitch, primary: Client) -> None:
    def logged() -> bool:
        lab.request(READ_CELL, 6)
        return "    request: op = 0x12, a = 6" in lab.log.read_text()

    assert eventually(logged)
    assert re.search(r"TRACE packet \d+: \d+ bytes from port 1\n", lab.log.read_text())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: apt-get install openssl")
def test_trace_needs_the_right_to_read(tmp_path: Path) -> None:
    authority, address = Authority(tmp_path / "ours"), free_address()
    cert, key = authority.certificate("switch")
    secured = ["--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(authority.ca)]
    secured += ["--allow", "monitor=read", "--allow", "nobody="]
    with running(address, start_switch(address, *secured)):
        for name, reason in (
            ("nobody", "may not read: --allow says what its certificate allows\n"),
            ("monitor", "apswitch trace: no program is loaded\n"),
        ):
            cert, key = authority.certificate(name)
            files = ["--tls-ca", str(authority.ca), "--tls-cert", str(cert), "--tls-key", str(key)]
            command = [BINARY, "trace", "--address", address, *files]
            done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
            assert done.returncode == 2 and done.stderr.endswith(reason)


def test_page_shows_what_a_trace_prints(tmp_path: Path) -> None:
    page = (ROOT / "docs/switch/trace.md").read_text()
    block = re.search(r"^```text\n\$ apswitch trace (.*)\n(packet 1: .*?)^```", page, re.M | re.S)
    assert block
    address, wire = free_address(), Pipes(tmp_path / "left")
    program = str(ROOT / "p4src/compiled/ap.json")
    command = [BINARY, program, "-i", f"1@{tmp_path / 'left'}", "--use-files", "0", "--grpc-server-addr", address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with running(address, process):
        lab = TracedSwitch(address, wire, process, tmp_path / "log")
        client = lab.start(*block[1].split())
        frames = (ROOT / "docs/switch/example.pcap").read_bytes()[24:]
        while frames:
            length = int.from_bytes(frames[8:12], "little")
            wire.send(frames[16 : 16 + length])
            frames = frames[16 + length :]
        printed = finished(client)
    at = 0
    for line in (line for line in block[2].splitlines() if line != "..."):
        at = printed.find(line + "\n", at)
        assert at >= 0, f"{line}\n{printed}"
    wire.close()
