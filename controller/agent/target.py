# SPDX-License-Identifier: Apache-2.0
"""Targets of the controller: the only module that knows their differences.

Every architecture's build of the program has the same tables, actions, counters, meters and digests by alias, with the
same fields; the differences are here: port numbers, device config, and the entries of the gate and the ACK filter. The
P4Info has the architecture that it was made for.
"""

from collections.abc import Iterable
from pathlib import Path

import finsy as fy

from ..config import AccessPointConfig, ConfigError
from .queue_estimate import FULL_FRAME

CPU_CLONE_SESSION = 1


class Target:
    """v1model, as BMv2 and apswitch run it."""

    arch = "v1model"
    title = "v1model (apswitch, BMv2)"
    cpu_port = 510
    nowhere: int | None = 511
    """An egress port from which nothing leaves: what `mark_to_drop` asks for. None: there is none."""
    ports = "1 to 509"
    lanes = 64
    """Lanes of a port: parts of its bulk that share by weight. BMv2 has none, and takes all bulk for one queue."""

    def is_port(self, number: int) -> bool:
        """Return True when a port of the access point can have this number."""
        return 0 < number < self.cpu_port

    def takes(self, device_config: bytes) -> bool:
        """Return True for a program of this target: BMv2's JSON."""
        return is_bmv2_json(device_config)

    def gate(self, port: int, capacity_bps: int, buffer: int, batch: int) -> list[fy.P4TableEntry | fy.P4MeterEntry]:
        """Return the entities of a port's gate; buffer and batch in packets."""
        del capacity_bps
        return [_gate_entry(port, fy.Action("batch_gate", buffer=buffer, batch=batch))]

    def cpu_session(self) -> fy.P4CloneSessionEntry:
        """Return the clone session of copies for the controller."""
        return fy.P4CloneSessionEntry(CPU_CLONE_SESSION, replicas=[self.cpu_port])

    def ack_sessions(self, ports: Iterable[int]) -> list[fy.P4CloneSessionEntry]:
        """Return the clone sessions of these ports' ACK filter: none, ingress and egress share a register."""
        del ports
        return []

    def check(self, config: AccessPointConfig) -> None:
        """Check ports and stations; raises `ConfigError` for those that the target does not support."""
        for port in config.ports:
            if not self.is_port(port.port):
                raise ConfigError(
                    f"{config.name}: port {port.port} does not exist on {self.title}, which has {self.ports}"
                )
        for address, station in config.stations.items():
            if station.blocked and self.nowhere is None:
                raise ConfigError(f"{config.name}: station {address} cannot be blocked on {self.title}")


class Tofino(Target):
    """Tofino 1 (TNA); a port is its dev port: pipe * 128 + 0..63."""

    arch = "tna"
    title = "Tofino 1 (TNA)"
    cpu_port = 320
    nowhere = None
    lanes = 24
    ports = "the dev ports 0 to 63 of each pipe: 0 to 63, 128 to 191, 256 to 319, 384 to 447"

    PIPE_PORTS = 128
    FRONT_PORTS = 64
    RECIRCULATION_PORT = 68
    """Port of each pipe; the ACK filter's copies are queued for it, and end before it."""
    ACK_SESSION = 32
    """`ACK_SESSION ++ pipe` of the program."""
    ACK_COPY_BYTES = 64
    TICK_SECONDS = 256e-9
    """The program's clock: nanoseconds without their last eight bits."""
    MAX_WINDOW = 2**30
    """Ticks; the clock wraps at 2**32, and differences are signed."""

    def is_port(self, number: int) -> bool:
        return 0 <= number < 4 * self.PIPE_PORTS and number % self.PIPE_PORTS < self.FRONT_PORTS

    def takes(self, device_config: bytes) -> bool:
        return not is_bmv2_json(device_config)

    def gate(self, port: int, capacity_bps: int, buffer: int, batch: int) -> list[fy.P4TableEntry | fy.P4MeterEntry]:
        """Return a virtual queue of `buffer` full frames, and the time that the link needs for a batch of them."""
        rate = capacity_bps // 8
        burst = buffer * FULL_FRAME
        window = round(batch * FULL_FRAME / rate / self.TICK_SECONDS)
        action = fy.Action("batch_window", batch=batch, window=min(max(1, window), self.MAX_WINDOW))
        meter = fy.P4MeterConfig(cir=rate, cburst=burst, pir=rate, pburst=burst)
        return [fy.P4MeterEntry("virtual_queue", index=port, config=meter), _gate_entry(port, action)]

    def check(self, config: AccessPointConfig) -> None:
        super().check(config)
        for number in config.features.gate or {}:
            port = config.port(number)
            if port is not None and not port.capacity:
                raise ConfigError(
                    f"{config.name}: the gate of port {number} is timed by what the link carries on {self.title}: give "
                    f"its capacity_bps a number"
                )

    def ack_sessions(self, ports: Iterable[int]) -> list[fy.P4CloneSessionEntry]:
        """Return a session for each pipe, by which ingress sends egress the newest ACK numbers."""
        pipes = sorted({port // self.PIPE_PORTS for port in ports})
        return [
            fy.P4CloneSessionEntry(
                self.ACK_SESSION + pipe,
                packet_length_bytes=self.ACK_COPY_BYTES,
                replicas=[pipe * self.PIPE_PORTS + self.RECIRCULATION_PORT],
            )
            for pipe in pipes
        ]


def _gate_entry(port: int, action: fy.Action) -> fy.P4TableEntry:
    return fy.P4TableEntry("gate", match=fy.Match(egress_port=port), action=action)


TARGETS = {target.arch: target for target in (Target(), Tofino())}


def is_bmv2_json(device_config: bytes) -> bool:
    """Return True for the JSON that p4c emits for BMv2."""
    return device_config.lstrip()[:1] == b"{"


def find(arch: str, p4info: Path, device_config: Path) -> Target:
    """Return the target that a P4Info was made for; raises `ConfigError` when the device config is another's."""
    target = TARGETS.get(arch)
    if target is None:
        known = " and ".join(f"`{name}`" for name in TARGETS)
        raise ConfigError(
            f"{p4info}: made for the architecture `{arch}`, but the access point's program is for {known}; "
            f"`make p4` renews both"
        )
    if not target.takes(device_config.read_bytes()):
        raise ConfigError(
            f"{p4info} is of the program for {target.title}, but {device_config} is of another target's: "
            f"name the two files of one target in `pipeline`"
        )
    return target
