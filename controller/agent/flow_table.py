# SPDX-License-Identifier: Apache-2.0
"""The flows of one access point as the loop sees them: arrays with one place for each flow index. Pure."""

from dataclasses import dataclass

import numpy as np

from ..config import AccessPointConfig
from ..law.base import Law
from ..law.shares import Floats, Numbers
from ..observation import NOTHING_USED, UsageObservation
from .feedback import Rates, quantise
from .program import FEEDBACK_MAX, FLOW_CLASS_THINNED, FLOWS_SIZE

SLOTS = 8193
"""Places for stations that are known or set something for; one of them stands for nobody."""
NOBODYS = 0
UP, DOWN = 0, 1

METER_STEP = 4
"""A flow's sparse rate is written when it changed by one part in so many."""

MIN_SPARSE_BPS = 32_000
"""Rate within which a flow is sparse on any link, bit/s."""
SPARSE_BURST = 3_028
"""Bytes that a sparse flow may send at once: two full frames."""
SMALL_BURST = 576
"""Bytes of a small packet. A flow of these, on average, goes ahead within its fair share, and on a crowded port, where
a fair share is less than what counts as sparse in any case, only such packets go ahead: what a packet costs those
behind it is its time on the link. 576 is what every host takes (RFC 791)."""

HELD_ABOVE = 1.2
"""A station's limit that is the rate of its queue, too, is held by drops from so many times the limit on: what a queue
sends at its rate arrives at that rate, once its senders have found it."""

THIN_BEGINS, THIN_ENDS, THIN_TO = 0.95, 0.9, 1.1
"""A flow is thinned from this part of its fair share on, as one packet above its meter would put it behind the bulk for
a second; until it asks for less than the second part, or would have to lose the third times what it may: so no flow
goes to and fro between two queues."""

SMALL_PACKET = 128
"""Bytes; an ACK with all options has 94 with its Ethernet header, over IPv6 114."""


def sparse_rate(config: AccessPointConfig, egress_port: int) -> float:
    """Return the bytes/s within which a flow that leaves through this port is sparse in any case."""
    port = config.port(egress_port)
    return float(round(max(config.sparse.share * port.capacity if port else 0.0, MIN_SPARSE_BPS / 8)))


@dataclass(frozen=True, slots=True)
class FlowKind:
    """Properties of a flow that are known from the start."""

    egress_port: int
    tcp: bool
    own_class: int
    """The class that the operator's rules give it, or 0."""
    thinned: bool
    """True when its entry asks for the class of flows that go ahead and are thinned."""
    data_class: int
    ack_class: int
    """The built-in class of its packets when they are data, and when they are ACKs."""
    sparse_rate: float
    """bytes/s within which it is sparse in any case"""
    metered_rate: float
    """The sparse rate in its entry, bytes/s."""
    station: int
    """A number of its station's address."""
    written: int
    written_scalable: int
    """The feedback in its entry, as 16 bits, and that for scalable senders."""


