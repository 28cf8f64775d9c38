# SPDX-License-Identifier: Apache-2.0
"""Truncated and lying frames: forwarded as they are, marked where the IP header is whole, never harmful.

Random ones: test_model.
"""

from collections.abc import Sequence

from scapy.layers.inet import TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6ExtHdrFragment
from scapy.layers.l2 import Dot1Q
from scapy.packet import Packet

from accesspoint.ptf_tests.lib.base import ALWAYS, BURST, SLOW, STATION, UPLINK, HostsTest, forward_entry
from accesspoint.ptf_tests.lib.packets import (
    CE,
    ECT0,
    TIMESTAMPS,
    Frame,
    build_ack,
    build_ethernet,
    build_ip,
    build_tcp,
    build_udp,
    set_ecn,
)
from accesspoint.ptf_tests.tests.test_ack import prioritise_entry
from accesspoint.ptf_tests.tests.test_filter import ONE_QUEUE, slow_bulk
from accesspoint.ptf_tests.tests.test_flows import flow_entry
from accesspoint.ptf_tests.tests.test_mark import class_feedback, port_feedback

ETHERNET_SIZE, IPV4_SIZE, IPV6_SIZE = 14, 20, 40  # bytes
MIN_TAGGED_FRAME = 20  # bytes; Linux drops a frame that ends before two bytes after its VLAN tag


class MalformedTest(HostsTest):
    """A test with many frames through one path, and a sound one at the end."""

    def send_each(self, frames: Sequence[Frame], expected: Sequence[Frame] | None = None, marked: int = 0) -> None:
        """Send frames in bursts; each leaves as expected, by default unchanged, and the switch still works."""
        expected = frames if expected is None else expected
        for start in range(0, len(frames), BURST):
            self.send(STATION, *frames[start : start + BURST])
            self.expect(UPLINK, *expected[start : start + BURST])
        self.expect_nothing()
        self.expect_counts(UPLINK, arrived=len(frames), sent=len(frames), marked=marked)
        sound = build_ack(STATION, UPLINK)
        self.send_and_expect(STATION, sound, UPLINK)

    def filter_acks(self, index: int) -> None:
        """The flows of the frames' ACKs are known, and superseded ones are not sent; those of the frames are none."""
        self.insert(prioritise_entry(7, filter=1), *ONE_QUEUE)  # data and ACKs in one queue, in order
        for version in (4, 6):
            for port in (UPLINK, SLOW):
                self.insert(flow_entry(STATION, port, protocol=6, version=version, flow_index=index + version))

    def expect_filter(self) -> None:
        """The filter works for these flow indices: of ACKs that wait for the slow port the newest is sent."""
        bulk = slow_bulk()
        for version in (4, 6):
            acks = [build_ack(STATION, SLOW, number, version=version) for number in (2500, 3000, 2600)]
            self.send(STATION, *bulk, *acks)
            self.expect(SLOW, *bulk, acks[1])
            self.expect_nothing()


def cut(frame: Packet, shortest: int = ETHERNET_SIZE) -> list[bytes]:
    """The frame, cut to every size from the shortest up."""
    return [bytes(frame)[:size] for size in range(shortest, len(frame) + 1)]


