# SPDX-License-Identifier: Apache-2.0
"""The flows of one access point as the loop sees them: arrays with one place for each flow index. Pure."""

from typing import Any

import numpy as np
import numpy.typing as npt

from .board import FLOW
from .feedback import Floats, Rates, quantise
from .messages import FlowKind
from .program import FEEDBACK_MAX, FLOWS_SIZE

Numbers = npt.NDArray[np.int64]

METER_STEP = 4
"""A flow's sparse rate is written when it changed by one part in so many."""

SMALL_BURST = 576
"""Bytes of a small packet. A flow of these, on average, goes ahead within its fair share, and on a crowded port, where
a fair share is less than what counts as sparse in any case, only such packets go ahead: what a packet costs those
behind it is its time on the link. 576 is what every host takes (RFC 791)."""

SMALL_PACKET = 128
"""Bytes; an ACK with all options has 94 with its Ethernet header, over IPv6 114."""


class FlowTable:
    """Flows by flow index; `arrays` are those of a `Board`, or None for new ones."""

    def __init__(self, arrays: dict[str, npt.NDArray[Any]] | None = None) -> None:
        arrays = arrays or {name: np.zeros(FLOWS_SIZE, kind) for name, kind in FLOW.items()}
        self.packets, self.bytes = arrays["packets"], arrays["bytes"]
        self.rates = Rates(FLOWS_SIZE, arrays["rate"], arrays["moved"])
        self.feedback, self.weight = arrays["feedback"], arrays["weight"]
        self.class_id, self.active = arrays["class_id"], arrays["active"]
        self.pressure: Floats = np.zeros(FLOWS_SIZE)
        self.written = np.zeros(FLOWS_SIZE, np.int64)
        self.port = np.zeros(FLOWS_SIZE, np.int64)
        self.acknowledges = np.zeros(FLOWS_SIZE, bool)
        self._tcp = np.zeros(FLOWS_SIZE, bool)
        self._own_class = np.zeros(FLOWS_SIZE, np.uint8)
        self._classes = np.zeros((2, FLOWS_SIZE), np.uint8)
        self.sparse_rate: Floats = np.zeros(FLOWS_SIZE)
        """Bytes/s within which a flow is sparse."""
        self.crowded = np.zeros(FLOWS_SIZE, bool)
        """Whose packets are sparse only when they are small, too."""
        self.station = np.zeros(FLOWS_SIZE, np.int64)
        self._least_sparse_rate = np.zeros(FLOWS_SIZE)
        self._small = np.zeros(FLOWS_SIZE, bool)
        self._metered = np.zeros(FLOWS_SIZE)
        self._metered_crowded = np.zeros(FLOWS_SIZE, bool)
        """Sparse rate and burst in its entry."""

    def add(self, index: int, kind: FlowKind) -> None:
        """A flow takes a place; its weight stands there already."""
        self.rates.forget(index)
        self.packets[index] = self.bytes[index] = 0
        self.active[index] = self.acknowledges[index] = False
        self.feedback[index] = kind.written / FEEDBACK_MAX
        self.pressure[index] = self.feedback[index] ** 0.5
        self.port[index] = kind.egress_port
        self._tcp[index] = kind.tcp
        self._classes[:, index] = kind.data_class, kind.ack_class
        self._least_sparse_rate[index] = kind.sparse_rate
        self.sparse_rate[index] = self._metered[index] = kind.metered_rate
        self.crowded[index] = self._metered_crowded[index] = False
        self.station[index] = kind.station
        self.written[index] = kind.written
        self.set_class(index, kind.own_class)

    def set_class(self, index: int, own_class: int) -> None:
        """A flow asks for a class of its own; 0: for none."""
        self._own_class[index] = own_class
        self.class_id[index] = own_class or self._classes[int(self.acknowledges[index]), index]

    def take(self, at: Numbers, packets: Numbers, sizes: Numbers, now: float, tau: float) -> None:
        """New readings of the counters of these flows; `tau` as in `Rates`."""
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
        """1 for a flow that feedback holds back, 0 for ACKs and, when these pass ahead, sparse flows."""
        held = ~self.acknowledges[at]
        if sparse:
            held &= (self.rates.value[at] > self.sparse_rate[at]) | (self.crowded[at] & ~self._small[at])
        return held.astype(np.float64)

    def allow(self, at: Numbers, rates: Floats | None) -> None:
        """Those of these flows that send small packets are sparse within these rates in bytes/s, the others within
        their least one, where that is not more than these; None: all within their least one."""
        least = self._least_sparse_rate[at]
        self.crowded[at] = False if rates is None else rates < least
        self.sparse_rate[at] = least if rates is None else np.where(self._small[at], np.maximum(rates, least), least)

    def stop(self, at: Numbers) -> None:
        """These flows have no feedback any more."""
        self.pressure[at] = self.feedback[at] = 0.0

    def changed(self, at: Numbers, step: int) -> list[int]:
        """Those whose feedback differs from what is written by `step` of 65535 at least, or has become 0; and those
        whose sparse rate differs by one part of `METER_STEP`."""
        value, written = np.rint(self.feedback[at] * FEEDBACK_MAX), self.written[at]
        feedback = (np.abs(value - written) >= step) | ((value == 0) & (written > 0))
        metered = self._metered[at]
        meter = np.abs(self.sparse_rate[at] - metered) * METER_STEP > metered
        return at[feedback | meter | (self.crowded[at] != self._metered_crowded[at])].tolist()

    def meter(self, index: int) -> tuple[int, bool]:
        """The sparse rate of a flow in bytes/s, and whether only its small packets are sparse: what is written now."""
        self._metered[index] = rate = max(1, round(float(self.sparse_rate[index])))
        self._metered_crowded[index] = crowded = bool(self.crowded[index])
        return rate, crowded

    def value(self, index: int) -> int:
        """The 16 bits of a flow."""
        return quantise(float(self.feedback[index]))