class FlowTable:
    """Flows by flow index."""

    def __init__(self) -> None:
        self.packets, self.bytes = np.zeros(FLOWS_SIZE, np.int64), np.zeros(FLOWS_SIZE, np.int64)
        """Counted since it was learned."""
        self.rates = Rates(FLOWS_SIZE)
        """Arrival rate of each flow, in bytes/s."""
        self.feedback, self.weight = np.zeros(FLOWS_SIZE), np.zeros(FLOWS_SIZE)
        self.class_id, self.active = np.zeros(FLOWS_SIZE, np.uint8), np.zeros(FLOWS_SIZE, bool)
        self.written = np.zeros(FLOWS_SIZE, np.int64)
        self._scalable = np.zeros(FLOWS_SIZE, np.int64)
        """Written feedback for scalable senders, as 16 bits."""
        self.port = np.zeros(FLOWS_SIZE, np.int64)
        self.acknowledges = np.zeros(FLOWS_SIZE, bool)
        self._tcp = np.zeros(FLOWS_SIZE, bool)
        self._own_class = np.zeros(FLOWS_SIZE, np.uint8)
        self._classes = np.zeros((2, FLOWS_SIZE), np.uint8)
        self.sparse_rate: Floats = np.zeros(FLOWS_SIZE)
        """Bytes/s within which a flow is sparse."""
        self.crowded = np.zeros(FLOWS_SIZE, bool)
        """Flows whose packets are sparse only when they are also small."""
        self.thinned = np.zeros(FLOWS_SIZE, bool)
        """Flows that go ahead, and lose what they ask for above their fair share."""
        self.station = np.zeros(FLOWS_SIZE, np.int64)
        """A number of each one's station."""
        self.held = np.zeros(FLOWS_SIZE)
        """Part of a flow that is lost because its station asks for more than its limit."""
        self.station_weight = np.ones(FLOWS_SIZE)
        self._slots = np.zeros((2, FLOWS_SIZE), np.int64)
        """Places of the sender's and of the receiver's station."""
        self._limits = np.zeros((2, SLOTS))
        """In bytes/s; 0: none."""
        self._queued = np.zeros(SLOTS, bool)
        """Stations whose limits are the rates of queues of their own."""
        self._used = np.zeros((2, SLOTS, 2), np.int64)
        """Packets and bytes of each station, up and down."""
        self._least_sparse_rate = np.zeros(FLOWS_SIZE)
        self._small = np.zeros(FLOWS_SIZE, bool)
        self._metered = np.zeros(FLOWS_SIZE)
        self._metered_crowded = np.zeros(FLOWS_SIZE, bool)
        """Sparse rate and burst in its entry."""
        self._written_thinned = np.zeros(FLOWS_SIZE, bool)

    def add(self, index: int, kind: FlowKind, now: float = 0.0) -> None:
        """Add a flow; its weight is set already."""
        self.rates.forget(index, now)
        self.packets[index] = self.bytes[index] = 0
        self.active[index] = self.acknowledges[index] = False
        self.feedback[index] = kind.written / FEEDBACK_MAX
        self.port[index] = kind.egress_port
        self._tcp[index] = kind.tcp
        self._classes[:, index] = kind.data_class, kind.ack_class
        self._least_sparse_rate[index] = kind.sparse_rate
        self.sparse_rate[index] = self._metered[index] = kind.metered_rate
        self.crowded[index] = self._metered_crowded[index] = False
        self.thinned[index] = self._written_thinned[index] = kind.thinned
        self.station[index], self.station_weight[index] = kind.station, 1.0
        self.held[index] = 0.0
        self._slots[:, index] = NOBODYS
        self.written[index], self._scalable[index] = kind.written, kind.written_scalable
        self.set_class(index, kind.own_class)

    def set_sparse_rate(self, port: int, rate: float) -> None:
        """Set the bytes/s within which the flows that leave through a port are sparse in any case."""
        self._least_sparse_rate[self.port == port] = rate

    def set_class(self, index: int, own_class: int) -> None:
        """Set the class that the operator's rules give a flow; 0: none."""
        self._own_class[index] = own_class
        self.class_id[index] = own_class or self._classes[int(self.acknowledges[index]), index]

    def take(self, at: Numbers, packets: Numbers, sizes: Numbers, now: float, tau: float) -> None:
        """Take new readings of the counters of these flows; `tau` as in `Rates`."""
        more = np.stack((packets - self.packets[at], sizes - self.bytes[at]), axis=1)
        for way in (UP, DOWN):
            np.add.at(self._used[way], self._slots[way, at], more)
        self.packets[at], self.bytes[at] = packets, sizes
        self._small[at] = sizes <= SMALL_BURST * packets
        self.rates.update(at, sizes.astype(np.float64), now, tau)
        # A flow of small TCP packets looks like the ACKs of the other direction.
        acknowledges = self._tcp[at] & (sizes > 0) & (sizes < SMALL_PACKET * packets)
        changed = acknowledges != self.acknowledges[at]
        if changed.any():
            at, acknowledges = at[changed], acknowledges[changed]
            self.acknowledges[at] = acknowledges
            own = self._own_class[at]
            self.class_id[at] = np.where(own > 0, own, self._classes[acknowledges.astype(np.int64), at])

    def elastic(self, at: Numbers, sparse: bool) -> Floats:
        """Return 1 for a flow that feedback holds back, 0 for ACKs and, when these pass ahead, sparse flows."""
        held = ~self.acknowledges[at]
        if sparse:
            held &= (self.rates.value[at] > self.sparse_rate[at]) | (self.crowded[at] & ~self._small[at])
        return held.astype(np.float64)

    def is_regulated(self, index: int, sparse: bool) -> bool:
        """Return True when feedback reaches the packets of a flow; `sparse` as in `elastic`."""
        return bool(self.elastic(np.array([index]), sparse)[0]) or bool(self.thinned[index])

    def allow(self, at: Numbers, rates: Floats | None, busy: bool) -> None:
        """Set the rates in bytes/s within which these flows are sparse.

        Flows of small packets are sparse within `rates`. The others are sparse within their least rate, if that is at
        most the rate in `rates` and the port is not busy: a busy port is busy with such flows. None: all flows are
        sparse within their least rate."""
        least = self._least_sparse_rate[at]
        if rates is None:
            self.crowded[at], self.sparse_rate[at] = False, least
            return
        small = self._small[at]
        self.crowded[at] = (rates < least) | (~small & busy)
        self.sparse_rate[at] = np.where(small, np.maximum(rates, least), least)

    def thin(self, at: Numbers, fair: Floats, dropped: Floats, most: float) -> None:
        """Thin flows that send small packets and ask for more than their fair rates in bytes/s.

        They stay ahead of the bulk, and lose what is above; the terms of port and class take the part `dropped` of it.
        One that would have to lose more than the part `most` waits with the bulk instead.

        Nobody can tell whether the ACKs of QUIC or of a tunnel are ACKs, but they are as good when some are missing
        (RFC 3449, 5.2.1), and behind the bulk all would come late. The ACKs of TCP can be told: flows of TCP are left
        to marks.
        """
        asked, were = self.rates.value[at], self.thinned[at]
        lost = 1 - fair / np.maximum(asked, 1e-9)
        can = self._small[at] & ~self._tcp[at] & (self._own_class[at] == 0) & (asked > self._least_sparse_rate[at])
        within = np.minimum(fair, self._next_meter(at))
        begins = (asked >= THIN_BEGINS * within) & (lost <= most)
        stays = were & (asked >= THIN_ENDS * within) & (lost <= THIN_TO * most)
        self.thinned[at] = thinned = can & (begins | stays)
        self.feedback[at] = np.where(thinned, np.clip(lost - dropped, 0.0, most), self.feedback[at])

    def ask_ahead(self, at: Numbers) -> bool:
        """Return True when one of these flows goes ahead within its fair share, or could, and asks for more than its
        least sparse rate."""
        more = self.rates.value[at] > self._least_sparse_rate[at]
        return bool((self._small[at] & ~self.acknowledges[at] & more).any())

    def fair_sparse_rate(self, at: Numbers) -> float:
        """Return the bytes/s of the sparse queue that flows may use which go ahead within their fair share only.

        Flows within their least sparse rate do not count. ACKs of TCP and thinned flows have queues of their own.
        """
        fair = self._small[at] & ~self.acknowledges[at] & (self.sparse_rate[at] > self._least_sparse_rate[at])
        return float(self.sparse_rate[at][fair & ~self.thinned[at]].sum())

    def assign_stations(self, index: int, sender: int, receiver: int, station: int, weight: float) -> None:
        """Assign a flow to its stations: places of sender and receiver, and number and weight of its own station."""
        self._slots[:, index] = sender, receiver
        self.station[index], self.station_weight[index] = station, weight

    def set_limits(self, slot: int, down: float, up: float, queued: bool = False) -> None:
        """Limit all flows of a station together, in bytes/s; 0: no limit. `queued`: its own queues keep them."""
        if slot != NOBODYS:
            self._limits[DOWN, slot], self._limits[UP, slot] = down, up
            self._queued[slot] = queued

    @property
    def has_limits(self) -> bool:
        """Return True when a station has a limit."""
        return bool(self._limits.any())

    def clear(self, slots: Numbers) -> None:
        """Free these places for other stations."""
        self._used[:, slots] = 0
        self._limits[:, slots], self._queued[slots] = 0.0, False
        gone = np.zeros(SLOTS, bool)
        gone[slots] = True
        self._slots[gone[self._slots]] = NOBODYS

    def take_over(self, before: "FlowTable") -> None:
        """Take usage and limits of the same stations over from an earlier table."""
        self._used, self._limits, self._queued = before._used, before._limits, before._queued

    def station_rates(self) -> Floats:
        """Return the rates of all flows of each place together, up and down, in bytes/s."""
        return np.stack([np.bincount(self._slots[way], self.rates.value, SLOTS) for way in (UP, DOWN)])

    def usage(self, slot: int, rates: Floats | None = None) -> UsageObservation:
        """Return a station's usage and current rates; `rates` as from `station_rates`."""
        if slot == NOBODYS:
            return NOTHING_USED.copy()
        up, down = (self.station_rates() if rates is None else rates)[:, slot].tolist()
        (packets_up, bytes_up), (packets_down, bytes_down) = self._used[:, slot].tolist()
        return UsageObservation(
            packets_up=packets_up,
            bytes_up=bytes_up,
            packets_down=packets_down,
            bytes_down=bytes_down,
            rate_up_bps=8 * up,
            rate_down_bps=8 * down,
            limit_up_missed=False,
            limit_down_missed=False,
        )

    def demands(self) -> list[tuple[int, int, int, float, float]]:
        """Return what each station with a limit asks of each port: way, place and port, rate and limit in bytes/s."""
        found: list[tuple[int, int, int, float, float]] = []
        for way in (UP, DOWN) if self.has_limits else ():
            at = np.flatnonzero(self._limits[way, self._slots[way]])
            pairs, each = np.unique(self.port[at] * SLOTS + self._slots[way, at], return_inverse=True)
            ports, slots = np.divmod(pairs, SLOTS)
            rates, limits = np.bincount(each, self.rates.value[at]), self._limits[way, slots]
            found += zip([way] * pairs.size, *(one.tolist() for one in (slots, ports, rates, limits)), strict=True)
        return found

    def apply_limits(self, at: Numbers) -> None:
        """Hold flows to their station's limit: all flows of a station that asks for more lose the same part.

        A sender that answers to loss asks for less, and one that does not is cut to the limit. None of these flows
        goes ahead as sparse with more than its least sparse rate, past the limit of a queue."""
        held, has = np.zeros(at.size), np.zeros(at.size, bool)
        for way in (UP, DOWN):
            slots = self._slots[way, at]
            limits = self._limits[way, slots]
            if limits.any():
                asked = np.bincount(slots, self.rates.value[at], minlength=SLOTS)[slots]
                kept = np.where(self._queued[slots], HELD_ABOVE * limits, limits)
                above = 1 - kept / np.maximum(asked, 1e-9)
                held = np.maximum(held, np.where(limits > 0, np.clip(above, 0.0, 1.0), 0.0))
                has |= (limits > 0) & ((asked > limits) | self._queued[slots])
        self.held[at] = held
        if has.any():
            of = at[has]
            self.crowded[of], self.thinned[of] = True, False
            self.sparse_rate[of] = self._least_sparse_rate[of]

    def _terms(self, at: Numbers) -> Floats:
        """Return the feedback of these flows, with the parts of their stations' limits."""
        terms: Floats = np.minimum(1.0, self.feedback[at] + self.held[at])
        return terms

    def stop(self, at: Numbers) -> None:
        """Remove the feedback of these flows."""
        self.feedback[at] = self.held[at] = 0.0
        self.thinned[at] = False

    def changed(self, at: Numbers, law: Law, step: int, scalable_step: int) -> list[int]:
        """Return the flows whose entries must be written again.

        Their feedback differs from the written one by at least `step` of 65535, or that for scalable senders by
        `scalable_step`, or it has become 0; or their sparse rate differs by one part of `METER_STEP`."""
        terms = self._terms(at)
        value, written = np.rint(terms * FEEDBACK_MAX), self.written[at]
        scalable = np.rint(np.array([law.scalable(term) for term in terms.tolist()]) * FEEDBACK_MAX)
        feedback = (np.abs(value - written) >= step) | (np.abs(scalable - self._scalable[at]) >= scalable_step)
        feedback |= (value == 0) & (written > 0)
        meter = self._next_meter(at) != self._metered[at]
        kind = (self.crowded[at] != self._metered_crowded[at]) | (self.thinned[at] != self._written_thinned[at])
        return at[feedback | meter | kind].tolist()

    def _next_meter(self, at: Numbers) -> Floats:
        """Return the flows' sparse rates in bytes/s as their entries will have them after this tick."""
        rates, metered = self.sparse_rate[at], self._metered[at]
        return np.where(np.abs(rates - metered) * METER_STEP > metered, rates, metered)

    def meter(self, index: int) -> tuple[int, bool]:
        """Return the sparse rate of a flow in bytes/s, and whether only small packets are sparse, as written now."""
        self._metered[index] = rate = max(1, round(float(self.sparse_rate[index])))
        self._metered_crowded[index] = crowded = bool(self.crowded[index])
        return rate, crowded

    def entry_class(self, index: int, flow_class: int) -> int:
        """Return the class that a flow's entry asks for, as it is written now; `flow_class`: the operator's for it."""
        self._written_thinned[index] = thinned = bool(self.thinned[index])
        return FLOW_CLASS_THINNED if thinned else flow_class

    def values(self, index: int, law: Law) -> tuple[int, int]:
        """Return the feedback of a flow and that for scalable senders, 16 bits each, as they are written now."""
        term = min(1.0, float(self.feedback[index] + self.held[index]))
        self.written[index], self._scalable[index] = values = quantise(term), quantise(law.scalable(term))
        return values
