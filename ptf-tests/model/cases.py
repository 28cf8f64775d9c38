# SPDX-License-Identifier: Apache-2.0
"""Cases for program and model: entries, and frames that meet them, as Hypothesis strategies.

A case has a few conversations. Its frames are frames of these with a few changes, and its entries match these, so that
most entries are hit and most frames differ from a frame that hits in a single field.
"""

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from accesspoint.ptf_tests.model import frames
from accesspoint.ptf_tests.model.frames import ACK, FIN, PSH, RST, SYN, TCP, UDP, URG, read
from accesspoint.ptf_tests.model.policy import (
    ALWAYS,
    CE,
    GROUP_PORT,
    Entries,
    Flow,
    Lane,
    Match,
    Memory,
    Result,
    Rule,
    Vlan,
    class_facts,
    flow_key,
    is_scalable,
    punt_facts,
)

PORTS = (1, 2, 3)  # those without a slow link
HOST, GROUP, ALL = 0x020000000000, 0x01005E000009, 0xFFFFFFFFFFFF
UNKNOWN_HOST = 9
INDICES = 8  # flow indices of a case
TAGS: tuple[tuple[tuple[int, int], ...], ...] = (
    (),
    ((frames.CUSTOMER_TAG, 5),),
    ((frames.CUSTOMER_TAG, 0xE000),),
    ((frames.PROVIDER_TAG, 5), (frames.CUSTOMER_TAG, 6)),
    ((frames.CUSTOMER_TAG, 6), (frames.PROVIDER_TAG, 0x2005)),
    ((0x9100, 5), (frames.CUSTOMER_TAG, 6)),
    ((0x9200, 6),),
    ((frames.CUSTOMER_TAG, 5), (frames.CUSTOMER_TAG, 6), (frames.CUSTOMER_TAG, 7)),
)
ETHERNET = 14  # bytes of its header
MIN_FRAME = 20  # bytes; Linux drops a frame that ends before two bytes after its VLAN tag
PPP = {4: 0x0021, 6: 0x0057}
OTHER_TYPES = (0x88B5, 0x8847, 0x8870, 0x0100, frames.EAPOL, *frames.CONTROL)
PROTOCOLS = (
    *(TCP,) * 7,
    *(UDP,) * 3,
    *(frames.ICMPV6,) * 2,
    1,
    47,
    50,
    44,
    0,
)  # GRE, ESP, fragment and hop-by-hop headers
PORT_NUMBERS = (7, 1111, 2222, 65535, 0)
CONTROL_PORTS = (67, 68, 546, 547, frames.MDNS)
FLAGS = (ACK, ACK, ACK, ACK, ACK | 0x40, ACK | 0x80, ACK | PSH, ACK | URG, SYN, ACK | SYN, ACK | FIN, RST, ACK | RST, 0)
OPTIONS = (
    b"",
    b"",
    frames.TIMESTAMPS + bytes(8),
    b"\1\1\5\12" + bytes(8),
    b"\1" * 4,
    frames.TIMESTAMPS[2:] + bytes(10),
    *(b"\1" * size for size in range(8, 44, 4)),
)
NUMBERS = (1000, 2000, 3000, 4000, 3500, 1500, 2500, (1 << 30) + 3000, 0, (1 << 32) - 5, (1 << 30) + 1500, 1 << 31)


@dataclass(frozen=True)
class Conversation:
    """Fields that all frames of one kind between two hosts share. ether_type: of frames other than IP."""

    port: int
    src: int
    dst: int
    hosts: tuple[int, int]
    tags: tuple[tuple[int, int], ...]
    pppoe: bool
    version: int
    ether_type: int
    protocol: int
    ports: tuple[int, int]
    dscp: int


@dataclass(frozen=True)
class Variation:
    """Fields that differ from frame to frame. first: byte of the IP header; cut: bytes taken off; noise: bytes
    changed."""

    ecn: int
    flags: int
    reserved: int
    options: bytes
    number: int
    payload: int
    checksum: int
    first: int | None
    fragment: int
    lie: int
    pppoe: tuple[int, int]
    icmp: int
    cut: int
    noise: tuple[tuple[int, int], ...]
    times: int


@dataclass(frozen=True)
class Case:
    entries: Entries
    packets: tuple[tuple[int, bytes], ...]


