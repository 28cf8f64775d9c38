# SPDX-License-Identifier: Apache-2.0
"""What the loop's process and the rest of the controller say to each other: pickled tuples behind their length.

This module is never compiled: one side may be (`compiled`), and both must know the same classes.
"""

import pickle
from dataclasses import dataclass
from typing import Any

LENGTH_BYTES = 4

Key = tuple[int, int | None, int]
"""A port, or a port and a class; what the ECN field of its packets says."""


@dataclass(frozen=True, slots=True)
class Session:
    """What one session's ticks need to know, made by the process that holds the session."""

    family: int
    address: Any
    authority: str
    device_id: int
    election_id: int
    counters: dict[str, int]
    """The ids of `VOLUMES` and `GROUP`."""
    updates: dict[Key, bytes]
    """The serialised update of each feedback entry of ports and classes."""
    written: dict[Key, tuple[int, bool]]
    """Which of these entries there are: feedback as 16 bits, and whether it only marks."""
    meters: dict[tuple[int, int], bytes]
    """The serialised update of each port's and queue's meter, with what it has from the configuration."""


@dataclass(frozen=True, slots=True)
class FlowKind:
    """What is known of a flow from the start."""

    egress_port: int
    tcp: bool
    own_class: int
    """The class that the operator asks for, or 0."""
    thinned: bool
    """Whether its entry asks for the class of flows that go ahead and are thinned."""
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


@dataclass(frozen=True, slots=True, eq=False)
class NewFlow:
    """A flow whose entry is in the switch."""

    index: int
    key: tuple[bytes, ...]
    """The match fields, as the switch gives them back."""
    reading: bytes
    """Part of a ReadRequest that asks for the counter."""
    named: bytes
    """How the switch begins the counter that it answers with, when it names the entry as it was asked."""
    change: bytes
    """Part of a WriteRequest that modifies the entry."""
    kind: FlowKind


def packed(message: tuple[Any, ...]) -> bytes:
    """A message as it goes over the socket."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(LENGTH_BYTES) + body
