# SPDX-License-Identifier: Apache-2.0
"""Entries that follow from the configuration: what should be in the switch, and the updates that bring it there.

The managers `ports`, `classes` and `queue_meters` return the wanted finsy entities; `EntrySet` remembers what is
there and writes only the difference, so that a change at run time touches nothing else. A switch that was under control
before is read first (`adopt`).
"""

from collections.abc import Iterable

from finsy.proto import p4r, rpc_code

from .connection import Connection
from .program import Encodable, Program, canonical
from .transport import RpcError

ENTRIES_PER_WRITE = 64
GONE = p4r.Update.DELETE, rpc_code.NOT_FOUND
INSTEAD: dict[tuple[int, int], p4r.Update.Type.ValueType] = {
    (p4r.Update.INSERT, rpc_code.ALREADY_EXISTS): p4r.Update.MODIFY,
    (p4r.Update.MODIFY, rpc_code.NOT_FOUND): p4r.Update.INSERT,
}
"""The update that does what one was for, by its type and the code of its refusal."""


class EntrySet:
    """The entities that one access point owes to its configuration."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._installed: dict[bytes, p4r.Entity] = {}

    def forget(self) -> None:
        """Forget everything: the pipeline was pushed again, and nothing is installed."""
        self._installed.clear()

    def adopt(self, entities: Iterable[p4r.Entity]) -> None:
        """Take these entities of the switch as installed; the next `sync` deletes those that are not wanted."""
        self._installed.update((identity(entity), entity) for entity in entities)

    def updates(self, wanted: Iterable[Encodable]) -> list[p4r.Update]:
        """Return the updates after which `wanted` is installed, and nothing else."""
        encoded = (item.encode(self._program.schema) for item in wanted)
        after = {identity(entity): entity for entity in encoded}
        updates = [
            p4r.Update(type=p4r.Update.DELETE, entity=entity)
            for key, entity in self._installed.items()
            if key not in after and not _is_cell(entity)
        ]
        for key, entity in self._installed.items():
            if key not in after and entity.meter_entry.HasField("config"):
                # A cell cannot be deleted: one of a port that was removed lets everything pass again.
                cell = p4r.MeterEntry(meter_id=entity.meter_entry.meter_id, index=entity.meter_entry.index)
                updates.append(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(meter_entry=cell)))
        for key, entity in after.items():
            before = self._installed.get(key)
            if before is None and not _is_cell(entity):
                updates.append(p4r.Update(type=p4r.Update.INSERT, entity=entity))
            elif before is None or essence(before) != essence(entity):
                updates.append(p4r.Update(type=p4r.Update.MODIFY, entity=entity))
        return updates

    async def sync(self, connection: Connection, wanted: Iterable[Encodable]) -> None:
        """Write the difference; raises `RpcError`, and what was done of it is known."""
        updates = self.updates(wanted)
        for start in range(0, len(updates), ENTRIES_PER_WRITE):
            await self._write(connection, updates[start : start + ENTRIES_PER_WRITE])

    async def _write(self, connection: Connection, updates: list[p4r.Update]) -> None:
        """Write; what the switch has, or lacks, although it did not let us read it is changed, or inserted, instead."""
        refused = None
        try:
            await connection.write(updates)
        except RpcError as error:
            if not error.parts:
                raise
            refused = error
        otherwise: list[p4r.Update] = []
        left = dict(refused.parts) if refused else {}
        for number, update in enumerate(updates):
            code = left[number].canonical_code if number in left else None
            instead = INSTEAD.get((update.type, code)) if code and not _is_cell(update.entity) else None
            if code is None or (update.type, code) == GONE:
                self._note(update)
            elif instead is None:
                continue
            else:
                otherwise.append(p4r.Update(type=instead, entity=update.entity))
            left.pop(number, None)
        if otherwise:
            await connection.write(otherwise)
            for update in otherwise:
                self._note(update)
        if refused and left:
            raise refused

    def _note(self, update: p4r.Update) -> None:
        """Note an update that the switch has done."""
        if update.type == p4r.Update.DELETE:
            self._installed.pop(identity(update.entity), None)
        else:
            self._installed[identity(update.entity)] = update.entity


def everything(program: Program, wanted: Iterable[Encodable]) -> list[p4r.Entity]:
    """Return the entities to read for everything that a controller writes; of cells, only those in `wanted`."""
    tables, engine = program.schema.tables, p4r.PacketReplicationEngineEntry
    entries = [p4r.TableEntry(table_id=tables[name].id) for name in program.tables]
    for entry in entries:
        if entry.table_id in program.flow_versions:
            entry.meter_config.SetInParent()
    kinds = (
        engine(multicast_group_entry=p4r.MulticastGroupEntry()),
        engine(clone_session_entry=p4r.CloneSessionEntry()),
    )
    cells = [entity.meter_entry for entity in (item.encode(program.schema) for item in wanted) if _is_cell(entity)]
    return [
        *(p4r.Entity(table_entry=entry) for entry in entries),
        *(p4r.Entity(packet_replication_engine_entry=kind) for kind in kinds),
        *(p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=number)) for number in program.digest_names),
        *(p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=cell.meter_id, index=cell.index)) for cell in cells),
    ]


def essence(entity: p4r.Entity) -> p4r.Entity:
    """Return an entity as it is compared: canonical values, one order, without what the switch adds."""
    made = p4r.Entity()
    match entity.WhichOneof("entity"):
        case "table_entry":
            entry, to = entity.table_entry, made.table_entry
            to.table_id, to.priority, to.metadata = entry.table_id, entry.priority, entry.metadata
            to.match.extend(sorted(entry.match, key=lambda field: field.field_id))
            for field in to.match:
                part = getattr(field, field.WhichOneof("field_match_type"))
                for name in ("value", "mask", "low", "high"):
                    if hasattr(part, name):
                        setattr(part, name, canonical(getattr(part, name)))
            action = to.action.action
            action.action_id = entry.action.action.action_id
            action.params.extend(sorted(entry.action.action.params, key=lambda param: param.param_id))
            for param in action.params:
                param.value = canonical(param.value)
        case "packet_replication_engine_entry":
            made.CopyFrom(entity)
            engine = made.packet_replication_engine_entry
            is_group = engine.HasField("multicast_group_entry")
            replicas = (engine.multicast_group_entry if is_group else engine.clone_session_entry).replicas
            ports = sorted((replica_port(replica), replica.instance) for replica in replicas)
            del replicas[:]
            for port, instance in ports:
                replicas.add(port=canonical(port), instance=instance)
        case "meter_entry":
            made.meter_entry.meter_id = entity.meter_entry.meter_id
            made.meter_entry.index.CopyFrom(entity.meter_entry.index)
            made.meter_entry.config.CopyFrom(entity.meter_entry.config)
        case _:
            made.CopyFrom(entity)
    return made


def replica_port(replica: p4r.Replica) -> int:
    """Return the port of a replica, in either of the two ways to say it."""
    return int.from_bytes(replica.port) if replica.WhichOneof("port_kind") == "port" else replica.egress_port


def _is_cell(entity: p4r.Entity) -> bool:
    """Return True for a cell of an array: it always exists, and is only modified."""
    return bool(entity.WhichOneof("entity") == "meter_entry")


def identity(entity: p4r.Entity) -> bytes:
    """Return the key by which the switch identifies an entity: its fields without the values."""
    kind, entity = entity.WhichOneof("entity"), essence(entity)
    key = p4r.Entity()
    match kind:
        case "table_entry":
            key.table_entry.table_id = entity.table_entry.table_id
            key.table_entry.match.extend(entity.table_entry.match)
            key.table_entry.priority = entity.table_entry.priority
        case "meter_entry":
            key.meter_entry.meter_id = entity.meter_entry.meter_id
            key.meter_entry.index.CopyFrom(entity.meter_entry.index)
        case "digest_entry":
            key.digest_entry.digest_id = entity.digest_entry.digest_id
        case "packet_replication_engine_entry":
            engine = entity.packet_replication_engine_entry
            target = key.packet_replication_engine_entry
            if engine.HasField("multicast_group_entry"):
                target.multicast_group_entry.multicast_group_id = engine.multicast_group_entry.multicast_group_id
            else:
                target.clone_session_entry.session_id = engine.clone_session_entry.session_id
        case _:
            raise ValueError(f"no entity of the configuration: {kind}")
    return key.SerializeToString(deterministic=True)
