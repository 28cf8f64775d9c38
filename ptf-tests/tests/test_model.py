# SPDX-License-Identifier: Apache-2.0
"""The program against a model of the policy that was written from the documents, over generated frames and entries."""

import time
from collections import Counter, deque
from dataclasses import replace
from functools import cache

from finsy import P4CounterEntry, P4DigestEntry, P4DirectCounterEntry, P4MulticastGroupEntry, P4TableEntry
from hypothesis import HealthCheck, Phase, given, seed, settings
from ptf.testutils import test_params_get

from accesspoint.ptf_tests.lib.base import (
    FLOOD_GROUP,
    GROUP_PORT,
    PATIENCE,
    AccessPointTest,
    class_entry,
    cpu_session,
    entry,
    meter_config,
)
from accesspoint.ptf_tests.lib.p4runtime import poll
from accesspoint.ptf_tests.model.cases import PORTS, Case, cases
from accesspoint.ptf_tests.model.policy import Chance, Entries, Flow, FlowKey, Lane, Memory, Rule, Vlan, decide
from accesspoint.ptf_tests.tests.test_ack import prioritise_entry
from accesspoint.ptf_tests.tests.test_mark import class_feedback, port_feedback
from accesspoint.ptf_tests.tests.test_packet_io import punt_entry
from accesspoint.ptf_tests.tests.test_scalable import step_entry

NO_PORT = 0  # where a frame goes that nobody has said a port of
PLACES = (*PORTS, GROUP_PORT)
STATION_ACTIONS = {"learn": ("known_source", "known_station"), "forward": ("forward_to", "forward_to_station")}
CELLS = [
    *(
        (name, place << 3 | low)
        for name in ("arrived", "marked", "dropped", "refused", "queued")
        for place in PLACES
        for low in range(8)
    ),
    *((name, port << 3 | low) for name in ("sent", "filtered") for port in PORTS for low in range(8)),
    *((name, port) for name in ("group_arrived", "group_sent") for port in (NO_PORT, *PORTS)),
]
DIGESTS = ("source_digest_t", "flow_ipv4_digest_t", "flow_ipv6_digest_t")
ABOVE = meter_config(1, 1)  # no frame is within this
LONG = 10**6  # us, that no packet waits
OPEN, SHUT = {"buffer": 1000, "batch": 1}, {"buffer": 0, "batch": 1}
SEVERAL = 0.2  # s, for digests that several frames cause
ENOUGH = 100  # cases, for all to happen that can
FLOWS = 65536  # flow indices
INDICES_OF_OTHERS = 1000  # those that other tests use: what these sent is remembered
QUIET = 0.01  # s, for what must not come once all that must has come

Digest = tuple[str, tuple[int, ...]]


def vlan_fields(vlan: Vlan) -> dict[str, int]:
    """A VLAN as parts of a key."""
    return {"outer_vid": vlan[0], "inner_vid": vlan[1]}


def match_of(rule: Rule) -> dict[str, str]:
    """A rule's match as an entry spells it."""
    return {
        name: f"{want.start}...{want.stop - 1}" if isinstance(want, range) else f"{want[0] & want[1]}/&{want[1]}"
        for name, want in rule.match.items()
    }


def station_entry(table: str, match: dict[str, int], lane: Lane | None, **parameters: int) -> P4TableEntry:
    """An entry of a station; with a lane, by the action that names it."""
    without, with_lane = STATION_ACTIONS[table]
    if lane is None:
        return entry(table, match, without, **parameters)
    return entry(table, match, with_lane, **parameters, lane=lane.number, weight=lane.weight, rate=lane.rate)


def flow_entry(key: FlowKey, flow: Flow) -> P4TableEntry:
    """A flow's entry."""
    version, src_addr, dst_addr, protocol, src_port, dst_port, ingress_port, egress_port, vlan = key
    match = {"src_addr": src_addr, "dst_addr": dst_addr, "protocol": protocol, "src_port": src_port}
    match |= {"dst_port": dst_port, "ingress_port": ingress_port, "egress_port": egress_port} | vlan_fields(vlan)
    written = entry(
        f"flows_ipv{version}",
        match,
        f"set_flow_ipv{version}",
        flow_index=flow.index,
        generation=flow.generation,
        flow_class=flow.flow_class,
        feedback=flow.feedback,
        scalable_feedback=flow.scalable_feedback,
    )
    if not flow.sparse:
        written.meter_config = ABOVE
    return written


