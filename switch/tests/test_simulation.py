# SPDX-License-Identifier: Apache-2.0
"""The switch in virtual time (docs/switch/library.md), over its C interface."""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from finsy.proto import p4r

from accesspoint.checks.conformance.checks.digests import DIGEST
from accesspoint.checks.conformance.fixture import request_frame
from accesspoint.checks.harness.apswitch import ROOT
from accesspoint.checks.harness.p4runtime import Program, exact, insert, update
from accesspoint.checks.harness.simulated import LIBRARY, Refused, Simulated

MS = 1_000_000  # ns
PORTS = ("-i", "1@radio", "-i", "2@uplink", "--cpu-port", "510")
FRAME = bytes.fromhex("0200000000020200000000011234") + bytes(1236)  # 1250 bytes: 10 ms of 1 Mb/s


@pytest.fixture
def switch(entities: Program) -> Iterator[Simulated]:
    """A switch with the program `entities` running and a link of 1 Mb/s behind port 2."""
    switch = Simulated(*PORTS, "--link", "2:rate=1mbit,delay=3ms,limit=3")
    yield switch
    switch.close()


def packet_out(entities: Program, frame: bytes, port: int = 2) -> p4r.StreamMessageRequest:
    field = entities.p4info.controller_packet_metadata[1].metadata[0].id
    metadata = p4r.PacketMetadata(metadata_id=field, value=port.to_bytes(2, "big").lstrip(b"\0"))
    return p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=frame, metadata=[metadata]))


def test_a_frame_takes_its_time_on_the_link_and_no_other(switch: Simulated, entities: Program) -> None:
    stream = switch.become_primary()
    switch.push(entities)
    for _ in range(5):
        switch.send(stream, packet_out(entities, FRAME))
    # One is being sent, three wait, the last was dropped; the wire takes 10 ms and 3 ms, whenever anyone looks.
    assert not list(switch.sent()) and switch.deadline == 10 * MS
    switch.advance(12 * MS)
    assert not list(switch.sent())
    switch.advance(500 * MS)
    assert [(port, at) for port, at, _ in switch.sent()] == [(2, (10 * number + 3) * MS) for number in range(1, 5)]
    assert switch.now == 500 * MS


def test_a_device_that_takes_no_more_leaves_frames_in_the_queue(switch: Simulated, entities: Program) -> None:
    stream = switch.become_primary()
    switch.push(entities)
    switch.allow(2, 1)
    for _ in range(3):
        switch.send(stream, packet_out(entities, FRAME))
    switch.advance(100 * MS)
    assert [at for _, at, _ in switch.sent()] == [13 * MS]
    switch.allow(2, 5)
    switch.advance(200 * MS)
    assert [at for _, at, _ in switch.sent()] == [113 * MS, 123 * MS]
    with pytest.raises(ValueError, match="there is no port 9: there are 1, 2"):
        switch.allow(9, 1)
    with pytest.raises(ValueError, match="port 1 has no queue: give it one, as --link 1:limit=1000"):
        switch.allow(1, 1)


def test_lists_of_digests_and_idle_entries_come_in_virtual_time(switch: Simulated, entities: Program) -> None:
    stream = switch.become_primary()
    switch.push(entities)
    config = p4r.DigestEntry.Config(max_timeout_ns=20 * MS, max_list_size=10, ack_timeout_ns=1000 * MS)
    digest = p4r.DigestEntry(digest_id=entities.p4info.digests[0].preamble.id, config=config)
    idle = entities.entry("exact_table", [exact(1, 7), exact(2, 7)], ("count_and_say", 1), idle_timeout_ns=400 * MS)
    switch.write(update("INSERT", digest_entry=digest), insert(idle))
    list(switch.take(stream))
    switch.receive(1, request_frame(bytes(6), DIGEST))
    switch.advance(19 * MS)
    assert not list(switch.take(stream))
    switch.advance(20 * MS)
    (lists,) = switch.take(stream)
    assert lists.digest.timestamp == 20 * MS and len(lists.digest.data) == 1
    switch.advance(399 * MS)
    assert not list(switch.take(stream))
    switch.advance(501 * MS)
    (told,) = switch.take(stream)
    assert [entry.match for entry in told.idle_timeout_notification.table_entry] == [idle.match]


def test_p4runtime_refuses_as_over_grpc(switch: Simulated, entities: Program) -> None:
    entry = entities.entry("exact_table", [exact(1, 1), exact(2, 1)], ("count_and_say", 1))
    with pytest.raises(Refused, match="only the primary"):
        switch.write(insert(entry))
    stream = switch.become_primary()
    with pytest.raises(Refused, match="no forwarding pipeline config"):
        switch.write(insert(entry))
    switch.push(entities)
    switch.write(insert(entry))
    with pytest.raises(Refused) as refused:
        switch.write(insert(entry))
    (detail,) = refused.value.status.details
    assert p4r.Error.FromString(detail.value).canonical_code == 6  # ALREADY_EXISTS
    assert [read.table_entry.match for read in switch.read(table_entry=p4r.TableEntry(table_id=entry.table_id))] == [
        entry.match
    ]
    wrong = p4r.MasterArbitrationUpdate(device_id=7)
    with pytest.raises(Refused, match="device 7"):
        switch.send(stream, p4r.StreamMessageRequest(arbitration=wrong))
    with pytest.raises(Refused, match="is not open"):
        switch.send(stream, p4r.StreamMessageRequest())


