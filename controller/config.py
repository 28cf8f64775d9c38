# SPDX-License-Identifier: Apache-2.0
"""The configuration file: JSON, checked before anything is connected.

A mistake is a `ConfigError` whose text is one line with the file, the place and the reason.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, field_validator, model_validator

from . import strict_json
from .law import BROKEN, LAWS
from .mistakes import one_line

CLASS_DOWNLINK = 1
CLASS_UPLINK = 2
DEFAULT_GROUP = "default"

PortNumber = Annotated[int, Field(ge=0, lt=510)]
"""Port number of any target; `accesspoint.controller.agent.target` has the range of each."""
FileName = Annotated[Path, Strict(False)]
"""From text: JSON has no type for it."""
PortRange = Annotated[tuple[int, int], Strict(False)]
"""First and last port, from a list."""
Weight = Annotated[float, Field(gt=0, le=1000)]
Ratio = Annotated[float, Field(ge=0, le=1)]
ClassId = Annotated[int, Field(ge=0, le=7)]
FlowClass = Annotated[int, Field(ge=0, le=6)]
"""Class that a flow may ask for; 7 is for flows that the controller thins."""
MacAddress = Annotated[str, Field(pattern=r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$")]
StationAddress = Annotated[str, Field(pattern=r"^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$")]
"""MAC address of one device: no group's, which nobody sends from."""
NAME = r"^\.*[A-Za-z0-9_-][A-Za-z0-9._-]*$"
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=NAME)]
"""Name that is part of a path in REST: not of dots alone, since `rules/..` is the access point itself."""
StationName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$")]
TimeOfDay = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", examples=["18:00"])]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)
Capacity = Annotated[int, Field(ge=1_000, le=1_000_000_000_000)] | Literal["auto"]
Milliseconds = Annotated[float, Field(gt=0, le=10_000)]


class ConfigError(Exception):
    """A configuration that cannot be used; the text is one line."""


class Model(BaseModel):
    """A part of the configuration. Unknown names are mistakes, and values of another JSON type, as "3" for 3 or 0 for
    false. A changed value is checked like a new one."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _is_number(cls, value: Any) -> Any:
        """Take 3.0 for 3: JSON has one type of number."""
        if isinstance(value, list):
            return [int(item) if isinstance(item, float) and item.is_integer() else item for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value


class Pipeline(Model):
    """The compiled program; paths are relative to the working directory."""

    p4info: FileName = Path("p4src/compiled/ap.p4info.txtpb")
    device_config: FileName = Path("p4src/compiled/ap.json")


class P4RuntimeTls(Model):
    """Mutual TLS towards the switch: PEM files, read whenever a session begins."""

    ca: FileName
    """Certificate authority of the switch."""
    cert: FileName
    key: FileName
    """Key of the controller's certificate."""
    server_name: str | None = None
    """The name in the switch's certificate, where it is not that of `address`."""


class Period(Model):
    """Another rate from one time of day to another, by the clock of the access point's machine."""

    start: TimeOfDay
    end: TimeOfDay
    """Not after `start`: that of the next day."""
    days: Annotated[list[Day], Field(min_length=1)] | None = None
    """Days on which it starts; null: all."""
    capacity_bps: Capacity

    def holds(self, now: datetime) -> bool:
        """Return True within the period."""
        minute, day = f"{now:%H:%M}", now
        if self.start < self.end:
            within = self.start <= minute < self.end
        else:
            within = minute >= self.start or minute < self.end
            if minute < self.end:
                day = now - timedelta(days=1)
        return within and (self.days is None or DAYS[day.weekday()] in self.days)