def written(entries: Entries) -> list[P4TableEntry]:
    """All but the flows."""
    made = [
        *(
            entry(f"{way}_roles", {f"{way}_port": port}, f"set_{way}_role", role=role)
            for way, roles in (("ingress", entries.ingress_roles), ("egress", entries.egress_roles))
            for port, role in roles.items()
        ),
        *(punt_entry(str(rule.result), priority=rule.priority, **match_of(rule)) for rule in entries.punt),
        *(
            station_entry(
                "learn",
                {"src_addr": address, "ingress_port": port} | vlan_fields(vlan),
                entries.sends_in.get((address, port, vlan)),
            )
            for address, port, vlan in sorted(entries.learned)
        ),
        *(
            station_entry(
                "forward",
                {"dst_addr": address} | vlan_fields(vlan),
                entries.gets_in.get((address, vlan)),
                egress_port=port,
            )
            for (address, vlan), port in entries.forward.items()
        ),
        *(
            written
            for (port, class_id, ecn), (share, mark_only) in entries.class_feedback.items()
            for written in class_feedback(share, class_id, mark_only, port, ecn=[ecn])
        ),
        *(
            written
            for (port, ecn), (share, depth) in entries.port_feedback.items()
            for written in port_feedback(share, port, ecn=[ecn], depth=depth)
        ),
        *(
            prioritise_entry(queue, filter=filters, port=port)
            for port, (queue, filters) in entries.ack_priority.items()
        ),
        *(
            entry("gate", {"egress_port": port}, "batch_gate", **(SHUT if shut else OPEN))
            for port, shut in entries.gate.items()
        ),
        *(step_entry(LONG, port) for port in sorted(entries.step)),
    ]
    for rule in entries.classify:
        class_id, queue, regulated = rule.result
        made.append(class_entry(class_id, queue=queue, regulated=regulated, priority=rule.priority, **match_of(rule)))
    return made


