# SPDX-License-Identifier: Apache-2.0
"""One flow: its key, its entry in the switch, and the note that the entry keeps for the next controller."""

import struct
import time

from finsy.proto import p4r

from ..config import AccessPointConfig
from .classes import class_of, ruled_class
from .flow_table import FlowKind, FlowTable
from .program import FlowKey

NOTE = struct.Struct(">fd")
"""A flow's metadata: weight, since when it is known."""
PROTOCOL_TCP = 6


class Flow:
    """One direction of a connection; what changes with every tick is in the loop's table."""

    __slots__ = (
        "_table",
        "change",
        "confirmed",
        "direction",
        "flow_class",
        "generation",
        "index",
        "key",
        "match",
        "reading",
        "since",
        "thinned",
        "written",
        "written_scalable",
    )

    def __init__(
        self, key: FlowKey, taken: tuple[int, int], direction: str, entity: p4r.Entity, table: FlowTable
    ) -> None:
        self.key = key
        self.index, self.generation = taken
        self.direction = direction
        self.flow_class = 0
        """Class that the operator lets it ask for, a key of `classify`; 0: none."""
        self.since = time.time()
        self.confirmed = 0.0
        """Time at which the switch last had its entry, by the event loop's clock."""
        # A MODIFY without `meter_config` would reset the meter (P4Runtime specification, section 9.1.9).
        self.change = p4r.Update(type=p4r.Update.MODIFY, entity=entity)
        """Its entry, as it was written last."""
        entry = entity.table_entry
        self.match = (entry.table_id, *[field.exact.value for field in entry.match])
        """Key by which the switch names it in an answer."""
        asked = p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=entry.table_id, match=entry.match))
        self.reading = p4r.ReadRequest(entities=[p4r.Entity(direct_counter_entry=asked)]).SerializeToString()
        """Part of a ReadRequest that asks for its counter."""
        self.thinned = False
        """True when its entry asked to be thinned as the session began."""
        self.written = self.written_scalable = 0
        """The feedback in its entry when the session began, as 16 bits, and that for scalable senders."""
        self._table = table
        self.weight = 1.0
        self.note()

    def note(self) -> None:
        """Keep in the entry what its key and action do not say: the next controller finds it there."""
        self.change.entity.table_entry.metadata = NOTE.pack(self.weight, self.since)

    @property
    def weight(self) -> float:
        """w_i: what the flow is worth among those of its class."""
        return float(self._table.weight[self.index])

    @weight.setter
    def weight(self, weight: float) -> None:
        self._table.weight[self.index] = weight

    @property
    def station(self) -> int:
        """A number of its station's address; of this process alone, so that nobody makes up an address with the number
        of another one's."""
        return hash(self.key.dst_addr if self.direction == "downlink" else self.key.src_addr)

    def kind(self, config: AccessPointConfig) -> FlowKind:
        """Return the properties of the flow that the loop needs."""
        meter = self.change.entity.table_entry.meter_config
        return FlowKind(
            egress_port=self.key.egress_port,
            tcp=self.key.protocol == PROTOCOL_TCP,
            own_class=ruled_class(config, self.flow_class),
            thinned=self.thinned,
            data_class=class_of(self.direction, False),
            ack_class=class_of(self.direction, True),
            sparse_rate=meter.cir,
            metered_rate=meter.cir,
            station=self.station,
            written=self.written,
            written_scalable=self.written_scalable,
        )
