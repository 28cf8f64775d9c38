# SPDX-License-Identifier: Apache-2.0
"""`classify`: class and queue of each packet.

An ACK belongs to the traffic that it acknowledges: downlink data and the ACKs that go up for it are class downlink.
With the feature `sparse`, a flow within its sparse rate, a flow that is not known yet and the network's control traffic
(`control`) go ahead of the bulk and are not regulated: none can fill a queue, and a lost SYN costs a second. A flow of
small packets that asks for somewhat more than its fair share goes ahead as well, and its own feedback drops what is
above (`FlowTable.thin`). Traffic that is neither IP nor control is opaque: its flows cannot be distinguished, so all of
it waits with the bulk, in order, and is regulated as one. Scalable senders (RFC 9331), where the law of feedback marks
them by their own measure, have a queue between these and the bulk; they are regulated as the bulk is. Rules of the
operator stand above all that.
"""

from ..config import CLASS_DOWNLINK, CLASS_UPLINK, AccessPointConfig, Port, Rule
from ..law import chosen
from .program import (
    DIRECTIONS,
    FLOW_CLASS_THINNED,
    QUEUE_BULK,
    QUEUE_CONTROL,
    QUEUE_NEW_FLOWS,
    QUEUE_SCALABLE,
    QUEUE_SPARSE,
    QUEUE_THINNED,
    Encodable,
    Program,
    table_entry,
)
from .queue_estimate import FULL_FRAME

CLASS_NONE = 0
CLASS_NAMES = {CLASS_NONE: "none", CLASS_DOWNLINK: "downlink", CLASS_UPLINK: "uplink"}

PRIORITY_BULK = 100
PRIORITY_SCALABLE = 150
PRIORITY_AHEAD = 200
PRIORITY_THINNED = 250
PRIORITY_CONTROL = 300

STEP_FRAMES = 2
"""Frames that a packet may wait for: the one that is being sent, of any flow, and one of its own kind (`Th_len` of
RFC 9332, appendix A.1)."""


def class_of(direction: str, acknowledges: bool) -> int:
    """Return the built-in class of a packet."""
    if direction == "local":
        return CLASS_NONE
    return CLASS_DOWNLINK if (direction == "downlink") != acknowledges else CLASS_UPLINK


def class_ids(config: AccessPointConfig) -> list[int]:
    """Return every class that a packet may get."""
    return sorted({CLASS_NONE, CLASS_DOWNLINK, CLASS_UPLINK, *(rule.class_id for rule in config.rules)})


def ruled_class(config: AccessPointConfig, flow_class: int) -> int:
    """Return the class that the rules give a flow of `flow_class`, as the data plane does: the highest rule counts.

    0: no rule names it, or it asks for none.
    """
    named = [rule for rule in config.rules if rule.flow_class == flow_class] if flow_class else []
    return max(named, key=lambda rule: rule.priority).class_id if named else CLASS_NONE


def entities(config: AccessPointConfig, program: Program) -> list[Encodable]:
    """Return the entries of `classify` and `step`."""
    wanted: list[Encodable] = []
    has_scalable = (
        program.has_scalable_queue and config.features.ncr and chosen(config.ncr.law, config.ncr.own).scalable_queue
    )
    regulated = int(config.features.ncr)
    for direction, number in DIRECTIONS.items():
        for pure_ack in (0, 1):
            match: dict[str, object] = {"direction": number, "pure_ack": pure_ack}
            class_id = class_of(direction, bool(pure_ack))
            wanted.append(_entry(match, PRIORITY_BULK, class_id, QUEUE_BULK, regulated))
            if has_scalable:
                wanted.append(_entry({**match, "scalable": 1}, PRIORITY_SCALABLE, class_id, QUEUE_SCALABLE, regulated))
            if config.features.sparse:
                sparse = {**match, "sparse": 1, "known_flow": 1}
                wanted.append(_entry(sparse, PRIORITY_AHEAD, class_id, QUEUE_SPARSE, 0))
                unknown = {**match, "known_flow": 0, "ip": 1}
                wanted.append(_entry(unknown, PRIORITY_AHEAD, class_id, QUEUE_NEW_FLOWS, 0))
                thinned = {**match, "flow_class": FLOW_CLASS_THINNED, "known_flow": 1}
                wanted.append(_entry(thinned, PRIORITY_THINNED, class_id, QUEUE_THINNED, regulated))
        if config.features.sparse:
            control: dict[str, object] = {"direction": number, "control": 1}
            wanted.append(_entry(control, PRIORITY_CONTROL, class_of(direction, False), QUEUE_CONTROL, 0))
    wanted.extend(_rule(rule) for rule in config.rules)
    if has_scalable:
        wanted.extend(_step(config.ncr.step_ms, port) for port in config.ports if port.capacity)
    return wanted


def _step(milliseconds: float, port: Port) -> Encodable:
    """Return the entry with the delay above which the data plane marks; a port of unknown capacity has none."""
    threshold = max(milliseconds / 1000, STEP_FRAMES * FULL_FRAME / port.capacity)
    return table_entry("step", {"egress_port": port.port}, "mark_above", threshold=round(threshold * 1e6))


def _rule(rule: Rule) -> Encodable:
    match: dict[str, object] = {}
    if rule.direction is not None:
        match["direction"] = DIRECTIONS[rule.direction]
    for name in ("flow_class", "dscp", "protocol"):
        value = getattr(rule, name)
        if value is not None:
            match[name] = value
    for name in ("src_port", "dst_port"):
        value = getattr(rule, name)
        if value is not None:
            match[name] = f"{value[0]}...{value[1]}"
    for name in ("pure_ack", "sparse", "known_flow"):
        value = getattr(rule, name)
        if value is not None:
            match[name] = int(value)
    return _entry(match, rule.priority, rule.class_id, rule.queue, int(rule.regulated))


def _entry(match: dict[str, object], priority: int, class_id: int, queue: int, regulated: int) -> Encodable:
    return table_entry("classify", match, "set_class", priority, class_id=class_id, queue=queue, regulated=regulated)
