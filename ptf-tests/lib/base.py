# SPDX-License-Identifier: Apache-2.0
"""The base of every packet test: what it writes it takes back, what it counts starts at zero, nothing arrives unseen.

Ports 1 and 2 lead to stations, 3 is the uplink, 4 leads to a station over a slow link: one frame of 1000 bytes
takes about 0.2 s there, on every target. Tests know no target.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import ptf
from finsy import (
    P4CloneSessionEntry,
    P4CounterData,
    P4CounterEntry,
    P4DigestEntry,
    P4DirectMeterEntry,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4PacketOut,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from finsy.p4entity import P4IdleTimeoutNotification
from ptf.base_tests import BaseTest
from ptf.testutils import test_params_get, verify_no_other_packets

from accesspoint.ptf_tests.lib.p4runtime import PATIENCE, Client, Entity, poll
from accesspoint.ptf_tests.lib.packets import Frame, mac
from accesspoint.ptf_tests.lib.ports import OTHER_STATION, PORTS, SLOW, STATION, UPLINK

DEMOTE_HOLD = 1.0  # s, as in p4src/v1model/demote.p4: what is of no known flow stays demoted so long

ROLES = {STATION: 1, OTHER_STATION: 1, UPLINK: 2, SLOW: 1}
LOCAL, UP, DOWN = range(3)  # direction
FLOOD_GROUP = 1
GROUP_PORT = 511  # in place of an egress port
UNTAGGED = {"outer_vid": 0, "inner_vid": 0}
ALWAYS = 65535  # feedback
GROUP_COUNTERS = ("group_arrived", "group_sent")
CLASS_COUNTERS = ("arrived", "sent", "marked", "dropped", "refused", "filtered")
CONSTANT_TABLES = ("pure_ack", "mark")
SILENCE = 0.2  # s, for what must not
LONG_SILENCE = 10.0  # s, after which nothing comes, however busy the machine
BURST = 50  # frames; every socket on the way holds so many

_client: Client | None = None


def connect() -> Client:
    """The one connection of this run."""
    global _client
    if _client is None:
        parameters = test_params_get()
        # The runner pushed the pipeline as 1 and has left.
        _client = Client(parameters["address"], Path(parameters["p4info"]), election_id=2)
    return _client


def cpu_session() -> P4CloneSessionEntry:
    """The clone session of `copy_to_cpu`."""
    return P4CloneSessionEntry(1, replicas=[(test_params_get()["cpu_port"], 1)])


def entry(table: str, match: dict[str, Any], action: str, *, priority: int = 0, **parameters: Any) -> P4TableEntry:
    """A table entry with an action and its parameters."""
    return P4TableEntry(table, match=P4TableMatch(match), action=P4TableAction(action, **parameters), priority=priority)


def forward_entry(host: int, port: int, **vlan: int) -> P4TableEntry:
    """Frames to the host leave through the port, in one VLAN (`outer_vid=5, inner_vid=6`)."""
    return entry("forward", {"dst_addr": mac(host)} | UNTAGGED | vlan, "forward_to", egress_port=port)


def learn_entry(host: int, port: int, **vlan: int) -> P4TableEntry:
    """The host is known behind the port, in one VLAN."""
    return entry("learn", {"src_addr": mac(host), "ingress_port": port} | UNTAGGED | vlan, "known_source")


def class_entry(class_id: int, *, queue: int = 0, regulated: int = 1, priority: int = 1, **match: Any) -> P4TableEntry:
    """Packets that match (`direction=UP, dscp=46, src_port="80...90", pure_ack=1`) get the class and queue."""
    return entry("classify", match, "set_class", priority=priority, class_id=class_id, queue=queue, regulated=regulated)


def meter_config(rate: int, burst: int) -> P4MeterConfig:
    """One rate (bytes/s) and burst (bytes): green within, red above."""
    return P4MeterConfig(cir=rate, cburst=burst, pir=rate, pburst=burst)


class AccessPointTest(BaseTest):
    """A test against an empty program: no entry, no group, counters of ports 0 to 4 at zero."""

    def run(self, result: Any = None) -> None:
        """Run the test and append its outcome to the run's result file."""
        seen = {kind: len(getattr(result, kind)) for kind in ("failures", "errors", "skipped")}
        start = time.monotonic()
        super().run(result)
        outcome: dict[str, Any] = {"test": str(self), "status": "passed", "seconds": round(time.monotonic() - start, 3)}
        for kind, status in (("skipped", "skipped"), ("failures", "failed"), ("errors", "failed")):
            for _, reason in getattr(result, kind)[seen[kind] :]:
                outcome |= {"status": status, "reason": reason.strip().splitlines()[-1]}
        with open(test_params_get()["results"], "a") as results:
            results.write(json.dumps(outcome) + "\n")

    def setUp(self) -> None:
        super().setUp()
        cannot = test_params_get()["cannot"].get(str(self))
        if cannot:
            self.skipTest(cannot)
        self.dataplane = ptf.dataplane_instance
        self.dataplane.flush()
        self.p4 = connect()
        self.p4.drain()
        self.inserted: list[list[Entity]] = []
        self.metered: set[tuple[int, int]] = set()
        self.demoted = False
        self.reset_counts()
        self.prepare()

    def prepare(self) -> None:
        """Set up what all tests of a class need; load the empty program when it is not overridden."""

    def tearDown(self) -> None:
        for group in reversed(self.inserted):
            self._lift_meters(group)
            self.p4.delete(*reversed(group))
        for port, queue in list(self.metered):
            self.lift_queue_meter(port, queue)
        if self.demoted:
            time.sleep(DEMOTE_HOLD + 0.1)  # no target lets go of a hold before its time
        left = [found for found in self.p4.read(P4TableEntry()) if found.table_id not in CONSTANT_TABLES]
        self.assertEqual(left, [], "the test left entries behind")
        self.assertIsNone(self.p4.receive("error", 0), "the target complained about a packet-out or an acknowledgment")
        self.dataplane.flush()
        super().tearDown()

    # Control plane

    def insert(self, *entities: Entity) -> None:
        """Insert entities; tearDown deletes them."""
        self.inserted_at = time.monotonic()
        self.p4.insert(*entities)
        self.inserted.append(list(entities))

    def delete(self, *entities: Entity) -> None:
        """Delete entities that the test has inserted."""
        self._lift_meters(entities)
        self.p4.delete(*entities)
        for group in self.inserted:
            group[:] = [entity for entity in group if not any(entity is deleted for deleted in entities)]

    def _lift_meters(self, entities: Iterable[Entity]) -> None:
        """With BMv2 an entry without a meter has that of the deleted one in whose place it is."""
        metered = [one for one in entities if isinstance(one, P4TableEntry) and one.meter_config is not None]
        if metered:
            self.p4.modify(*(P4DirectMeterEntry(table_entry=entity) for entity in metered))

    def modify(self, *entities: Entity) -> None:
        """Modify entities that the test has inserted."""
        self.p4.modify(*entities)

    def add_hosts(self) -> None:
        """Hosts 1 to 4 known behind their ports, and the roles of the ports."""
        self.insert(
            *(learn_entry(port, port) for port in PORTS),
            *(forward_entry(port, port) for port in PORTS),
            *(entry("ingress_roles", {"ingress_port": port}, "set_ingress_role", role=ROLES[port]) for port in PORTS),
            *(entry("egress_roles", {"egress_port": port}, "set_egress_role", role=ROLES[port]) for port in PORTS),
            *(
                P4CloneSessionEntry(session, replicas=[(port, 1)])
                for session, port in test_params_get()["ack_sessions"].items()
            ),
        )

    def add_flood_group(self) -> None:
        """The multicast group of a flood: every port."""
        self.insert(P4MulticastGroupEntry(FLOOD_GROUP, replicas=[(port, 1) for port in PORTS]))

    def set_queue_meter(self, port: int, queue: int, config: P4MeterConfig) -> None:
        """Limit a priority queue; tearDown lifts the limit."""
        self.p4.modify(P4MeterEntry("queue_meter", index=port << 3 | queue, config=config))
        self.metered.add((port, queue))
        self.demoted = True

    def lift_queue_meter(self, port: int, queue: int) -> None:
        """Take back the limit of a priority queue."""
        self.p4.modify(P4MeterEntry("queue_meter", index=port << 3 | queue))
        self.metered.discard((port, queue))

    # Counters

    def reset_counts(self) -> None:
        """Set the indirect counters of ports 0 to 4 to zero."""
        self.p4.modify(
            *(
                P4CounterEntry(name, index=index, data=P4CounterData())
                for name in (*CLASS_COUNTERS, "queued")
                for index in (*range(PORTS[-1] + 1 << 3), *range(GROUP_PORT << 3, GROUP_PORT + 1 << 3))
            ),
            *(P4CounterEntry(name, index=port, data=P4CounterData()) for name in GROUP_COUNTERS for port in PORTS),
        )

    def read_counts(self, port: int, class_id: int = 0) -> dict[str, tuple[int, int]]:
        """Packets and bytes of each counter of a port's class."""
        found = self.p4.read(*(P4CounterEntry(name, index=port << 3 | class_id) for name in CLASS_COUNTERS))
        return {counter.counter_id: (counter.packet_count, counter.byte_count) for counter in found}

    def expect_counts(self, port: int, class_id: int = 0, **expected: int | tuple[int, int]) -> None:
        """Packets, or (packets, bytes), of the named counters; all others of the port's class are zero."""
        want = {name: expected.get(name, (0, 0)) for name in CLASS_COUNTERS}

        def counted() -> dict[str, Any]:
            counts = self.read_counts(port, class_id)
            return {name: counts[name][0] if isinstance(want[name], int) else counts[name] for name in want}

        poll(lambda: counted() == want, PATIENCE)
        self.assertEqual(counted(), want, f"counters of port {port}, class {class_id}")

    def expect_queued(self, port: int, expected: dict[int, int]) -> None:
        """Packets by the queue of the port that they entered; none in any other queue."""
        want = [expected.get(queue, 0) for queue in range(8)]

        def counted() -> list[int]:
            return [
                found.packet_count
                for found in self.p4.read(*(P4CounterEntry("queued", index=port << 3 | queue) for queue in range(8)))
            ]

        poll(lambda: counted() == want, PATIENCE)
        self.assertEqual(counted(), want, f"packets by queue of port {port}")

    def expect_group(self, arrived: dict[int, tuple[int, int]], sent: dict[int, tuple[int, int]]) -> None:
        """Packets and bytes of group traffic by the port that it came from, and by those that it left through."""
        want = [counts.get(port, (0, 0)) for counts in (arrived, sent) for port in PORTS]
        cells = [P4CounterEntry(name, index=port) for name in GROUP_COUNTERS for port in PORTS]

        def counted() -> list[tuple[int, int]]:
            return [(found.packet_count, found.byte_count) for found in self.p4.read(*cells)]

        poll(lambda: counted() == want, PATIENCE)
        self.assertEqual(counted(), want, "group traffic")

    # Stream

    def subscribe(self, *digests: str) -> None:
        """Have the target send digests, one a message."""
        self.insert(*(P4DigestEntry(name, max_list_size=1, ack_timeout_ns=10**9) for name in digests))

    def expect_digest(self, name: str, **fields: int | str) -> None:
        """The next digest is this one; it is acknowledged."""
        digest = self.p4.receive("digest", PATIENCE)
        self.assertIsNotNone(digest, f"no {name} arrived")
        self.p4.send(digest.ack())
        self.assertEqual(
            (digest.digest_id, list(digest)), (name, [{key: to_int(value) for key, value in fields.items()}])
        )

    def expect_no_digest(self) -> None:
        """Expect that no digest comes."""
        self.assertIsNone(self.p4.receive("digest", SILENCE))

    def expect_packet_in(self, packet: Frame, ingress_port: int) -> None:
        """The next packet-in is this packet from this port."""
        received = self.p4.receive("packet", PATIENCE)
        self.assertIsNotNone(received, "no packet-in arrived")
        self.assertEqual((received.payload.hex(), received["ingress_port"]), (bytes(packet).hex(), ingress_port))

    def expect_no_packet_in(self) -> None:
        """Expect that no packet-in comes."""
        self.assertIsNone(self.p4.receive("packet", SILENCE))

    def expect_idle(self, *expected: P4TableEntry, busy: P4TableEntry, meanwhile: Callable[[], None]) -> None:
        """Expect idle timeout notifications of these entries, and none of `busy`, which `meanwhile` uses until then.

        All have the same timeout, and were the last to be inserted. Where the machine stood still for so long that
        `busy` was idle, too, it may be told."""
        heard: list[Any] = []
        last_used, longest = self.inserted_at, 0.0

        def key(entry: P4TableEntry) -> tuple[int, list[Any]]:
            encoded = entry.encode(self.p4.schema).table_entry
            return encoded.table_id, list(encoded.match)

        def hear() -> bool:
            nonlocal last_used, longest
            began = time.monotonic()
            meanwhile()
            longest, last_used = max(longest, time.monotonic() - last_used), began
            notification: P4IdleTimeoutNotification | None
            if (notification := self.p4.receive("idle_timeout_notification", 0.05)) is not None:
                heard.extend(key(found) for found in notification)
            return all(key(entry) in heard for entry in expected)

        self.assertTrue(poll(hear), f"idle: {heard}")
        longest = max(longest, time.monotonic() - last_used)
        for found in heard:
            if found not in [key(entry) for entry in expected]:
                self.assertEqual(found, key(busy))
                self.assertGreaterEqual(longest, busy.idle_timeout_ns / 1e9, "an entry in use is reported as idle")

    def send_out(self, packet: Frame, egress_port: int) -> None:
        """Send a packet-out."""
        self.p4.send(P4PacketOut(bytes(packet), egress_port=egress_port, pad=0))

    # Data plane

    def send(self, port: int, *packets: Frame) -> None:
        """Send frames into a port, one after the other, and all at once for the target."""
        self.send_at_once(*((port, packet) for packet in packets))

    def send_at_once(self, *sent: tuple[int, Frame]) -> None:
        """Send frames into ports in this order; a target that was started here stands still until the last one.

        Else a busy machine might let this process wait for so long that the first ones have left by then."""
        frames = [(port, bytes(packet)) for port, packet in sent]
        process = test_params_get()["process"] if 1 < len(frames) <= BURST else None
        if process:
            os.kill(process, signal.SIGSTOP)
        try:
            for port, frame in frames:
                self.dataplane.send(0, port, frame)
        finally:
            if process:
                os.kill(process, signal.SIGCONT)

    def send_many(self, port: int, packet: Frame, count: int, to: int) -> None:
        """Send a frame many times, of class 0 and through port `to`, no faster than the target takes it."""

        def seen() -> int:
            counts = self.read_counts(to)
            return counts["arrived"][0] + counts["dropped"][0]

        def reached(count: int) -> bool:
            return seen() == count

        before, frame = seen(), bytes(packet)
        for sent in range(BURST, count + 1, BURST):
            self.send(port, *[frame] * BURST)
            poll(partial(reached, before + sent))
        self.assertEqual(seen(), before + count, f"packets that port {to} was to get")

    def receive(self, port: int, timeout: float = PATIENCE) -> bytes | None:
        """The oldest frame that left the port; None when none comes within `timeout` s."""
        polled = self.dataplane.poll(device_number=0, port_number=port, timeout=timeout)
        return polled.packet if isinstance(polled, self.dataplane.PollSuccess) else None

    def receive_all(self, port: int, timeout: float = PATIENCE) -> list[bytes]:
        """The frames that left the port, up to a silence of `timeout` s."""
        return list(iter(partial(self.receive, port, timeout), None))

    def expect(self, port: int, *packets: Frame, timeout: float = PATIENCE) -> None:
        """Exactly these frames leave the port next, in this order, bit by bit, each within `timeout` s of the last."""
        for number, packet in enumerate(packets):
            received = self.receive(port, timeout)
            missing = f"frame {number} of {len(packets)} did not leave port {port}: {bytes(packet).hex()}"
            assert received is not None, missing
            self.assertEqual(received.hex(), bytes(packet).hex(), f"frame {number} of {len(packets)} at port {port}")

    def expect_nothing(self) -> None:
        """Expect that no other frame leaves any port."""
        verify_no_other_packets(self, timeout=SILENCE)

    def send_and_expect(
        self, port: int, packet: Frame, to: int | tuple[int, ...], expected: Frame | None = None
    ) -> None:
        """The frame, or what it is expected to become, leaves exactly the ports `to`."""
        self.send(port, packet)
        for egress_port in (to,) if isinstance(to, int) else to:
            self.expect(egress_port, packet if expected is None else expected)
        self.expect_nothing()

    def send_and_expect_drop(self, port: int, packet: Frame) -> None:
        """The frame leaves no port."""
        self.send(port, packet)
        self.expect_nothing()


class HostsTest(AccessPointTest):
    """A test with hosts 1 to 4 behind their ports."""

    def prepare(self) -> None:
        self.add_hosts()


def to_int(value: int | str) -> int:
    """A number, or the number that an IP or MAC address stands for."""
    if isinstance(value, int):
        return value
    return int(value.replace(":", ""), 16) if value.count(":") == 5 and "::" not in value else int(ip_address(value))