class Port(Model):
    """One port of the access point."""

    port: PortNumber
    role: Literal["station", "uplink"]
    capacity_bps: Capacity
    """Capacity of the link behind the port, in bits/s: C of section 3.2. `auto`: learned while its queue is never
    empty; nothing is shared and no queue limited before that."""
    queue_limit: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Packets that all queues of the port hold together."""
    isolated: bool = True
    """True: stations behind this port do not reach each other through the access point. Stations on one wire or behind
    one switch need no help; those of a radio do, whose own bridge is off (hostapd's `ap_isolate`)."""
    roaming: bool = False
    """True: stations come to this port from other access points, as to a radio: an address that was known behind the
    uplink moves here once it is silent there. False: it stays behind the uplink until it was silent there for
    `station_idle_timeout`."""
    regulated: bool = True
    """True: feedback is computed for what leaves through this port."""
    schedule: Annotated[list[Period], Field(max_length=32)] = Field(default_factory=list)
    """Other rates at other times; of two periods the first counts."""

    def at(self, now: datetime) -> "Port":
        """Return the port with the rate of a moment."""
        period = next((period for period in self.schedule if period.holds(now)), None)
        return self if period is None else self.model_copy(update={"capacity_bps": period.capacity_bps})

    @property
    def capacity(self) -> float:
        """Configured capacity in bytes/s; 0: none."""
        return 0.0 if self.capacity_bps == "auto" else self.capacity_bps / 8

    @property
    def reflects(self) -> bool:
        """Return True when packets may leave through the port that they came from."""
        return self.role == "station" and not self.isolated

    @property
    def roams(self) -> bool:
        """Return True when stations come and go; a port that sends packets back to its stations is a radio."""
        return self.role == "station" and (self.roaming or not self.isolated)


class Gate(Model):
    """A FIFO that, once full, takes packets again only when a whole batch fits."""

    buffer: Annotated[int, Field(ge=1, le=1_000_000)]
    batch: Annotated[int, Field(ge=1, le=1_000_000)]

    @model_validator(mode="after")
    def _batch_fits(self) -> "Gate":
        if self.batch > self.buffer:
            raise ValueError(f"batch {self.batch} is larger than buffer {self.buffer}: the gate would never open")
        return self


class Features(Model):
    """Functions of the access point in addition to switching; with all off it is a plain learning switch."""

    ack_priority: bool = True
    ack_filter: bool = True
    """A pure ACK that a newer one supersedes does not leave through an uplink; takes effect with `ack_priority`."""
    sparse: bool = True
    ncr: bool = True
    gate: dict[Annotated[PortNumber, Strict(False)], Gate] | None = None
    """By egress port; needs a port whose queue holds `buffer` packets."""


def _own_parameters() -> dict[str, Any]:
    """JSON schema of the parameters that laws have of their own."""
    return {
        "properties": {
            name: {
                "type": "number", "default": one.default, "minimum": one.least, "maximum": one.most,
                "description": f"Of law {law.name}: {one.help}",
            }
            for law in LAWS.values()
            for name, one in law.parameters.items()
        },
    } if any(law.parameters for law in LAWS.values()) else {}  # fmt: skip


class Ncr(Model):
    """The law of feedback (NCR, section 3.2) and its parameters; `accesspoint.controller.law` has the effect of
    each and the reason for its default."""

    law: Annotated[str, Field(json_schema_extra=lambda schema: schema.update(enum=[*LAWS]))] = "pi2"
    """`paper`: as published, without averages and limits. `pi2`: this project's own. Others: the user's, see
    `accesspoint.controller.law`."""
    own: Annotated[dict[str, float], Field(json_schema_extra=lambda schema: schema.update(_own_parameters()))] = {}
    """Parameters that the law has of its own, by name."""
    alpha: Annotated[float, Field(ge=0, le=10)] = 0.03
    beta: Annotated[float, Field(ge=0, le=10)] = 0.03
    gamma: Annotated[float, Field(ge=0, le=10)] = 0.05
    kappa1: Annotated[float, Field(ge=0, le=100)] = 1.0
    kappa2: Annotated[float, Field(ge=0, le=100)] = 0.03
    flow_interval: Annotated[float, Field(ge=0.01, le=10)] = 0.1
    """T_n: seconds between two readings of one flow."""
    device_interval: Annotated[float, Field(ge=0.005, le=10)] = 0.01
    """T_m: seconds between two ticks of the loop."""
    queue_target_ms: Milliseconds = 15.0
    """q* as a delay."""
    queue_target_packets: Annotated[float, Field(ge=1, le=1000)] = 4.0
    """q* is never less than this many packets of 1514 bytes: a slow link needs them to stay busy."""
    smoothing_ms: Milliseconds = 500.0
    """Time constant of measured rates in the flow and class terms."""
    flow_limit: Ratio = 0.5
    class_limit: Ratio = 0.5
    device_limit: Ratio = 1.0
    """The most that each term may contribute."""
    isolate_stations: bool = True
    """Shares are first by station, then by flow: more connections get a station no more. False: by flow alone."""
    step_ms: Milliseconds = 1.0
    """ECT(1) packets that waited longer in a priority queue are marked as they leave (RFC 9332, native L4S AQM), but
    never within the time that two frames take on the link."""
    mark_only: bool = False
    """Never drop a packet that is not ECN-capable in place of a mark."""

    @field_validator("law")
    @classmethod
    def _is_there(cls, law: str) -> str:
        if law not in LAWS:
            raise ValueError("; ".join([f"there is no law '{law}', only {', '.join(LAWS)}", *BROKEN]))
        return law

    @model_validator(mode="after")
    def _own_are_of_the_law(self) -> "Ncr":
        parameters = LAWS[self.law].parameters
        for name, value in self.own.items():
            if name not in parameters:
                there = ", ".join(parameters) or "none"
                raise ValueError(f"law '{self.law}' has no parameter '{name}' of its own; it has {there}")
            if not parameters[name].least <= value <= parameters[name].most:
                bounds = f"{parameters[name].least:g} to {parameters[name].most:g}"
                raise ValueError(f"parameter '{name}' of law '{self.law}' is {value:g}; it goes from {bounds}")
        return self


class ClassWeights(Model):
    """W_d and W_u of section 3.2.2; downlink above uplink protects downloads."""

    downlink: Weight = 4.0
    uplink: Weight = 1.0
    other: Weight = 1.0
    """Weight of class 0 and of each of the operator's classes."""


class Sparse(Model):
    """Definition of a sparse flow: one within the largest of three rates, of which the third is 32 kbit/s."""

    fair_share: Ratio = 1.0
    """For flows of small packets: a part of the max-min share among the flows that leave through the port, as the loop
    sees them. If it is below the other two rates, these apply to small packets only. 0: other flows do not matter."""
    share: Ratio = 0.01
    """A share of the capacity of that port."""
    max_thinned: Annotated[float, Field(ge=0.0, le=0.9)] = 0.5
    """Part that a flow of small packets, not of TCP, may lose to keep its place ahead of the bulk; one that asks for so
    much that it would lose more waits with the bulk. 0: none loses anything."""


class QueueShares(Model):
    """Share of a port's capacity that each priority queue may use; packets above it join the bulk. New flows have a
    tenth."""

    acks: Ratio = 0.6
    sparse: Ratio = 0.2
    scalable: Ratio = 1.0
    """For scalable senders: marks, not this limit, hold them to their share. One that ignores them is in the bulk."""
    control: Ratio = 0.05
    """ARP, neighbour discovery, DHCP and the like."""


class Limits(Model):
    """Bounds on what is learned from one port, so that nobody fills a table for all."""

    stations_per_port: Annotated[int, Field(ge=1, le=4096)] = 2048
    flows_per_port: Annotated[int, Field(ge=1, le=65_536)] = 32_768
    moves: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Moves of one address between ports within 180 s; with more it goes back to the port where it was before. N and M
    of RFC 7432, section 15.1."""


class Group(Model):
    """Weight and limits of each station that names the group; those of `default` are for stations that name none."""

    weight: Weight = 1.0
    """Weight among the stations that share a full link."""
    limit_down_bps: Annotated[int, Field(ge=64_000, le=1_000_000_000_000)] | None = None
    limit_up_bps: Annotated[int, Field(ge=64_000, le=1_000_000_000_000)] | None = None
    """Limit of all flows of one station together, in bits/s; kept by feedback."""

    @property
    def is_regulated(self) -> bool:
        """Return True when a setting needs feedback."""
        return self.weight != 1 or self.limit_down_bps is not None or self.limit_up_bps is not None


class Station(Group):
    """Settings of a MAC address. Its own weight and limits come before those of its group."""

    name: StationName | None = None
    """Name for people; the switch does not know it."""
    locked_port: PortNumber | None = None
    """The port that it is behind for ever, as a gateway should be: behind another one it is not learned."""
    blocked: bool = False
    """True: packets to it are dropped; packets from it are not."""
    group: Name | None = None
    """Its group; null: `default`."""


class Rule(Model):
    """An entry of `classify`: a packet that matches belongs to `class_id`. A missing field matches everything."""

    name: Name
    priority: Annotated[int, Field(ge=1000, le=100_000)] = 1000
    """Rules stand above the built-in entries; of two that match, the higher priority decides."""
    direction: Literal["local", "uplink", "downlink"] | None = None
    flow_class: FlowClass | None = None
    dscp: Annotated[int, Field(ge=0, le=63)] | None = None
    protocol: Annotated[int, Field(ge=0, le=255)] | None = None
    src_port: PortRange | None = None
    dst_port: PortRange | None = None
    pure_ack: bool | None = None
    sparse: bool | None = None
    known_flow: bool | None = None
    class_id: ClassId
    queue: Annotated[int, Field(ge=0, le=7)] = 0
    regulated: bool = True

    @field_validator("src_port", "dst_port")
    @classmethod
    def _is_range(cls, ports: tuple[int, int] | None) -> tuple[int, int] | None:
        if ports is not None and not 0 <= ports[0] <= ports[1] <= 65535:
            raise ValueError(f"{list(ports)} is not a range of ports: [first, last] within 0..65535")
        return ports

    @property
    def match(self) -> tuple[object, ...]:
        """Key of the rule's entry in the switch."""
        ranges = [None if ports == (0, 65535) else ports for ports in (self.src_port, self.dst_port)]
        flags = self.pure_ack, self.sparse, self.known_flow
        return (self.priority, self.direction, self.flow_class, self.dscp, self.protocol, *ranges, *flags)


def duplicate_rules(rules: Iterable[Rule]) -> list[tuple[Rule, Rule]]:
    """Return pairs of rules that match the same packets with the same priority, the earlier one first."""
    first: dict[tuple[object, ...], Rule] = {}
    pairs = [(first.setdefault(rule.match, rule), rule) for rule in rules]
    return [(one, other) for one, other in pairs if one is not other]


class AccessPointConfig(Model):
    """One access point: a P4Runtime device and what to do with it."""

    name: Name
    enabled: bool = True
    """True: hold a session with the switch."""
    address: str = "127.0.0.1:9559"
    tls: P4RuntimeTls | None = None
    """Without it P4Runtime is in the clear, as suits loopback and a management network of its own."""
    device_id: Annotated[int, Field(ge=0, lt=2**64)] = 1
    election_id: Annotated[int, Field(ge=1, lt=2**64)] = 1
    """Highest is primary among several P4Runtime clients of one switch; agents of a fleet take theirs from a lease."""
    pipeline: Pipeline = Field(default_factory=Pipeline)
    ports: Annotated[list[Port], Field(min_length=1)]
    features: Features = Field(default_factory=Features)
    ncr: Ncr = Field(default_factory=Ncr)
    class_weights: ClassWeights = Field(default_factory=ClassWeights)
    sparse: Sparse = Field(default_factory=Sparse)
    queue_shares: QueueShares = Field(default_factory=QueueShares)
    rules: list[Rule] = Field(default_factory=list)
    limits: Limits = Field(default_factory=Limits)
    stations: Annotated[dict[StationAddress, Station], Field(max_length=4096)] = Field(default_factory=dict)
    """Settings by MAC address."""
    groups: Annotated[dict[Name, Group], Field(max_length=256)] = Field(default_factory=dict)
    """Groups of stations, as of guests; `default` has all stations that name none."""
    flow_idle_timeout: Annotated[float, Field(ge=1, le=86_400)] = 30.0
    station_idle_timeout: Annotated[float, Field(ge=1, le=1_000_000)] = 300.0
    """Seconds; IEEE 802.1Q, 8.8.3 recommends 300."""

    @field_validator("address")
    @classmethod
    def _is_address(cls, address: str) -> str:
        form = re.fullmatch(r"[^\s\x00-\x1f\x7f/]+:(\d{1,5})", address, re.ASCII)
        if form is None or not 0 < int(form[1]) < 65536:
            raise ValueError(f"{address!r} is not HOST:PORT")
        return address

    @model_validator(mode="after")
    def _is_consistent(self) -> "AccessPointConfig":
        if mistakes := [*self._mistakes()]:
            raise ValueError("; ".join(mistakes))
        return self

    def _mistakes(self) -> Iterator[str]:
        numbers = [port.port for port in self.ports]
        for number in dict.fromkeys(numbers):
            if numbers.count(number) > 1:
                yield f"duplicate port {number} in `ports`"
        for number, gate in (self.features.gate or {}).items():
            port = self.port(number)
            if port is None:
                yield f"`gate` names port {number}, which is not in `ports`"
            elif gate.buffer > port.queue_limit:
                yield f"`gate` of port {number}: buffer {gate.buffer} is above queue_limit {port.queue_limit}"
        for address, station in self.stations.items():
            if station.locked_port is not None and self.port(station.locked_port) is None:
                yield f"`stations` locks {address} to port {station.locked_port}, which is not in `ports`"
            if station.group not in (None, DEFAULT_GROUP, *self.groups):
                yield f"`stations` puts {address} into group {station.group}, which is not in `groups`"
        for part, settings in (("stations", self.stations), ("groups", self.groups)):
            for whose, said in settings.items():
                if said.is_regulated and not self.features.ncr:
                    yield (
                        f"`{part}` has a weight or a limit for {whose}, which are kept by feedback: turn the feature "
                        f"`ncr` on, or take them back"
                    )
        names = [rule.name for rule in self.rules]
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                yield f"duplicate rule {name} in `rules`"
        for one, other in duplicate_rules(self.rules):
            yield (
                f"rules {one.name} and {other.name} match the same packets with the same priority: give one of them "
                f"another `priority`"
            )

    @property
    def has_schedule(self) -> bool:
        """Return True when a rate depends on the time."""
        return any(port.schedule for port in self.ports)

    def at(self, now: datetime) -> "AccessPointConfig":
        """Return the configuration with the rates of a moment."""
        if not self.has_schedule:
            return self
        return self.model_copy(update={"ports": [port.at(now) for port in self.ports]})

    def station(self, address: str | None) -> Station:
        """Return a station's settings, completed by those of its group; None: one without settings of its own."""
        own = self.stations.get(address or "") or Station()
        group = self.groups.get(own.group or DEFAULT_GROUP)
        if group is None:
            return own
        update = {name: getattr(own, name) or getattr(group, name) for name in ("limit_down_bps", "limit_up_bps")}
        # A weight of 1 that was given is one of its own.
        return own.model_copy(update={**update, "weight": (own if "weight" in own.model_fields_set else group).weight})

    def direction(self, ingress_port: int, egress_port: int) -> str:
        """Return the direction that the stage `roles` gives a packet between two ports."""
        ingress, egress = self.port(ingress_port), self.port(egress_port)
        match (ingress and ingress.role, egress and egress.role):
            case ("station", "uplink"):
                return "uplink"
            case ("uplink", "station"):
                return "downlink"
        return "local"

    def files(self) -> dict[str, Path]:
        """Return the files that it names, by the field that does."""
        found = {"pipeline.p4info": self.pipeline.p4info, "pipeline.device_config": self.pipeline.device_config}
        if self.tls is not None:
            found |= {f"tls.{name}": getattr(self.tls, name) for name in ("ca", "cert", "key")}
        return found

    def port(self, number: int) -> Port | None:
        """Return the port with this number, or None."""
        return next((port for port in self.ports if port.port == number), None)


def migrate_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """Convert a database entry of an access point to the present form: settings of stations were separate fields, and
    some constants could be set."""
    entry = dict(entry)
    for part, fields in REMOVED_FIELDS.items():
        if part in entry:
            entry[part] = {field: value for field, value in entry[part].items() if field not in fields}
    before = {field: entry.pop(old) for old, field in FORMER_FIELDS.items() if old in entry}
    if before:
        stations = {address: dict(station) for address, station in entry.get("stations", {}).items()}
        for field, of in before.items():
            for address, value in of.items():
                stations.setdefault(address, {}).setdefault(field, value)
        entry["stations"] = stations
    return entry


FORMER_FIELDS = {"station_names": "name", "locked_stations": "locked_port"}
"""Former fields, and their names among a station's settings."""
REMOVED_FIELDS = {"sparse": ("min_rate_bps", "burst_bytes"), "queue_shares": ("new_flows",)}


class Config(Model):
    """The whole file."""

    access_points: Annotated[list[AccessPointConfig], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_differ(self) -> "Config":
        names = [ap.name for ap in self.access_points]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"duplicate access point {name}")
        return self


def missing_file(config: AccessPointConfig) -> str | None:
    """Return a file that it names and that cannot be found, in one line; None: all are there."""
    for place, path in config.files().items():
        try:
            if not path.is_file():
                return f"{place}: {path}: no such file"
        except OSError as error:
            return f"{place}: {path}: {(error.strerror or str(error)).lower()}"
    return None


def load(path: Path) -> Config:
    """Read and check a configuration file, and that the files it names exist; raises `ConfigError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: {(error.strerror or str(error)).lower()}: name a readable file after --config"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    try:
        config = Config.model_validate(strict_json.loads(text))
    except ValidationError as error:
        raise ConfigError(f"{path}: {one_line(error, Config)}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {strict_json.reason(error)}") from None
    for number, access_point in enumerate(config.access_points):
        if missing := missing_file(access_point):
            raise ConfigError(f"{path}: access_points.{number}.{missing}")
    return config
