# SPDX-License-Identifier: Apache-2.0
"""The switches that run the program: the place of each, its fitness, its command line. Knows no lab."""

import functools
import os
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from accesspoint.topologies import bmv2
from accesspoint.topologies.requirements import LabError, apswitch

CPU_PORT = 510
PRIORITY_QUEUES = 8
DEFAULT = "apswitch"


@dataclass(frozen=True)
class Wiring:
    """Arguments of a switch's start.

    interfaces: port -> interface. grpc: address of P4Runtime. thrift: TCP port of BMv2's own interface. log: its
    file; None: stdout. links: port -> options of `apswitch --link`, for targets that model links themselves. seed: of
    `apswitch`'s random numbers; None: another one each time. program: BMv2 JSON; None: a controller brings the
    pipeline over P4Runtime. pcap: a folder that takes what each port carries. log_level: None: the lab's own choice.
    """

    interfaces: Mapping[int, str]
    grpc: str = "127.0.0.1:9559"
    thrift: int = 9090
    device_id: int = 1
    log: Path | None = None
    links: Mapping[int, str] = field(default_factory=dict)
    seed: int | None = None
    program: Path | None = None
    pcap: Path | None = None
    log_level: str | None = None
    cpu_port: int = CPU_PORT


@dataclass(frozen=True)
class Port:
    """A port's rates and limit, as a lab needs them.

    rate: of its egress; opposite: of the data whose ACKs leave through it (both bit/s). limit: of its queues, in
    packets.
    """

    rate: int
    opposite: int
    limit: int


class Target(ABC):
    """A kind of switch."""

    name: str
    title: str

    @abstractmethod
    def binary(self) -> str:
        """The program to start. Raises LabError when it is missing."""

    def version(self) -> str:
        """Return the version that the program prints. Raises LabError when it prints none."""
        said = _output(self.binary(), "--version").partition("\n")[0]
        match = re.search(r"\d+\.\d+\.\d+[\w.+-]*", said)
        if not match:
            raise LabError(f"{self.binary()} --version says '{said}', which is no version: is it {self.title}?")
        return match[0]

    def require(self) -> None:
        """Raises LabError when the program is missing or will not do."""
        self.version()

    def command(self, wiring: Wiring) -> list[str]:
        """The command line."""
        words = [self.binary(), "--device-id", str(wiring.device_id), str(wiring.program or "--no-p4")]
        words += [word for port, name in wiring.interfaces.items() for word in ("-i", f"{port}@{name}")]
        words += ["--pcap", str(wiring.pcap)] if wiring.pcap else []
        words += self._own_options(wiring)
        words += ["--", "--grpc-server-addr", wiring.grpc, "--cpu-port", str(wiring.cpu_port)]
        return [*words, "--priority-queues", str(PRIORITY_QUEUES)]

    @abstractmethod
    def check(self, ports: Mapping[int, Port], features: Mapping[str, object]) -> None:
        """Raises LabError for ports and features (of the access point, by name) that it cannot give."""

    def differences(self, ports: Mapping[int, Port]) -> list[str]:
        """Return the differences from the requested ports, one sentence each."""
        return []

    @abstractmethod
    def _own_options(self, wiring: Wiring) -> list[str]:
        """Return the options that only this switch has."""


class _ApSwitch(Target):
    name = "apswitch"
    title = "apswitch"

    def binary(self) -> str:
        if not os.access(apswitch(), os.X_OK):
            raise LabError(f"the switch {apswitch()} is missing: build it with `make switch`")
        return str(apswitch())

    def check(self, ports: Mapping[int, Port], features: Mapping[str, object]) -> None:
        """Accept all of them."""

    def _own_options(self, wiring: Wiring) -> list[str]:
        log = ["--log-file", str(wiring.log)] if wiring.log else []
        log += ["--log-level", wiring.log_level] if wiring.log_level else []
        log += ["--seed", str(wiring.seed)] if wiring.seed is not None else []
        return log + [word for port, link in wiring.links.items() for word in ("--link", f"{port}:{link}")]


class _Bmv2(Target):
    name = "bmv2"
    title = "BMv2"

    def binary(self) -> str:
        found = shutil.which("simple_switch_grpc")
        if not found:
            raise LabError(
                "simple_switch_grpc is missing: install BMv2 (https://github.com/p4lang/behavioral-model) with PI "
                "and put it on PATH, or take TARGET=apswitch"
            )
        return found

    def require(self) -> None:
        if _output(self.binary(), "--version").startswith("apswitch"):
            raise LabError(f"{self.binary()} is apswitch's: put BMv2's before it on PATH, or take TARGET=apswitch")
        # Not by the number: builds between two releases carry the older one's.
        if "priority-queues" not in _output(self.binary(), "--help"):
            raise LabError(
                f"simple_switch_grpc {self.version()} has no option --priority-queues: install BMv2 1.15.1 or newer"
            )
        super().require()

    def check(self, ports: Mapping[int, Port], features: Mapping[str, object]) -> None:
        for port in ports.values():
            bmv2.bulk_pace(port.rate, port.opposite)
        others = [name for name in ("ncr", "sparse", "gate") if features.get(name)]
        if others and not features.get("ack_priority"):
            raise LabError(
                f"BMv2 cannot give {', '.join(others)} without ack_priority: its queues count packets, so ACKs need "
                "one of their own; switch ack_priority on, or take TARGET=apswitch"
            )

    def differences(self, ports: Mapping[int, Port]) -> list[str]:
        paces = {bmv2.bulk_pace(port.rate, port.opposite): port.rate for port in ports.values()}
        paced = ", ".join(
            f"{pace} of {rate / 8 / bmv2.FULL_FRAME:.0f} full packets/s on {rate / 1e6:g} Mb/s"
            for pace, rate in paces.items()
        )
        return [
            "no rate in bit/s and no delay: wires behind the switch keep the links' rates, delays and limits",
            f"with ACK priority the bulk queue is paced by packets to below the link: {paced}; the rest is left to the "
            "priority queues, whether they need it or not",
            "a queue limit for each priority queue, none for the port",
            "ACKs hardly ever wait for the link, so the ACK filter finds few to supersede",
        ]

    def _own_options(self, wiring: Wiring) -> list[str]:
        words = ["--thrift-port", str(wiring.thrift)]
        if wiring.log:
            # BMv2 appends `.txt` to the name itself.
            words += [
                "--log-file",
                str(wiring.log.with_suffix("")),
                "--log-flush",
                "--log-level",
                wiring.log_level or "warn",
            ]
        return words


TARGETS: dict[str, Target] = {target.name: target for target in (_ApSwitch(), _Bmv2())}


def find(name: str) -> Target:
    """Return the target of that name, ready to be started. Raises LabError when it is unknown, missing or too old."""
    if name not in TARGETS:
        raise LabError(f"target '{name}' is unknown: choose one of {', '.join(TARGETS)}")
    TARGETS[name].require()
    return TARGETS[name]


@functools.cache
def _output(*command: str) -> str:
    """Return the output of a program that ends at once. Raises LabError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"`{' '.join(command)}` does not run: {error}") from None
    return (done.stdout + done.stderr).strip()


def main() -> int:
    """Prints a line per target: its version, or why it cannot be used."""
    for name in TARGETS:
        try:
            print(f"target {name}: {find(name).version()}")
        except LabError as error:
            print(f"target {name}: not available: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
