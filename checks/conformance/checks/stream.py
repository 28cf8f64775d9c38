# SPDX-License-Identifier: Apache-2.0
"""Section 16: packets and errors on the stream."""

import grpc
from finsy.proto import p4r, rpc_code

from accesspoint.checks.conformance.fixture import PADDING, Fixture
from accesspoint.checks.conformance.suite import check, expect
from accesspoint.checks.harness.p4runtime import binary

TO_CPU = 24  # request
FRAMES = 200


@check("16.1", "a packet-out runs through the pipeline, a packet-in brings what left through the CPU port")
def through_the_pipeline(fixture: Fixture) -> None:
    number, frame = fixture.request(0, a=0x15)
    fixture.packet_out(frame)
    found = fixture.collect(number, 1, fixture.place.wait)
    expect([port for port, _ in found], [fixture.place.cpu_port], "ports that answers came from")
    packet = fixture.message("packet")
    metadata = [(one.metadata_id, one.value) for one in packet.metadata]
    expect(metadata, [(1, binary(fixture.place.cpu_port)), (2, b"\x15")], "the packet-in's metadata")
    expect(packet.payload[30:], frame[14:], "the payload behind the answer")


@check("16.1", "a packet-out leaves through the port that its header names", ports=1)
def through_a_port(fixture: Fixture) -> None:
    number, frame = fixture.request(0)
    fixture.packet_out(frame, fixture.home)
    found = fixture.collect(number, 1, fixture.place.wait)
    expect(found, [(fixture.home, frame)], "ports and frames")


@check("16.1", "a packet from a port reaches the controller with that port", ports=1)
def from_a_port(fixture: Fixture) -> None:
    number, frame = fixture.request(TO_CPU, a=0x7F)
    fixture.send(frame)
    expect(len(fixture.collect(number, 1, fixture.place.wait)), 1, "packets that came")
    packet = fixture.message("packet")
    metadata = [(one.metadata_id, one.value) for one in packet.metadata]
    expect(metadata, [(1, binary(fixture.home)), (2, b"\x7f")], "the packet-in's metadata")


@check("16.1", "packet-outs come back in their order")
def in_order(fixture: Fixture) -> None:
    made = [fixture.request(0) for _ in range(FRAMES)]
    for _, frame in made:
        fixture.packet_out(frame)
    for number, _ in made:
        expect(len(fixture.collect(number, 1, fixture.place.wait)), 1, f"packets of {FRAMES} with number {number}")
    came = [fixture.message("packet").payload[6:14] for _ in made]
    expect(came == [frame[6:14] for _, frame in made], True, "the packets are in order")


@check("16.1", "a packet-in goes to the primary, not to a backup")
def to_the_primary(fixture: Fixture) -> None:
    backup = fixture.connect()
    backup.arbitrate(fixture.election - 5)
    backup.status()
    number, frame = fixture.request(TO_CPU)
    fixture.packet_out(frame)
    expect(len(fixture.collect(number, 1, fixture.place.wait)), 1, "packets that the primary got")
    expect(backup.receives_nothing(), True, "the backup got nothing")


@check("16.1", "a packet-out of a backup is dropped")
def from_a_backup(fixture: Fixture) -> None:
    backup = fixture.connect()
    backup.arbitrate(fixture.election - 5)
    backup.status()
    number, frame = fixture.request(0)
    backup.send(packet=p4r.PacketOut(payload=frame, metadata=[p4r.PacketMetadata(metadata_id=1, value=b"\0")]))
    expect(fixture.collect(number, 1, 0.3), [], "answers")
    if not backup.received.empty():
        error = backup.receive("error")
        expect(error.canonical_code, rpc_code.PERMISSION_DENIED, "the stream error's code")


def dropped(fixture: Fixture, metadata: list[p4r.PacketMetadata], why: str) -> None:
    """The packet-out has no answer; a stream error, if one comes, is about it."""
    number, frame = fixture.request(0)
    fixture.client.send(packet=p4r.PacketOut(payload=frame, metadata=metadata))
    after, frame = fixture.request(0)
    fixture.packet_out(frame)
    expect(len(fixture.collect(after, 1, fixture.place.wait)), 1, f"answers to a good packet-out after one with {why}")
    expect(len(fixture.collect(number, 1, 0)), 0, f"answers to a packet-out with {why}")
    if fixture.has("error"):
        error = fixture.message("error")
        wanted = (rpc_code.INVALID_ARGUMENT, rpc_code.OUT_OF_RANGE)
        expect(error.canonical_code in wanted, True, f"the code of the error is that of bad metadata ({why})")
        expect(error.WhichOneof("details"), "packet_out", "what the error is about")


@check("16.1", "packet-outs whose metadata does not fit are dropped, the stream goes on")
def wrong_metadata(fixture: Fixture) -> None:
    port = p4r.PacketMetadata(metadata_id=1, value=b"\0")
    dropped(fixture, [], "no metadata")
    dropped(fixture, [port, p4r.PacketMetadata(metadata_id=7, value=b"\1")], "unknown metadata")
    dropped(fixture, [p4r.PacketMetadata(metadata_id=1, value=b"\2\0")], "512 in bit<9>")
    dropped(fixture, [port, port], "metadata twice")


@check("16.1", "metadata may have leading zeros")
def leading_zeros(fixture: Fixture) -> None:
    number, frame = fixture.request(0)
    fixture.client.send(
        packet=p4r.PacketOut(payload=frame, metadata=[p4r.PacketMetadata(metadata_id=1, value=b"\0\0\0")])
    )
    expect(len(fixture.collect(number, 1, fixture.place.wait)), 1, "answers")


@check("16.1", "a long packet goes out and comes back whole")
def long_packet(fixture: Fixture) -> None:
    payload = bytes(number & 0xFF for number in range(1400))
    number, frame = fixture.request(0, payload=payload)
    fixture.packet_out(frame)
    ((_, came),) = fixture.collect(number, 1, fixture.place.wait)
    expect(came[38:] == payload, True, "the payload of 1400 bytes is whole")


@check("16.2", "election id 0 is one, and not an unset one", None)
def election_zero(fixture: Fixture) -> None:
    client = fixture.connect(role="conformance-zero")
    client.arbitrate(0)
    try:
        found = client.status()
    except grpc.RpcError as failure:
        expect(failure.code(), grpc.StatusCode.UNIMPLEMENTED, "the stream's end")
        return
    expect(found, (rpc_code.OK, 0), "code and highest election id of the only client of a role, with id 0")


@check("16.5", "a stream message without content leaves the stream alone")
def empty_message(fixture: Fixture) -> None:
    fixture.client.send()
    number, frame = fixture.request(0, payload=PADDING)
    fixture.packet_out(frame)
    expect(len(fixture.collect(number, 1, fixture.place.wait)), 1, "answers to a packet-out after it")
