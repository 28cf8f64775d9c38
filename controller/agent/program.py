# SPDX-License-Identifier: Apache-2.0
"""The access point's P4 program as the controller sees it: names, well-known numbers, entries.

The names are those of `docs/naming.md`; ids come from the P4Info, so a renumbered program still works. Everything here
builds messages; nothing is sent.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import finsy as fy
from finsy.p4schema import P4IdleTimeoutBehavior
from finsy.proto import p4d, p4r
from google.protobuf.text_format import ParseError

from ..config import ConfigError, Pipeline
from . import target

FLOOD_GROUP = 1
GROUP_PORT = 511
"""In place of an egress port: group traffic, and what else is flooded."""
FLOWS_SIZE = 65536
FEEDBACK_MAX = 65535

ROLE_STATION = 1
ROLE_UPLINK = 2
ROLE_RADIO = 3
ROLES = {"station": ROLE_STATION, "uplink": ROLE_UPLINK}

DIRECTIONS = {"local": 0, "uplink": 1, "downlink": 2}

NOT_ECT, ECT1, ECT0 = range(3)
"""The ECN field (RFC 3168, 5; RFC 9331): ECT(1) is the identifier of scalable senders. CE, 3, is marked already."""

QUEUE_BULK = 0
QUEUE_THINNED = 2
QUEUE_SCALABLE = 3
QUEUE_CONTROL = 4
QUEUE_NEW_FLOWS = 5
QUEUE_SPARSE = 6
QUEUE_ACKS = 7

DIGEST_SOURCE = "source_digest_t"
DIGEST_FLOWS = {"flow_ipv4_digest_t": 4, "flow_ipv6_digest_t": 6}

FLOW_PARAMS = ("flow_index", "generation", "flow_class", "feedback", "scalable_feedback")
FLOW_CLASS_THINNED = 7
"""Class of a flow that the loop lets go ahead and thins; no operator can ask for it."""
PARAM_FLOW_CLASS, PARAM_FEEDBACK, PARAM_SCALABLE = 2, 3, 4
"""Positions among the parameters of `set_flow_ipv4/6`."""

FLOW_TABLES = {4: "flows_ipv4", 6: "flows_ipv6"}
FLOW_ACTIONS = {4: "set_flow_ipv4", 6: "set_flow_ipv6"}

TABLES = (
    "ingress_roles", "egress_roles", "learn", "forward", "flows_ipv4", "flows_ipv6", "classify",
    "class_feedback", "port_feedback", "ack_priority", "gate",
)  # fmt: skip
STEP_TABLE = "step"
COUNTERS = ("arrived", "sent", "filtered", "marked", "dropped", "refused", "queued")
GROUP_COUNTERS = ("group_arrived", "group_sent")
"""By port alone: group traffic that came in through it and goes to all others; that left through it."""

FLOW_FIELDS = (
    "src_addr", "dst_addr", "protocol", "src_port", "dst_port", "ingress_port", "egress_port", "outer_vid", "inner_vid",
)  # fmt: skip
"""The key of `flows_ipv4/6`, in the order of its ids; the digests have the same order."""


class Encodable(Protocol):
    """An entity that finsy encodes."""

    def encode(self, schema: fy.P4Schema) -> p4r.Entity: ...


@dataclass(frozen=True, slots=True)
class FlowKey:
    """One direction of a 5-tuple between two ports, in one VLAN; addresses are 4 or 16 bytes, as on the wire."""

    src_addr: bytes
    dst_addr: bytes
    protocol: int
    src_port: int
    dst_port: int
    ingress_port: int
    egress_port: int
    outer_vid: int = 0
    inner_vid: int = 0

    @property
    def version(self) -> int:
        """IP version: 4 or 6."""
        return 4 if len(self.src_addr) == 4 else 6


def parsed(pipeline: Pipeline) -> "Program":
    """Return the program of a pipeline, for checks only: it is shared until its files change. Raises `ConfigError`."""
    files = pipeline.p4info, pipeline.device_config
    try:
        changed = tuple(file.stat().st_mtime_ns for file in files)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None
    return _parsed(*files, changed)


@lru_cache(maxsize=8)
def _parsed(p4info: Path, device_config: Path, _changed: tuple[int, ...]) -> "Program":
    return Program(Pipeline(p4info=p4info, device_config=device_config))


class Program:
    """P4Info and device config of one pipeline; raises `ConfigError` when they are not the access point's program."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        try:
            self.schema = fy.P4Schema(Path(pipeline.p4info), Path(pipeline.device_config))
        except (ParseError, UnicodeDecodeError, ValueError, IndexError) as error:
            raise ConfigError(f"{pipeline.p4info}: not a P4Info in text form: {str(error).splitlines()[0]}") from None
        except OSError as error:
            raise ConfigError(f"{error.filename}: {error.strerror}") from None
        self.target = target.find(self.schema.arch, pipeline.p4info, pipeline.device_config)
        for kind, names, known in (
            ("table", TABLES, self.schema.tables),
            ("counter", (*COUNTERS, *GROUP_COUNTERS), self.schema.counters),
            ("meter", ("queue_meter",), self.schema.meters),
            ("digest", (DIGEST_SOURCE, *DIGEST_FLOWS), self.schema.digests),
        ):
            for name in names:
                if known.get(name) is None:
                    raise ConfigError(
                        f"{pipeline.p4info}: {kind} `{name}` is missing: this is not the P4Info of the access point's "
                        f"program (p4src/v1model/ap.p4); `make p4` renews it"
                    )
        self.digest_names = {digest.id: digest.alias for digest in self.schema.digests}
        self.flow_versions = {self.schema.tables[name].id: version for version, name in FLOW_TABLES.items()}
        self.learn_id = self.schema.tables["learn"].id
        self.flows_time_out = all(
            self.schema.tables[name].idle_timeout_behavior != P4IdleTimeoutBehavior.NO_TIMEOUT
            for name in FLOW_TABLES.values()
        )
        """True when the target ages flows; else their counters tell which have ended."""
        self.has_scalable_queue = self.schema.tables.get(STEP_TABLE) is not None
        """True when the data plane keeps a scalable flow in one queue and marks packets that waited too long there."""
        self.lanes = self.target.lanes if self.schema.actions.get("known_station") is not None else 0
        """Lanes that stations may have on each port."""
        self.measures_lanes = self.schema.actions.get("add_port_feedback_above") is not None
        """True when the data plane can spare the bulk of who has no queue."""
        self.tables = (*TABLES, STEP_TABLE) if self.has_scalable_queue else TABLES
        self._flow_templates = {version: self._flow_template(version) for version in FLOW_TABLES}

    def update(self, kind: p4r.Update.Type.ValueType, entity: Encodable) -> p4r.Update:
        """Return an Update message for one finsy entity."""
        return p4r.Update(type=kind, entity=entity.encode(self.schema))

    def counter(self, name: str, index: int) -> p4r.Entity:
        """Return a cell of an indirect counter, to be read."""
        return fy.P4CounterEntry(name, index=index).encode(self.schema)

    def flow_entry(
        self, key: FlowKey, params: tuple[int, int, int, int, int], meter: fy.P4MeterConfig, idle_timeout: float
    ) -> p4r.Entity:
        """Return a flow; `params` are those of `FLOW_PARAMS`, `idle_timeout` in seconds.

        Flows come in floods, so finsy encodes one entry of each IP version and the others are made from it.
        """
        entity = p4r.Entity()
        entity.CopyFrom(self._flow_templates[key.version])
        entry = entity.table_entry
        for match, name in zip(entry.match, FLOW_FIELDS, strict=True):
            match.exact.value = canonical(getattr(key, name))
        for param, value in zip(entry.action.action.params, params, strict=True):
            param.value = canonical(value)
        entry.meter_config.CopyFrom(meter.encode())
        if self.flows_time_out:
            entry.idle_timeout_ns = round(idle_timeout * 1e9)
        return entity

    def _flow_template(self, version: int) -> p4r.Entity:
        match: dict[str, object] = dict.fromkeys(FLOW_FIELDS, 0)
        params = dict.fromkeys(FLOW_PARAMS, 0)
        return table_entry(FLOW_TABLES[version], match, FLOW_ACTIONS[version], **params).encode(self.schema)

    def flow_key(self, match: Iterable[p4r.FieldMatch], version: int) -> FlowKey:
        """Return the flow of a table entry that the switch sent."""
        values = {field.field_id: field.exact.value for field in match}
        return flow_key([values[number] for number in range(1, len(FLOW_FIELDS) + 1)], version)