class CutFramesAreForwarded(MalformedTest):
    """A frame that ends anywhere, in any header, is forwarded as it is."""

    def runTest(self) -> None:
        frames = []
        for packet in (
            build_tcp(STATION, UPLINK, size=60),
            build_ack(STATION, UPLINK, options=TIMESTAMPS),
            build_udp(STATION, UPLINK, size=50),
            build_ip(STATION, UPLINK, options=[IPOption_Router_Alert()]) / UDP(),
            build_ack(STATION, UPLINK, options=TIMESTAMPS, version=6),
            build_udp(STATION, UPLINK, size=70, version=6),
            build_ip(STATION, UPLINK, version=6) / IPv6ExtHdrFragment() / UDP(),
        ):
            frames += cut(packet)
        tagged = build_ethernet(STATION, UPLINK) / Dot1Q(vlan=5) / build_udp(STATION, UPLINK, size=50).payload
        frames += cut(tagged, MIN_TAGGED_FRAME)
        tagged = build_ethernet(STATION, UPLINK) / Dot1Q(vlan=5) / Dot1Q(vlan=6) / build_ack(STATION, UPLINK).payload
        frames += cut(tagged, MIN_TAGGED_FRAME)
        session = b"\x11\0\0\1" + (42).to_bytes(2) + b"\0\x21"
        frames += cut(build_ethernet(STATION, UPLINK, type=0x8864) / session / build_ack(STATION, UPLINK).payload)
        self.insert(forward_entry(UPLINK, UPLINK, outer_vid=5), forward_entry(UPLINK, UPLINK, outer_vid=5, inner_vid=6))
        self.filter_acks(400)
        self.send_each(frames)
        self.expect_filter()


class CutFramesAreMarkedWhenTheHeaderIsWhole(MalformedTest):
    """Feedback acts on a cut frame exactly when its IP header is whole."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS), *class_feedback(0, mark_only=1))
        frames, expected = [], []
        for packet, header in (
            (build_tcp(STATION, UPLINK, size=60, ecn=ECT0), IPV4_SIZE),
            (build_ip(STATION, UPLINK, ecn=ECT0, options=[IPOption_Router_Alert()]) / UDP(), IPV4_SIZE),
            (build_tcp(STATION, UPLINK, size=80, ecn=ECT0, version=6), IPV6_SIZE),
        ):
            whole = set_ecn(packet, CE)
            for frame in cut(packet):
                frames.append(frame)
                expected.append(whole[: len(frame)] if len(frame) >= ETHERNET_SIZE + header else frame)
        changed = sum(frame != other for frame, other in zip(frames, expected, strict=True))
        self.assertGreater(changed, 50)
        self.send_each(frames, expected, marked=changed)


class WrongVersionOrLengthIsNoIp(MalformedTest):
    """Only frames whose IP header begins with version 4 and 20 bytes or more, or with version 6, are rewritten."""

    def runTest(self) -> None:
        self.insert(*port_feedback(ALWAYS), *class_feedback(0, mark_only=1))
        frames, expected = [], []
        for first in range(256):
            frame = bytearray(bytes(build_udp(STATION, UPLINK, size=120, ecn=ECT0, chksum=0x1234)))
            frame[14] = first
            frames.append(bytes(frame))
            if first >> 4 == 4 and first & 0xF >= 5:
                frame[15], frame[25] = CE, 0x33
            expected.append(bytes(frame))
        for first in range(256):
            frame = bytearray(bytes(build_udp(STATION, UPLINK, size=120, ecn=ECT0, version=6)))
            frame[14] = first
            frames.append(bytes(frame))
            if first >> 4 == 6:
                frame[15] = CE << 4
            expected.append(bytes(frame))
        self.send_each(frames, expected, marked=11 + 16)


class LyingLengthsAreForwarded(MalformedTest):
    """Length fields that do not fit the frame change nothing."""

    def runTest(self) -> None:
        lies = (0, 1, 8, 19, 20, 21, 39, 40, 41, 1500, 65535)
        frames = [bytes(build_tcp(STATION, UPLINK, len=length)) for length in lies]
        frames += [bytes(build_ack(STATION, UPLINK, len=length)) for length in lies]
        frames += [bytes(build_ack(STATION, UPLINK, version=6, plen=length)) for length in lies]
        frames += [bytes(build_ip(STATION, UPLINK) / UDP(len=length) / bytes(20)) for length in lies]
        frames += [bytes(build_ip(STATION, UPLINK) / TCP(dataofs=words, flags="A")) for words in range(16)]
        frames += [bytes(build_ip(STATION, UPLINK, version=6) / TCP(dataofs=words, flags="A")) for words in range(16)]
        self.filter_acks(410)
        self.send_each(frames)
        self.expect_filter()
