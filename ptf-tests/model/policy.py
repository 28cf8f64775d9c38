# SPDX-License-Identifier: Apache-2.0
"""The policy of the access point, from docs/architecture.md, docs/naming.md and the decisions.

Written from those pages, not from the program, so that the two can disagree. A packet is decided alone: those before
it have left, so no ACK is superseded. What is a matter of chance (a feedback between never and always, a hold about to
end) raises `Chance`.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from accesspoint.ptf_tests.model.frames import SPANNING_TREE, Frame, read

STATION, UPLINK_ROLE, RADIO = 1, 2, 3
LOCAL, UPLINK, DOWNLINK = 0, 1, 2
GROUP_PORT = 511
BRIDGES = 0x0180C2000000  # to 0F (IEEE 802.1Q, 8.6.3)
GROUP_BIT = 1 << 40
ALWAYS = 65535
THINNED = 7  # what a flow asks for whose short datagrams are dropped where others are marked
NOT_ECT, ECT1, ECT0, CE = range(4)
HELD, FREE = 0.7, 1.3  # s after a packet above its meter: certainly held, certainly no longer (a second: 17, 21)

Vlan = tuple[int, int]
FlowKey = tuple[int, int, int, int, int, int, int, int, Vlan]  # version, addresses, protocol, ports; ingress, egress
ClassResult = tuple[int, int, int]  # class, queue, regulated
Result = TypeVar("Result")
Match = dict[str, tuple[int, int] | range]  # a value and its mask, or the ports of a range


class Chance(Exception):
    """A random decision: both outcomes are right."""


@dataclass(frozen=True)
class Flow:
    """scalable_feedback: for ECT(1). sparse: within its rate, always; else above it, always."""

    index: int
    generation: int
    flow_class: int
    feedback: int
    scalable_feedback: int
    sparse: bool


@dataclass(frozen=True)
class Lane:
    """The part of the bulk's queue that a station's entry names, and what it gets of the wire. number: 0 is none."""

    number: int
    weight: int
    rate: int


@dataclass(frozen=True)
class Rule(Generic[Result]):
    """The matching rule of the highest priority acts."""

    priority: int
    match: Match
    result: Result


@dataclass
class Entries:
    """Entries of the controller; feedback is by the packet's codepoint, too.

    sends_in, gets_in: lanes that entries of `learned` and `forward` name. port_feedback: with the depth from which on
    it is for bulk in a lane; None: it is for all.

    metered: queues whose meter lets nothing through. gate: whether it does so. step: ports with a threshold; a packet
    that is alone does not wait for it.
    """

    ingress_roles: dict[int, int] = field(default_factory=dict)
    egress_roles: dict[int, int] = field(default_factory=dict)
    punt: list[Rule[str]] = field(default_factory=list)
    learned: set[tuple[int, int, Vlan]] = field(default_factory=set)
    forward: dict[tuple[int, Vlan], int] = field(default_factory=dict)
    sends_in: dict[tuple[int, int, Vlan], Lane] = field(default_factory=dict)
    gets_in: dict[tuple[int, Vlan], Lane] = field(default_factory=dict)
    flows: dict[FlowKey, Flow] = field(default_factory=dict)
    classify: list[Rule[ClassResult]] = field(default_factory=list)
    class_feedback: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    port_feedback: dict[tuple[int, int], tuple[int, int | None]] = field(default_factory=dict)
    ack_priority: dict[int, tuple[int, int]] = field(default_factory=dict)
    gate: dict[int, bool] = field(default_factory=dict)
    step: set[int] = field(default_factory=set)
    metered: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class Memory:
    """demoted: when a packet of no flow was last above the meter of (port, queue).

    identified: owners of flow indices that have said ECT in their connection, and whether ECT(1) was the last of the
    two. above: when one was last above the meter of its queue.
    """

    demoted: dict[tuple[int, int], float] = field(default_factory=dict)
    identified: dict[tuple[int, int], bool] = field(default_factory=dict)
    above: dict[tuple[int, int], float] = field(default_factory=dict)


@dataclass
class Outcome:
    """sent: (port, frame). told: frames to the controller. counts: (counter, index) -> packets."""

    sent: list[tuple[int, bytes]] = field(default_factory=list)
    told: list[bytes] = field(default_factory=list)
    digest: tuple[str, tuple[int, ...]] | None = None
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    flow: FlowKey | None = None


def decide(data: bytes, port: int, flood: tuple[int, ...], entries: Entries, memory: Memory, now: float) -> Outcome:
    """Return the outcome of a frame that comes in through a port; `flood`: the ports of the access point."""
    frame, outcome = read(data), Outcome()
    punt = first_match(entries.punt, punt_facts(frame, port))
    if punt:
        outcome.told.append(data)
    if punt == "send_to_cpu" or (frame.dst & ~0xF == BRIDGES and frame.dst != SPANNING_TREE):
        return outcome

    target = entries.forward.get((frame.dst, frame.vlan))
    if not frame.src & GROUP_BIT and (frame.src, port, frame.vlan) not in entries.learned:
        outcome.digest = "source_digest_t", (frame.src, port, *frame.vlan)
    returns = entries.ingress_roles.get(port) == RADIO
    if target == port and not returns:
        return outcome
    if target is None and frame.eapol and not frame.dst & GROUP_BIT:  # decision 34
        return outcome

    flow = None
    if target is not None and frame.ip:
        key = flow_key(frame, port, target)
        flow = entries.flows.get(key)
        if flow:
            outcome.flow = key
        elif not outcome.digest:
            outcome.digest = f"flow_ipv{frame.ip}_digest_t", (*key[1:-1], *frame.vlan)

    egress = GROUP_PORT if target is None else target
    scalable = flow is not None and is_scalable(frame, flow, memory, now)
    class_id, asked, regulated = classify(frame, port, target, flow, scalable, entries)
    red = asked != 0 and (egress, asked) in entries.metered
    open_to_hold = asked != 0 and not flow and not frame.control
    demoted = red or (open_to_hold and is_held(memory.demoted.get((egress, asked)), now))
    sent, marked = data, False
    index = egress << 3 | class_id
    if (regulated or demoted) and not is_spared(frame, flow, memory):
        in_lane = (asked == 0 or demoted) and lane_of(frame, port, entries) != 0
        thinned = flow is not None and flow.flow_class == THINNED and frame.short_datagram
        ecn = NOT_ECT if thinned or not frame.ip else frame.ecn
        acts, mark_only = feedback(ecn, flow, egress, class_id, in_lane, entries)
        if acts and ecn != NOT_ECT:
            sent, marked = mark(data, frame)
        dropped = acts and ecn == NOT_ECT and not mark_only
    else:
        dropped = False

    # From here on nothing is a matter of chance: the packet has happened.
    if red and open_to_hold:
        memory.demoted[egress, asked] = now
    if flow and frame.tcp and frame.tcp.boundary:
        memory.identified.pop(owner(flow), None)
    if flow and frame.ecn in (ECT0, ECT1):
        memory.identified[owner(flow)] = frame.ecn == ECT1
    if flow and scalable and red:
        memory.above[owner(flow)] = now
    if marked:
        outcome.counts["marked", index] += 1
    if dropped or entries.gate.get(egress):
        outcome.counts["dropped" if dropped else "refused", index] += 1
        return outcome
    outcome.counts["arrived", index] += 1
    outcome.counts["queued", egress << 3 | (0 if demoted else asked)] += 1
    if target is None:
        outcome.counts["group_arrived", port] += 1
        outcome.sent = [(other, sent) for other in flood if other != port or returns]
        outcome.counts.update(("group_sent", other) for other, _ in outcome.sent)
        return outcome
    outcome.counts["sent", index] += 1
    outcome.sent = [(target, sent)]
    return outcome


def flow_key(frame: Frame, port: int, target: int) -> FlowKey:
    """A flow is one direction of a 5-tuple between two ports, in one VLAN."""
    return (frame.ip, *frame.addresses, frame.protocol, *frame.ports, port, target, frame.vlan)


def direction(port: int, target: int | None, entries: Entries) -> int:
    """Station to uplink is uplink, uplink to station is downlink; a radio is a station in this."""
    if target is None:
        return LOCAL
    ends = entries.ingress_roles.get(port), entries.egress_roles.get(target)
    one, other = (STATION if role == RADIO else role for role in ends)
    known: dict[tuple[int | None, int | None], int] = {
        (STATION, UPLINK_ROLE): UPLINK,
        (UPLINK_ROLE, STATION): DOWNLINK,
    }
    return known.get((one, other), LOCAL)


def punt_facts(frame: Frame, port: int) -> dict[str, int]:
    """Return the facts that `punt` matches on."""
    facts = {"ingress_port": port, "dst_addr": frame.dst, "ether_type": frame.ether_type}
    return facts | {"protocol": frame.protocol, "dst_port": frame.ports[1]}


def class_facts(
    frame: Frame, port: int, target: int | None, flow: Flow | None, scalable: bool, entries: Entries
) -> dict[str, int]:
    """Return the facts that `classify` matches on."""
    return {
        "direction": direction(port, target, entries),
        "flow_class": flow.flow_class if flow else 0,
        "dscp": frame.dscp,
        "protocol": frame.protocol,
        "src_port": frame.ports[0],
        "dst_port": frame.ports[1],
        "pure_ack": frame.tcp is not None and frame.tcp.pure_ack,
        "sparse": flow is not None and flow.sparse,
        "known_flow": flow is not None,
        "ip": frame.ip != 0,
        "control": frame.control,
        "scalable": scalable,
    }


def classify(
    frame: Frame, port: int, target: int | None, flow: Flow | None, scalable: bool, entries: Entries
) -> tuple[int, int, bool]:
    """Class, the queue that it asks for, regulated."""
    facts = class_facts(frame, port, target, flow, scalable, entries)
    class_id, queue, regulated = first_match(entries.classify, facts) or (0, 0, 1)
    if facts["pure_ack"] and target is not None and target in entries.ack_priority:
        queue, _ = entries.ack_priority[target]
    return class_id, queue, bool(regulated)


def first_match(rules: list[Rule[Result]], facts: dict[str, int]) -> Result | None:
    """The result of the matching rule of the highest priority."""
    matching = [rule for rule in rules if all(fits(facts[name], want) for name, want in rule.match.items())]
    return max(matching, key=lambda rule: rule.priority).result if matching else None


def fits(value: int, want: tuple[int, int] | range) -> bool:
    """Return whether a fact is within a range, or equal to a value where its mask has a bit."""
    return value in want if isinstance(want, range) else (value ^ want[0]) & want[1] == 0


def is_scalable(frame: Frame, flow: Flow, memory: Memory, now: float) -> bool:
    """ECT(1), or CE of who last sent that, unless all marks were in vain or the flow is held (decision 21)."""
    begins = frame.tcp is not None and frame.tcp.boundary
    identified = frame.ecn == ECT1 or (frame.ecn == CE and not begins and memory.identified.get(owner(flow), False))
    return identified and flow.scalable_feedback != ALWAYS and not is_held(memory.above.get(owner(flow)), now)


def is_spared(frame: Frame, flow: Flow | None, memory: Memory) -> bool:
    """Return whether no feedback acts: on who would not slow down, and on what an ECN-capable connection sends again
    (RFC 3168, 6.1.5)."""
    if frame.tcp is None:
        return False
    again = flow is not None and frame.ecn == NOT_ECT and owner(flow) in memory.identified
    return frame.tcp.spared or (again and not frame.tcp.boundary)


def owner(flow: Flow) -> tuple[int, int]:
    """The owner of a flow index."""
    return flow.index, flow.generation


def is_held(above: float | None, now: float) -> bool:
    """Return whether packets that are held together wait with the bulk: for a second after one of them was above the
    meter."""
    age = now - (float("-inf") if above is None else above)
    if HELD < age < FREE:
        raise Chance
    return age <= HELD


def lane_of(frame: Frame, port: int, entries: Entries) -> int:
    """Return the lane that the receiver's entry names, else that of the sender's (decision 45); 0: none."""
    named = entries.gets_in.get((frame.dst, frame.vlan)) or entries.sends_in.get((frame.src, port, frame.vlan))
    return named.number if named else 0


def feedback(
    ecn: int, flow: Flow | None, egress: int, class_id: int, in_lane: bool, entries: Entries
) -> tuple[bool, bool]:
    """Return whether feedback acts, from the sum of the flow's, port's and class's, and whether it may only mark.

    ecn: of the packet; of what is thinned that of what cannot be marked. in_lane: the packet waits in a lane, which is
    empty, as those before it have left.
    """
    of_class, mark_only = entries.class_feedback.get((egress, class_id, ecn), (0, 0))
    of_flow = 0 if flow is None else flow.scalable_feedback if ecn == ECT1 else flow.feedback
    of_port, depth = entries.port_feedback.get((egress, ecn), (0, None))
    total = of_flow + (0 if in_lane and depth else of_port) + of_class
    if 0 < total < ALWAYS:
        raise Chance
    return total >= ALWAYS, bool(mark_only)


def mark(data: bytes, frame: Frame) -> tuple[bytes, bool]:
    """CE where the packet is ECN-capable (RFC 3168), with the checksum of IPv4 kept as right as it was (RFC 1624)."""
    if not frame.ip or frame.ecn in (NOT_ECT, CE):
        return data, False
    marked, at = bytearray(data), frame.ip_at
    if frame.ip == 6:
        marked[at + 1] |= CE << 4
        return bytes(marked), True
    marked[at + 1] |= CE
    old, new, checksum = (
        int.from_bytes(word) for word in (data[at : at + 2], marked[at : at + 2], data[at + 10 : at + 12])
    )
    total = (~checksum & 0xFFFF) + (~old & 0xFFFF) + new  # equation 3, in one's complement
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    marked[at + 10 : at + 12] = (~total & 0xFFFF).to_bytes(2)
    return bytes(marked), True