def build(talk: Conversation, vary: Variation) -> bytes:
    """The frame."""
    words = [talk.dst.to_bytes(6), talk.src.to_bytes(6)]
    ether_type = frames.IPV4 if talk.version == 4 else frames.IPV6 if talk.version == 6 else talk.ether_type
    body = build_ip(talk, vary) if talk.version else bytes(30 + vary.payload)
    if talk.pppoe:
        head, protocol = vary.pppoe
        body = (
            head.to_bytes(2)
            + bytes([0, 7])
            + (len(body) + 2).to_bytes(2)
            + (protocol or PPP.get(talk.version, 0x29)).to_bytes(2)
            + body
        )
        ether_type = frames.PPPOE_SESSION
    for tag, control in talk.tags:
        words += [tag.to_bytes(2), control.to_bytes(2)]
    frame = bytearray(b"".join([*words, ether_type.to_bytes(2), body]))
    for at, byte in vary.noise:
        frame[min(ETHERNET + at, len(frame) - 1)] = byte
    return bytes(frame[: max(MIN_FRAME, len(frame) - vary.cut)])


def build_ip(talk: Conversation, vary: Variation) -> bytes:
    """An IP packet."""
    rest = bytes(index & 0xFF for index in range(vary.payload))
    ports = b"".join(number.to_bytes(2) for number in talk.ports)
    if talk.protocol == TCP:
        offset = (5 + len(vary.options) // 4) << 4 | vary.reserved
        rest = ports + bytes(4) + vary.number.to_bytes(4) + bytes([offset, vary.flags]) + bytes(6) + vary.options + rest
    elif talk.protocol == UDP:
        rest = ports + (8 + len(rest)).to_bytes(2) + bytes(2) + rest
    else:
        rest = bytes([vary.icmp]) + bytes(7) + rest
    length = len(rest) + vary.lie
    service = talk.dscp << 2 | vary.ecn
    one, other = talk.hosts
    if talk.version == 6:
        first = (6 if vary.first is None else vary.first >> 4) << 4 | service >> 4
        head = bytes([first, (service & 15) << 4, 0, 0]) + length.to_bytes(2) + bytes([talk.protocol, 64])
        return head + (0xFD << 120 | one).to_bytes(16) + (0xFD << 120 | other).to_bytes(16) + rest
    first = 0x45 if vary.first is None else vary.first
    options = bytes(4 * max(0, (first & 15) - 5)) if first >> 4 == 4 else b""
    head = bytes([first, service]) + (20 + len(options) + length).to_bytes(2) + bytes(2) + vary.fragment.to_bytes(2)
    head += bytes([64, talk.protocol]) + vary.checksum.to_bytes(2)
    return head + (10 << 24 | one).to_bytes(4) + (10 << 24 | other).to_bytes(4) + options + rest


def often(usual: object, *others: object, weight: int = 2) -> st.SearchStrategy:
    """The usual, and once in `weight` + 1 times one of the others."""
    return st.sampled_from((usual,) * (weight * len(others)) + others)


HOSTS = st.sampled_from(PORTS)
CONVERSATIONS = st.builds(
    Conversation,
    port=HOSTS,
    src=often(None, HOST + 1, HOST + 2, HOST + UNKNOWN_HOST, GROUP, weight=8),
    dst=often(
        None, HOST + 3, HOST + UNKNOWN_HOST, ALL, GROUP, 0x0180C2000000, 0x0180C200000F, 0x0180C2000010, weight=4
    ),
    hosts=st.tuples(HOSTS, HOSTS),
    tags=often(TAGS[0], *TAGS[1:], weight=1),
    pppoe=often(False, True, weight=5),
    version=st.sampled_from((4, 4, 4, 6, 6, 0, 0)),
    ether_type=st.sampled_from(OTHER_TYPES),
    protocol=st.sampled_from(PROTOCOLS),
    ports=st.one_of(
        st.tuples(st.sampled_from(PORT_NUMBERS), st.sampled_from(PORT_NUMBERS)),
        st.tuples(st.sampled_from(PORT_NUMBERS), st.sampled_from(PORT_NUMBERS)),
        st.sampled_from(sorted(frames.DHCP)),
        st.tuples(st.sampled_from(CONTROL_PORTS), st.sampled_from(CONTROL_PORTS)),
    ),
    dscp=st.sampled_from((0, 8, 46, 63)),
).map(
    # By default a host sends from its own port to the host behind the next.
    lambda talk: replace(talk, src=talk.src or HOST + talk.port, dst=talk.dst or HOST + talk.port % len(PORTS) + 1)
)
VARIATION = {
    "ecn": st.integers(0, 3),
    "flags": st.sampled_from(FLAGS),
    "reserved": often(0, 1, 2, 8),
    "options": st.sampled_from(OPTIONS),
    "number": st.sampled_from(NUMBERS),
    "payload": often(0, 1, 40, 200, weight=1),
    "checksum": st.one_of(st.sampled_from((0, 1, 2, 0xFFFE, 0xFFFF)), st.integers(0, 0xFFFF)),
    "first": often(None, 0x45, 0x46, 0x4F, 0x44, 0x55, 0x65, weight=8),
    "fragment": often(0, 0x4000, 0x2000, 0x0001, 0x1FFF, 0x8000, weight=6),
    "lie": often(0, 1, 20, 12, weight=8),
    "pppoe": often((0x1100, 0), (0x1200, 0), (0x11A7, 0), (0x1100, 0x8021), (0x1100, 0x7FFF), (0x1100, 0x0021)),
    "icmp": st.sampled_from((0, 128, 132, 133, 134, 135, 136, 137, 138)),
    "cut": often(0, 1, 2, 5, 9, 13, 17, 21, 25, 30, weight=8),
    "noise": st.one_of(
        *[st.just(())] * 7, st.lists(st.tuples(st.integers(0, 70), st.integers(0, 255)), max_size=4).map(tuple)
    ),
    "times": often(1, 17, weight=12),
}
# An ACK as they come one after the other, if the conversation is of TCP.
NOTHING = {name: st.just(0) for name in ("payload", "fragment", "lie", "cut")} | {
    "first": st.none(),
    "noise": st.just(()),
}
OF_ACKS = {
    "flags": often(ACK, ACK | 0x40),
    "reserved": often(0, 1, 8),
    "options": often(b"", frames.TIMESTAMPS + bytes(8)),
} | NOTHING
ACKS = st.builds(Variation, **(VARIATION | OF_ACKS))
VARIATIONS = st.one_of(st.builds(Variation, **VARIATION), ACKS)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Entries, and the frames that meet them."""
    talks = draw(st.lists(CONVERSATIONS, min_size=1, max_size=3))
    packets: list[tuple[int, bytes]] = []
    for _ in range(draw(st.integers(6, 16))):
        talk, vary = draw(st.sampled_from(talks)), draw(VARIATIONS)
        packets += [(talk.port, build(talk, vary))] * vary.times
    for talk in talks:
        if talk.version and talk.protocol == TCP:
            ack, told = draw(ACKS), draw(st.lists(st.sampled_from(NUMBERS[:8]), min_size=4, max_size=8))
            packets += [(talk.port, build(talk, replace(ack, number=number))) for number in told]
    return Case(draw(entries(packets)), tuple(packets))


@st.composite
def entries(draw: st.DrawFn, packets: list[tuple[int, bytes]]) -> Entries:
    """Entries about these frames."""
    seen = [(port, read(frame)) for port, frame in packets]
    vlans: list[Vlan] = sorted({frame.vlan for _, frame in seen})
    rarely, mostly = often(False, True, weight=3), often(True, False, weight=11)
    made = Entries()
    for port in PORTS:
        usual = 2 if port == PORTS[-1] else 1
        for roles in (made.ingress_roles, made.egress_roles):
            roles[port] = draw(often(usual, 0, 1, 2, 3))
        if draw(mostly):
            made.ack_priority[port] = draw(often(7, *range(7))), draw(often(1, 0, weight=3))
        if draw(often(True, False, weight=1)):
            made.gate[port] = draw(rarely)
        if draw(mostly):
            made.step.add(port)
        for ecn in range(CE):
            if draw(st.booleans()):
                made.port_feedback[port, ecn] = draw(OF_PORTS), draw(DEPTHS)
        for class_id in draw(st.sets(often(0, *range(1, 8)), max_size=2)):
            for ecn in draw(st.sets(st.integers(0, CE - 1))):
                made.class_feedback[port, class_id, ecn] = draw(FEEDBACK), draw(st.integers(0, 1))
        for vlan in vlans:
            if draw(mostly):
                made.learned.add((HOST + port, port, vlan))
                if draw(often(True, False)):
                    made.sends_in[HOST + port, port, vlan] = draw(LANES)
            if draw(mostly):
                made.forward[HOST + port, vlan] = draw(often(port, *PORTS, weight=8))
                if draw(st.booleans()):
                    made.gets_in[HOST + port, vlan] = draw(LANES)
    for place in draw(st.sets(st.tuples(st.sampled_from((*PORTS, GROUP_PORT)), st.integers(1, 7)), max_size=2)):
        if draw(rarely):
            made.metered.add(place)
    generation = draw(st.integers(1, 255))
    ways = [(frame, port, made.forward.get((frame.dst, frame.vlan))) for port, frame in seen]
    for found in sorted({flow_key(frame, port, to) for frame, port, to in ways if frame.ip and to})[:INDICES]:
        key: list[Any] = list(found)
        if draw(rarely):
            continue
        if not draw(mostly):  # a flow that the frame all but is of
            field = draw(st.integers(1, len(key) - 2))
            key[field] = key[field] ^ 1
        if tuple(key) not in made.flows:
            made.flows[tuple(key)] = Flow(
                len(made.flows), generation, draw(st.integers(0, 7)), draw(FEEDBACK), draw(FEEDBACK), not draw(rarely)
            )
    facts = []
    for frame, port, target in ways:
        flow = made.flows.get(flow_key(frame, port, target)) if target and frame.ip else None
        scalable = flow is not None and is_scalable(frame, flow, Memory(), 0)
        facts.append(class_facts(frame, port, target, flow, scalable, made))
    made.classify = draw(rules(facts, CLASSIFY_BITS, RESULTS, 6))
    if draw(st.booleans()):
        made.classify.append(Rule(101, {"control": (1, 1)}, draw(RESULTS)))
    punts = draw(rules([punt_facts(frame, port) for frame, port, _ in ways], PUNT_BITS, PUNTS, 2))
    made.punt = [rule for rule in punts if rule.match and draw(rarely)]
    return made


LANES = st.builds(
    Lane,
    st.sampled_from((0, 1, 2, 63, 64)),
    st.sampled_from((0, 1, 100, 65535)),
    st.sampled_from((0, 1, (1 << 32) - 1)),
)
DEPTHS = st.sampled_from((None, 0, 1, 2, (1 << 19) - 1))
FEEDBACK = st.sampled_from((0, 0, ALWAYS, ALWAYS, ALWAYS // 2 + 1))
OF_PORTS = often(ALWAYS, 0, ALWAYS // 2 + 1, weight=2)
PUNTS = st.sampled_from(("send_to_cpu", "copy_to_cpu", "copy_to_cpu"))
RESULTS = st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 1))


@st.composite
def rules(
    draw: st.DrawFn, facts: list[dict[str, int]], bits: dict[str, int], results: st.SearchStrategy[Result], most: int
) -> list[Rule[Result]]:
    """Rules that a frame matches, or all but matches, by its facts; each with a priority of its own."""
    made = []
    for priority in draw(st.lists(st.integers(1, 100), max_size=most, unique=True)):
        of_one = draw(st.sampled_from(facts))
        names = draw(st.lists(st.sampled_from(sorted(of_one)), max_size=3, unique=True))
        wanted = {name: part(bits[name], of_one[name], draw(HOW)) for name in names}
        # An entry matches any value by leaving the key out.
        match: Match = {
            name: want for name, want in wanted.items() if (len(want) < 65536 if isinstance(want, range) else want[1])
        }
        made.append(Rule(priority, match, draw(results)))
    return made


def part(bits: int, value: int, how: tuple[int, int]) -> tuple[int, int] | range:
    """Return a rule's match on one of a frame's facts: on all of it, on all but a bit, or on a value next to it."""
    if bits == PORT_RANGE:
        low, high = ((0, value - 1, value, value + 1)[how[0] & 3], (value - 1, value, value, 0xFFFE)[how[1] & 3])
        low = min(max(low, 0), 0xFFFF)
        return range(low, max(low, high) + 1)
    wrong, open_bit = (1 << at if at < bits else 0 for at in how)
    return value ^ wrong, (1 << bits) - 1 ^ open_bit


HOW = st.tuples(st.integers(0, 99), st.integers(0, 99))
PORT_RANGE = 0
PUNT_BITS = {"ingress_port": 9, "dst_addr": 48, "ether_type": 16, "protocol": 8, "dst_port": 16}
CLASSIFY_BITS = {
    "direction": 2,
    "flow_class": 3,
    "dscp": 6,
    "protocol": 8,
    "src_port": PORT_RANGE,
    "dst_port": PORT_RANGE,
    **dict.fromkeys(("pure_ack", "sparse", "known_flow", "ip", "control", "scalable"), 1),
}
