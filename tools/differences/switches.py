# SPDX-License-Identifier: Apache-2.0
"""The two switches, and what they make of packets."""

import collections
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r

from accesspoint.checks.harness.p4runtime import Client, Program
from accesspoint.topologies import targets
from accesspoint.topologies.links.veth import Wires, running
from tools.differences.programs import CPU_PORT, PORTS, Case, DifferencesError, Frame

GRPC = "127.0.0.1:9559"
MAGIC = b"\xd1\xff"  # begins the mark at the end of each packet, the number follows
MARK = 6  # bytes
TAGS = (b"\x81\x00", b"\x88\xa8")  # of VLANs; the kernel takes them from what sockets receive
ETHERNET = 14  # bytes; no interface carries less, a file does
PATIENCE = 1.0  # s; for what is expected of BMv2 and does not come

Outputs = dict[int | None, collections.Counter[Frame]]  # by the packet's number; None where its mark is gone


def numbered(packet: bytes, number: int) -> bytes:
    return packet + MAGIC + struct.pack("!I", number)


def number_of(frame: bytes) -> int | None:
    mark = frame[-MARK:]
    return struct.unpack("!I", mark[2:])[0] if len(mark) == MARK and mark.startswith(MAGIC) else None


def add(outputs: Outputs, port: int, frame: bytes) -> None:
    if len(frame) < ETHERNET:
        return
    if frame[12:14] in TAGS:
        frame = frame[:12] + frame[16:]
    outputs.setdefault(number_of(frame), collections.Counter())[(port, frame)] += 1


def apswitch() -> str:
    return targets.find("apswitch").binary()


def write_pcap(path: Path, frames: list[bytes], start: int = 0, times: list[int] | None = None) -> None:
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1))
        for index, frame in enumerate(frames):
            at = times[index] if times else start + index
            file.write(struct.pack("<IIII", at // 1_000_000, at % 1_000_000, len(frame), len(frame)) + frame)


def read_pcap(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    at = 24
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        if at + 16 + length > len(data):
            return  # still being written
        yield data[at + 16 : at + 16 + length]
        at += 16 + length


@contextmanager
def controller(process: subprocess.Popen[bytes], log: Path, program: Program) -> Iterator[Client]:
    """The primary client of a switch that runs the program."""
    host, port = GRPC.split(":")
    for _ in range(600):
        if process.poll() is not None:
            raise DifferencesError(f"the switch has ended: {log.read_text().strip().splitlines()[-1]}")
        try:
            socket.create_connection((host, int(port))).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    client = Client(GRPC, program)
    try:
        client.become_primary()
        client.push(program=program)
        yield client
    finally:
        client.close()


def write_all(client: Client, updates: list[Any]) -> list[bool]:
    """Write updates one by one, and return for each whether the switch accepted it."""
    taken = []
    for one in updates:
        try:
            client.write(one)
            taken.append(True)
        except grpc.RpcError:
            taken.append(False)
    return taken


def packet_ins(client: Client, outputs: Outputs) -> None:
    while not client.received.empty():
        message = client.received.get()
        if isinstance(message, grpc.RpcError) or message is None:
            raise DifferencesError("the switch has ended the stream")
        if message.WhichOneof("update") == "packet":
            add(outputs, CPU_PORT, message.packet.payload)


def counters(client: Client, program: Program) -> dict[str, Any]:
    """Every counter, and every direct counter by its entry."""
    found: dict[str, Any] = {}
    for counter in program.p4info.counters:
        cells = client.read(counter_entry=p4r.CounterEntry(counter_id=counter.preamble.id))
        found[counter.preamble.name] = [(c.data.packet_count, c.data.byte_count) for c in cells]
    for direct in program.p4info.direct_counters:
        entry = p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=direct.direct_table_id))
        cells = client.read(direct_counter_entry=entry)
        counted = [(str(sorted(map(str, c.table_entry.match))), c.data.packet_count, c.data.byte_count) for c in cells]
        found[direct.preamble.name] = sorted(counted)
    return found


@dataclass
class Result:
    """A switch's results for the packets."""

    outputs: Outputs = field(default_factory=dict)
    taken: list[bool] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)


def on_apswitch(case: Case, program: Program, updates: list[Any], frames: list[Frame], directory: Path) -> Result:
    """All packets from files, in their order; done when nothing more comes."""
    wait = 2 + len(updates) // 500
    for port in PORTS:
        times = [index for index, (at, _) in enumerate(frames) if at == port]
        write_pcap(directory / f"port{port}_in.pcap", [frames[index][1] for index in times], times=times)
    wiring = targets.Wiring({port: str(directory / f"port{port}") for port in PORTS}, GRPC)
    command = targets.find("apswitch").command(wiring)
    command[1:1] = ["--use-files", str(wait)]
    result, log = Result(), directory / "apswitch.log"
    begin = time.monotonic()
    with running(command, log) as process, controller(process, log, program) as client:
        result.taken = write_all(client, updates)
        if time.monotonic() - begin > wait:
            raise DifferencesError("the machine is too busy to write the entries in time: run again")
        outs = [directory / f"port{port}_out.pcap" for port in PORTS]
        sizes: list[int] = []
        while time.monotonic() - begin < wait + 1 or sizes != (sizes := [out.stat().st_size for out in outs]):
            packet_ins(client, result.outputs)
            time.sleep(0.5)
        result.counters = counters(client, program)
        packet_ins(client, result.outputs)
    for port, out in zip(PORTS, outs, strict=True):
        for frame in read_pcap(out):
            add(result.outputs, port, frame)
    return result


def receive(wires: Wires, outputs: Outputs, timeout: float) -> int:
    """Takes what is there, waiting for it; the number of frames."""
    frames = wires.receive(timeout)
    for port, frame in frames:
        add(outputs, port, frame)
    return len(frames)


def on_bmv2(
    case: Case, program: Program, updates: list[Any], frames: list[Frame], expected: Outputs, directory: Path
) -> Result:
    """A window of packets at a time: the next when as much has come back as came back from apswitch."""
    wiring = targets.Wiring({port: f"switch{port}" for port in PORTS}, GRPC, log=directory / "bmv2-own")
    result, log = Result(), directory / "bmv2.log"
    with (
        running(targets.find("bmv2").command(wiring), log) as process,
        controller(process, log, program) as client,
    ):
        result.taken = write_all(client, updates)
        wires = Wires({port: f"host{port}" for port in PORTS})
        while receive(wires, result.outputs, 0.2):
            pass
        result.outputs.clear()
        for start in range(0, len(frames), case.window):
            numbers = range(start, min(start + case.window, len(frames)))
            for number in numbers:
                port, frame = frames[number]
                wires.send(port, frame)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and not all(
                arrived(result.outputs, expected, frames[number][1]) for number in numbers
            ):
                receive(wires, result.outputs, 0.005)
                packet_ins(client, result.outputs)
            if process.poll() is not None:
                raise DifferencesError(f"{case.name}: BMv2 has crashed at packets {numbers}: see {log}")
        while receive(wires, result.outputs, 0.5):
            pass
        packet_ins(client, result.outputs)
        # Dropped packets are counted, too, and nothing tells when they are.
        while result.counters != (now := counters(client, program)):
            result.counters = now
            time.sleep(0.5)
    return result


def arrived(outputs: Outputs, expected: Outputs, frame: bytes) -> bool:
    number = number_of(frame)
    wanted = expected.get(number)
    return not wanted or outputs.get(number, collections.Counter()).total() >= wanted.total()