def test_the_same_calls_give_the_same_bytes(access_point: Program) -> None:
    """Two hundred thousand frames, with loss and jitter, twice; another seed gives others."""

    def run(seed: str, frames: int) -> str:
        links = ("--link", "2:rate=1gbit,jitter=1ms,loss=0.01,limit=100", "--link", "1:rate=2gbit")
        switch = Simulated(*PORTS, *links, "--seed", seed)
        stream = switch.become_primary()
        switch.push(access_point)
        ports = [p4r.Replica(egress_port=port, instance=1) for port in (1, 2)]
        group = p4r.MulticastGroupEntry(multicast_group_id=1, replicas=ports)
        switch.write(update("INSERT", packet_replication_engine_entry={"multicast_group_entry": group}))
        digest = hashlib.sha256()
        for number in range(frames):
            source = number % 251
            frame = b"\xff" * 6 + b"\x02\0\0\0\0" + bytes([source]) + b"\x08\x06" + number.to_bytes(4, "big") * 12
            switch.receive(1 + number % 2, frame)
            if number % 16 == 0:
                switch.advance(switch.now + 20_000)
                for port, at, sent in switch.sent():
                    digest.update(b"%d %d %s" % (port, at, sent))
        for message in switch.take(stream):
            digest.update(message.SerializeToString(deterministic=True))
        counters = switch.read(counter_entry=p4r.CounterEntry())
        digest.update(b"".join(entity.SerializeToString(deterministic=True) for entity in counters))
        switch.close()
        return digest.hexdigest()

    once = run("5", 200_000)
    assert once == run("5", 200_000)
    assert run("5", 10_000) != run("6", 10_000)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-i", "1@a", "-i", "1@b"), "port 1 is a already"),
        (("--link", "1:rate=fast"), "such as 600kbit"),
        (("--link", "1:rate=1mbit"), "there is no such port"),
        (("--grpc-server-addr", "a:1"), "unexpected argument"),
    ],
)
def test_bad_options_are_one_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Simulated(*words)
    assert "\n" not in str(error.value)


def test_bad_calls_are_one_line_and_harm_nothing(switch: Simulated, entities: Program) -> None:
    stream = switch.become_primary()
    switch.push(entities)
    switch.advance(5 * MS)
    with pytest.raises(ValueError, match="time cannot go back from 5000000 to 4000000 ns"):
        switch.advance(4 * MS)
    with pytest.raises(ValueError, match="there is no port 9: there are 1, 2"):
        switch.receive(9, FRAME)
    with pytest.raises(ValueError, match="a frame of 9217 bytes: 9216 are the most"):
        switch.receive(1, bytes(9217))
    with pytest.raises(ValueError, match="there is no method 99"):
        switch.call(99, b"")
    with pytest.raises(Refused, match="not a message"):
        switch.call(0, b"\xff\xff\xff")
    with pytest.raises(Refused, match="not a message"):
        switch.send(stream, b"\xff\xff\xff")
    with pytest.raises(Refused, match=f"stream {stream} is not open: open one"):
        switch.send(stream, packet_out(entities, FRAME))
    stream = switch.become_primary()
    for frame in (b"", b"\0", bytes(13), bytes(9216)):
        switch.receive(1, frame)
    list(switch.take(stream))
    list(switch.sent())
    switch.send(stream, packet_out(entities, FRAME))
    switch.advance(100 * MS)
    assert [port for port, _, _ in switch.sent()] == [2]


def test_the_page_s_example_prints_what_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/switch/library.md").read_text()
    (code,) = re.findall(r"```c\n(.*?)```", page, re.DOTALL)
    (printed,) = re.findall(r"It prints\n\n```text\n(.*?)```", page, re.DOTALL)
    (tmp_path / "example.c").write_text(code)
    command = ["gcc", "-std=c99", "-Wall", "-Werror", f"-I{ROOT}/switch/c", "example.c", str(LIBRARY), "-o", "example"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ran = subprocess.run([tmp_path / "example"], check=True, capture_output=True, text=True)
    assert ran.stdout == printed


@pytest.mark.skipif(not shutil.which("cargo"), reason="cargo is missing; install Rust 1.95 or newer")
def test_library_dependencies_have_no_async_runtime_and_no_tls() -> None:
    words = ["cargo", "tree", "--locked", "--package", "apswitch-c", "--edges", "normal", "--prefix", "none"]
    tree = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {line.split()[0] for line in tree.splitlines() if line}
    assert "apswitch-core" in names
    assert not names & {"tokio", "tonic", "hyper", "rustls"}