def flow_key(values: list[bytes], version: int) -> FlowKey:
    """Return the flow with these values of `FLOW_FIELDS`."""
    size = 4 if version == 4 else 16
    numbers = [int.from_bytes(value) for value in values[2:]]
    return FlowKey(values[0].rjust(size, b"\0"), values[1].rjust(size, b"\0"), *numbers)


def canonical(value: int | bytes) -> bytes:
    """Return a number as the shortest byte string (P4Runtime specification, section 8.4)."""
    octets = value if isinstance(value, bytes) else value.to_bytes(8)
    return octets.lstrip(b"\0") or b"\0"


def digest_members(data: p4d.P4Data) -> list[bytes]:
    """Return the members of one digest, as the canonical byte strings of P4Runtime (specification, section 8.4)."""
    return [member.bitstring for member in data.struct.members]


def rate_meter(rate_bps: float, burst_bytes: int) -> fy.P4MeterConfig:
    """Return a meter that is green up to `rate_bps` bits/s; its two rates are equal, so no packet is yellow."""
    rate = max(1, round(rate_bps / 8))
    return fy.P4MeterConfig(cir=rate, cburst=burst_bytes, pir=rate, pburst=burst_bytes)


def class_index(port: int, class_id: int) -> int:
    """Index of the counters: egress_port << 3 | class."""
    return port << 3 | class_id


def table_entry(
    table: str, match: dict[str, object], action: str | None = None, priority: int = 0, **params: int
) -> fy.P4TableEntry:
    """Return a table entry; without an action it names the key alone, as a deletion does."""
    return fy.P4TableEntry(
        table,
        match=fy.Match(match),
        action=fy.Action(action, **params) if action else None,
        priority=priority,
    )
