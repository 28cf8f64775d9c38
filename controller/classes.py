# SPDX-License-Identifier: Apache-2.0
"""`classify`: which class a packet belongs to, and which queue it waits in.

An ACK belongs to the traffic that it acknowledges: downlink data and the ACKs that go up for it are class downlink.
With the feature `sparse`, a flow within its sparse rate and a flow that is not known yet go ahead of the bulk and are
not regulated: neither can fill a queue, and a lost SYN costs a second. Rules of the operator stand above all that.
"""

from .config import CLASS_DOWNLINK, CLASS_UPLINK, AccessPointConfig, Rule
from .program import DIRECTIONS, QUEUE_BULK, QUEUE_NEW_FLOWS, QUEUE_SPARSE, Encodable, table_entry

CLASS_NONE = 0
CLASS_NAMES = {CLASS_NONE: "none", CLASS_DOWNLINK: "downlink", CLASS_UPLINK: "uplink"}

PRIORITY_BULK = 100
PRIORITY_AHEAD = 200


def class_of(direction: str, acknowledges: bool) -> int:
    """The built-in class of a packet."""
    if direction == "local":
        return CLASS_NONE
    return CLASS_DOWNLINK if (direction == "downlink") != acknowledges else CLASS_UPLINK


def class_ids(config: AccessPointConfig) -> list[int]:
    """Every class that a packet may get."""
    return sorted({CLASS_NONE, CLASS_DOWNLINK, CLASS_UPLINK, *(rule.class_id for rule in config.rules)})


def entities(config: AccessPointConfig) -> list[Encodable]:
    """The entries of `classify`."""
    wanted: list[Encodable] = []
    regulated = int(config.features.ncr)
    for direction, number in DIRECTIONS.items():
        for pure_ack in (0, 1):
            match: dict[str, object] = {"direction": number, "pure_ack": pure_ack}
            class_id = class_of(direction, bool(pure_ack))
            wanted.append(_entry(match, PRIORITY_BULK, class_id, QUEUE_BULK, regulated))
            if config.features.sparse:
                sparse = {**match, "sparse": 1, "known_flow": 1}
                wanted.append(_entry(sparse, PRIORITY_AHEAD, class_id, QUEUE_SPARSE, 0))
                unknown = {**match, "known_flow": 0}
                wanted.append(_entry(unknown, PRIORITY_AHEAD, class_id, QUEUE_NEW_FLOWS, 0))
    wanted.extend(_rule(rule) for rule in config.rules)
    return wanted


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