@cache
def generate(number: int) -> Case:
    """A case, the same one for the same number.

    Hypothesis makes most of many examples by repeating what is in others, so each case has a run of its own; of the two
    examples the first is the simplest that there is. None is shrunk: registers remember the first try.
    """
    made: list[Case] = []

    @seed(number)
    @settings(
        max_examples=2, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(cases())
    def collect(case: Case) -> None:
        made.append(case)

    collect()
    return made[-1]


class ProgramFollowsThePolicy(AccessPointTest):
    """Every frame leaves where, as what, and counted and reported as the model says."""

    def prepare(self) -> None:
        self.insert(cpu_session(), P4MulticastGroupEntry(FLOOD_GROUP, replicas=[(port, 1) for port in PORTS]))
        # A report of one case does not suppress the same report of the next.
        self.insert(*(P4DigestEntry(name, max_list_size=1, ack_timeout_ns=1) for name in DIGESTS))
        self.memory = Memory()
        self.next_index = INDICES_OF_OTHERS
        self.late: deque[set[Digest]] = deque(maxlen=8)  # what the cases before may still bring
        self.before = self.read_cells()
        self.seen: Counter[str] = Counter()

    def runTest(self) -> None:
        asked = test_params_get()
        for number in range(asked["seed"], asked["seed"] + asked["cases"]):
            try:
                self.compare(generate(number))
            except AssertionError as error:
                raise AssertionError(f"case {number} (alone: --cases 1 --seed {number}): {error}") from None
        print(", ".join(f"{self.seen[name]} {name}" for name in sorted(self.seen)))
        for happened in (
            () if asked["cases"] < ENOUGH else ("told", *DIGESTS, *({name for name, _ in CELLS} - {"filtered"}))
        ):
            self.assertGreater(self.seen[happened], 0, f"in no case a frame was {happened}: the cases miss something")

    def read_cells(self) -> Counter[tuple[str, int, str]]:
        """All counters' cells that a case can change, in packets and bytes."""
        found = self.p4.read(*(P4CounterEntry(name, index=index) for name, index in CELLS))
        counts: Counter[tuple[str, int, str]] = Counter()
        for cell in found:
            counts[cell.counter_id, cell.index, "packets"] = cell.packet_count
            counts[cell.counter_id, cell.index, "bytes"] = cell.byte_count
        return counts

    def compare(self, case: Case) -> None:
        """Write the entries, send each frame alone, and compare what came of it."""
        # The registers outlive a case: each has indices of its own.
        own = {
            key: replace(flow, index=(self.next_index + flow.index) % FLOWS) for key, flow in case.entries.flows.items()
        }
        self.next_index += len(own)
        case = replace(case, entries=replace(case.entries, flows=own))
        flows = {key: flow_entry(key, flow) for key, flow in own.items()}
        entries = [*written(case.entries), *flows.values()]
        self.insert(*entries)
        for port, queue in case.entries.metered:
            self.set_queue_meter(port, queue, ABOVE)

        counts: Counter[tuple[str, int, str]] = Counter()
        digests: Counter[Digest] = Counter()
        of_flow: Counter[FlowKey] = Counter()
        for port, frame in case.packets:
            try:
                outcome = decide(frame, port, PORTS, case.entries, self.memory, time.monotonic())
            except Chance:
                self.seen["chance"] += 1
                continue
            self.seen["frames"] += 1
            self.send(port, frame)
            for egress_port, expected in outcome.sent:
                received = self.receive(egress_port)
                got = None if received is None else received.hex()
                self.assertEqual(got, expected.hex(), f"port {egress_port}, of {port}: {frame.hex()}; {outcome}")
            for expected in outcome.told:
                self.expect_packet_in(expected, port)
            if outcome.digest:
                digests[outcome.digest] += 1
                self.seen[outcome.digest[0]] += 1
            for (name, index), packets in outcome.counts.items():
                counts[name, index, "packets"] += packets
                counts[name, index, "bytes"] += packets * len(frame)
                self.seen[name] += packets
            self.seen["told"] += len(outcome.told)
            if outcome.flow:
                of_flow[outcome.flow] += 1

        all_ = self.before + counts
        poll(lambda: +self.read_cells() == all_, PATIENCE)
        found = +self.read_cells()
        changed = {
            cell: (found[cell] - self.before[cell], counts[cell]) for cell in found | all_ if found[cell] != all_[cell]
        }
        self.assertEqual(changed, {}, "counters: cell -> (found, expected)")
        self.before = found
        self.expect_digests(digests)
        if flows:
            direct = self.p4.read(*(P4DirectCounterEntry(table_entry=written) for written in flows.values()))
            self.assertEqual(
                [cell.packet_count for cell in direct], [of_flow[key] for key in flows], "packets of flows"
            )
        left = self.dataplane.poll(device_number=0, timeout=QUIET)
        self.assertNotIsInstance(left, self.dataplane.PollSuccess, f"a frame that nobody expects: {left}")
        self.assertIsNone(self.p4.receive("packet", 0), "a packet-in that nobody expects")
        self.delete(*entries)
        self.inserted.pop()
        for port, queue in case.entries.metered:
            self.lift_queue_meter(port, queue)
        self.seen["cases"] += 1

    def expect_digests(self, expected: Counter[Digest]) -> None:
        """Each of these comes at least once, as a target may keep back what it has just sent, and no other."""
        found: Counter[Digest] = Counter()

        def receive_all() -> None:
            while digest := self.p4.receive("digest", 0):
                self.p4.send(digest.ack())
                found.update((digest.digest_id, tuple(data.values())) for data in digest)

        def has_each() -> bool:
            receive_all()
            return found.keys() >= expected.keys()

        def has_all() -> bool:
            receive_all()
            return found >= expected

        poll(has_each, PATIENCE)
        self.assertEqual(expected.keys() - found.keys(), set(), "digests that did not come")
        poll(has_all, SEVERAL)
        stray = found.keys() - expected.keys() - set().union(*self.late)
        self.assertEqual(stray, set(), "digests that nobody expects")
        self.late.append(set(expected))
