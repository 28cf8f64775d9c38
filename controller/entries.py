# SPDX-License-Identifier: Apache-2.0
"""Entries that follow from the configuration: what should be in the switch, and the updates that bring it there.

The managers `ports`, `classes` and `acks` say what they want as finsy entities; `EntrySet` remembers what is there and
writes only the difference, so that a change at run time touches nothing else.
"""

from collections.abc import Iterable

from finsy.proto import p4r

from .connection import Connection
from .program import Encodable, Program

ENTRIES_PER_WRITE = 64


class EntrySet:
    """The entities that one access point owes to its configuration."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._installed: dict[bytes, p4r.Entity] = {}

    def forget(self) -> None:
        """The pipeline was pushed anew: nothing is installed."""
        self._installed.clear()

    def updates(self, wanted: Iterable[Encodable]) -> list[p4r.Update]:
        """What must be written for `wanted` to be installed and nothing else."""
        after = {identity(entity): entity for entity in (item.encode(self._program.schema) for item in wanted)}
        updates = [
            p4r.Update(type=p4r.Update.DELETE, entity=entity)
            for key, entity in self._installed.items()
            if key not in after and not _is_cell(entity)
        ]
        for key, entity in after.items():
            before = self._installed.get(key)
            if before is None and not _is_cell(entity):
                updates.append(p4r.Update(type=p4r.Update.INSERT, entity=entity))
            elif before != entity:
                updates.append(p4r.Update(type=p4r.Update.MODIFY, entity=entity))
        return updates

    async def sync(self, connection: Connection, wanted: Iterable[Encodable]) -> None:
        """Write the difference; raises `finsy.P4ClientError`."""
        updates = self.updates(wanted)
        for start in range(0, len(updates), ENTRIES_PER_WRITE):
            part = updates[start : start + ENTRIES_PER_WRITE]
            await connection.write(part)
            for update in part:
                if update.type == p4r.Update.DELETE:
                    del self._installed[identity(update.entity)]
                else:
                    self._installed[identity(update.entity)] = update.entity


def _is_cell(entity: p4r.Entity) -> bool:
    """Whether this is a cell of an array: there already, and only ever modified."""
    return bool(entity.WhichOneof("entity") == "meter_entry")


def identity(entity: p4r.Entity) -> bytes:
    """What makes two entities the same object of the switch: the key without the values."""
    kind = entity.WhichOneof("entity")
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
