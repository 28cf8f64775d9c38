# SPDX-License-Identifier: Apache-2.0
"""The stream, beyond what `checks/conformance` asks: errors that are optional, digests of a predecessor, a client that
vanishes."""

import queue
from typing import Any

from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.checks.digests import DIGEST, seen
from accesspoint.checks.conformance.fixture import request_frame
from accesspoint.checks.harness.apswitch import CPU_PORT
from accesspoint.checks.harness.p4runtime import WAIT, Client, binary, insert, update

BACKUP, NO_PRIMARY = rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND
FRAME = request_frame(bytes(6), DIGEST, 1)


def packet_out(client: Client, frame: bytes = FRAME, port: int = CPU_PORT) -> None:
    client.send(packet=p4r.PacketOut(payload=frame, metadata=[p4r.PacketMetadata(metadata_id=1, value=binary(port))]))


def test_bad_stream_messages_are_answered_by_errors(client: Client, connect: Any) -> None:
    port = p4r.PacketMetadata(metadata_id=1, value=b"\1")
    for metadata, expected in [
        ([], rpc_code.INVALID_ARGUMENT),
        ([port, port], rpc_code.INVALID_ARGUMENT),
        ([port, p4r.PacketMetadata(metadata_id=7, value=b"\1")], rpc_code.INVALID_ARGUMENT),
        ([p4r.PacketMetadata(metadata_id=1, value=b"\2\0")], rpc_code.OUT_OF_RANGE),
    ]:
        packet = p4r.PacketOut(payload=FRAME, metadata=metadata)
        client.send(packet=packet)
        error = client.receive("error")
        assert (error.canonical_code, error.packet_out.packet_out) == (expected, packet)
    client.send(digest_ack=p4r.DigestListAck(digest_id=99, list_id=1))
    error = client.receive("error")
    assert error.canonical_code == rpc_code.INVALID_ARGUMENT
    assert error.digest_list_ack.digest_list_ack.digest_id == 99
    client.send(other={"type_url": "x"})
    error = client.receive("error")
    assert (error.canonical_code, error.other.other.type_url) == (rpc_code.UNIMPLEMENTED, "x")
    client.send()
    assert client.receive("error").canonical_code == rpc_code.INVALID_ARGUMENT
    backup = connect(program=client.program)
    packet_out(backup)
    assert backup.receive("error").canonical_code == rpc_code.PERMISSION_DENIED
    packet_out(client)
    assert client.receive("packet").payload == FRAME, "the stream goes on"


def digests(client: Client) -> list[list[int]]:
    """Send a packet that makes a digest to the pipeline and back; return the digests that came with it."""
    packet_out(client, port=0)
    messages = [client.received.get(timeout=WAIT)]
    while messages[-1].WhichOneof("update") != "packet":
        messages.append(client.received.get(timeout=WAIT))
    client.receives_nothing()
    while not client.received.empty():
        messages.append(client.received.get())
    return [seen(message.digest) for message in messages if message.WhichOneof("update") == "digest"]


def test_digest_that_was_not_acknowledged_reaches_the_next_primary(client: Client, connect: Any) -> None:
    number = client.program.id("digests", "source_t")
    config = {"max_list_size": 1, "ack_timeout_ns": 10**12}
    client.write(update("INSERT", digest_entry=p4r.DigestEntry(digest_id=number, config=config)))
    assert digests(client) == [[1]]
    assert digests(client) == []
    heir = connect(program=client.program).become_primary(2)
    assert digests(heir) == [[1]]


def test_a_client_that_takes_nothing_and_vanishes_harms_nobody(client: Client) -> None:
    arbitration = p4r.MasterArbitrationUpdate(device_id=1, election_id={"low": 9})
    outgoing: queue.Queue = queue.Queue()
    silent = client.stub.StreamChannel(iter(outgoing.get, None))  # nobody iterates over its messages
    outgoing.put(p4r.StreamMessageRequest(arbitration=arbitration))
    assert client.status() == (BACKUP, 9)
    port = p4r.PacketMetadata(metadata_id=1, value=binary(CPU_PORT))
    for _ in range(3000):
        outgoing.put(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=FRAME + bytes(1000), metadata=[port])))
    client.write(insert(client.program.entry("optional_table", [], ("say", 1), priority=1)), election_id={"low": 9})
    silent.cancel()
    outgoing.put(None)
    assert client.status() == (NO_PRIMARY, 9)
    client.become_primary(9)
    packet_out(client)
    while client.receive("packet").payload != FRAME:
        pass  # what its predecessor sent
