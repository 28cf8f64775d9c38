# SPDX-License-Identifier: Apache-2.0
"""The targets of the packet tests: how each is started, and how its port 4 is made slow.

All that tests must not know is here. A target that cannot do something says so in `cannot`: {test: reason}.
"""

import shutil
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GRPC_ADDRESS = "127.0.0.1:9559"
THRIFT_PORT = 9090
CPU_PORT = 510
SLOW_PORT = 4
SLOW_FRAMES = 5  # frames of 1000 bytes per second


class MissingTargetError(Exception):
    """The target is not installed; the text names the mend."""


@dataclass(frozen=True)
class Target:
    """A switch that runs the program."""

    command: Callable[[dict[int, str], Path], list[str]]  # interfaces by port, log file -> command line
    version: Callable[[], list[str]]
    slow_down: Callable[[], None]  # after the pipeline is pushed
    cannot: dict[str, str] = field(default_factory=dict)


def _find(binary: str | Path, mend: str) -> str:
    found = shutil.which(binary)
    if found is None:
        raise MissingTargetError(f"{Path(binary).name} is missing; {mend}")
    return found


def _interfaces(interfaces: dict[int, str]) -> list[str]:
    return [word for port, name in interfaces.items() for word in ("-i", f"{port}@{name}")]


def _target_options() -> list[str]:
    return ["--", "--grpc-server-addr", GRPC_ADDRESS, "--cpu-port", str(CPU_PORT), "--priority-queues", "8"]


def _apswitch() -> str:
    return _find(ROOT / "switch/target/release/apswitch", "build it with: make switch")


def _apswitch_command(interfaces: dict[int, str], log: Path) -> list[str]:
    link = f"{SLOW_PORT}:rate={SLOW_FRAMES * 1000 * 8}bit"
    return [
        _apswitch(), "--device-id", "1", *_interfaces(interfaces), "--no-p4", "--log-file", str(log), "--link", link,
        *_target_options(),
    ]  # fmt: skip


def _bmv2() -> str:
    return _find("simple_switch_grpc", "install BMv2 (https://github.com/p4lang/behavioral-model) and put it on PATH")


def _bmv2_command(interfaces: dict[int, str], log: Path) -> list[str]:
    return [
        _bmv2(), "--device-id", "1", *_interfaces(interfaces), "--no-p4", "--log-file", str(log.with_suffix("")),
        "--log-flush", "--log-level", "warn", "--thrift-port", str(THRIFT_PORT),
        *_target_options(),
    ]  # fmt: skip


def _slow_down_bmv2() -> None:
    """Call set_egress_queue_rate(1: i32 port_num, 2: i64 rate_pps) of BMv2's simple_switch.thrift.

    BMv2 has no rate of a port, only of each of its queues, in packets, and only over Thrift. The message is Thrift's
    binary protocol; the answer's last field is the result, 0 for success.
    """
    method = b"simple_switch:set_egress_queue_rate"
    message = struct.pack(f">Ii{len(method)}si", 0x80010001, len(method), method, 0)
    message += struct.pack(">bhibhqb", 8, 1, SLOW_PORT, 10, 2, SLOW_FRAMES, 0)
    with socket.create_connection(("127.0.0.1", THRIFT_PORT), timeout=10) as connection:
        connection.sendall(message)
        answer = connection.recv(1024)
    if answer[-8:] != struct.pack(">bhib", 8, 0, 0, 0):
        raise ConnectionError(f"BMv2 does not set the rate of port {SLOW_PORT}: {answer!r}")


TARGETS = {
    "apswitch": Target(_apswitch_command, lambda: [_apswitch(), "--version"], lambda: None),
    "bmv2": Target(_bmv2_command, lambda: [_bmv2(), "--version"], _slow_down_bmv2),
}
