# SPDX-License-Identifier: Apache-2.0
"""A switch whose ports are pcap files: they carry frames shorter than an Ethernet header, and need no privilege.

What a port receives is a named pipe (fifo(7)), so that the case decides when; what it sends is a file that grows.
"""

import array
import errno
import fcntl
import os
import struct
import termios
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType

from accesspoint.checks.conformance.fixture import Place
from accesspoint.checks.conformance.server import StartedServer
from accesspoint.checks.conformance.suite import fail
from accesspoint.checks.harness.waiting import free_port
from accesspoint.topologies import targets

FILE_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1)  # libpcap's, microseconds, Ethernet
FRAME_HEADER = struct.Struct("<IIII")
READ = 1.0  # s; a switch that has not read a packet by then reads them when there are no more


class PipedServer(StartedServer):
    """A target without a program, with these ports, in a directory of its own."""

    def __init__(self, target: targets.Target, ports: Collection[int], directory: Path, wait: float) -> None:
        self.ports = {port: Pipes(directory / f"port{port}") for port in sorted(ports)}
        address = f"127.0.0.1:{free_port()}"
        interfaces = {port: str(directory / f"port{port}") for port in self.ports}
        wiring = targets.Wiring(interfaces, address, thrift=free_port(), log=directory / "switch.own")
        command = target.command(wiring)
        command[1:1] = ["--use-files", "0"]
        # Cases know no packet-in: what leaves through that port is a frame as any other.
        at = command.index("--cpu-port")
        del command[at : at + 2]
        super().__init__(target, Place(address, wait=wait), command, directory / "switch.log")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        for pipes in self.ports.values():
            pipes.close()

    def send(self, port: int, frame: bytes) -> None:
        self.ports[port].send(frame)

    def close_inputs(self) -> None:
        """Close the pipes of packets: some switches begin only then."""
        for pipes in self.ports.values():
            pipes.close()

    def has_read_all(self) -> bool:
        """Return whether the switch has read all packets within READ s."""
        deadline = time.monotonic() + READ
        while any(pipes.unread() for pipes in self.ports.values()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def sent(self) -> dict[int, list[bytes]]:
        """Return the frames that have left through each port until now."""
        return {port: list(pipes.sent()) for port, pipes in self.ports.items()}


class Pipes:
    """A port: `NAME_in.pcap` and `NAME_out.pcap`."""

    def __init__(self, name: Path) -> None:
        self.output = name.with_name(f"{name.name}_out.pcap")
        entrance = name.with_name(f"{name.name}_in.pcap")
        os.mkfifo(entrance)
        # Also for reading: whoever opens it next, on either side, then never waits.
        self.input: int | None = os.open(entrance, os.O_RDWR | os.O_NONBLOCK)
        os.write(self.input, FILE_HEADER)

    def send(self, frame: bytes) -> None:
        assert self.input is not None
        now = time.time_ns() // 1000
        header = FRAME_HEADER.pack(now // 1_000_000, now % 1_000_000, len(frame), len(frame))
        try:
            written = os.write(self.input, header + frame)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            written = 0
        if written != len(header) + len(frame):
            fail("the switch does not take its packets: the pipe is full")

    def unread(self) -> int:
        """Bytes that the switch has not taken yet."""
        if self.input is None:
            return 0
        number = array.array("i", [0])
        fcntl.ioctl(self.input, termios.FIONREAD, number)
        return number[0]

    def sent(self) -> Iterator[bytes]:
        data = self.output.read_bytes() if self.output.exists() else b""
        at = len(FILE_HEADER)
        while at + FRAME_HEADER.size <= len(data):
            length = FRAME_HEADER.unpack_from(data, at)[2]
            at += FRAME_HEADER.size
            if at + length > len(data):
                return  # still being written
            yield data[at : at + length]
            at += length

    def close(self) -> None:
        if self.input is not None:
            os.close(self.input)
            self.input = None
