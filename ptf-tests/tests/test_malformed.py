# SPDX-License-Identifier: Apache-2.0
"""Truncated, lying and random frames: forwarded as they are, marked where the IP header is whole, never harmful."""

import random

from lib.base import ALWAYS, BURST, STATION, UPLINK, HostsTest
from lib.packets import CE, ECT0, TIMESTAMPS, build_ack, build_ethernet, build_ip, build_tcp, build_udp, set_ecn
from scapy.layers.inet import TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6ExtHdrFragment
from scapy.layers.l2 import Dot1Q
from test_ack import prioritise_entry
from test_mark import port_feedback

ETHERNET_SIZE, IPV4_SIZE, IPV6_SIZE = 14, 20, 40  # bytes
SHORTEST_TAGGED = 20  # bytes; Linux drops a frame that ends before two bytes after its VLAN tag
SEED = 20180601


class MalformedTest(HostsTest):
    """A test with many frames through one path, and a sound one at the end."""

    def send_each(self, frames, expected=None, marked=0):
        """Send frames in bursts; each leaves as expected, by default unchanged, and the switch still works."""
        expected = frames if expected is None else expected
        for start in range(0, len(frames), BURST):
            self.send(STATION, *frames[start : start + BURST])
            self.expect(UPLINK, *expected[start : start + BURST])
        self.expect_nothing()
        self.expect_counts(UPLINK, arrived=len(frames), sent=len(frames), marked=marked)
        sound = build_ack(STATION, UPLINK)
        self.send_and_expect(STATION, sound, UPLINK)


def cut(frame, shortest=ETHERNET_SIZE):
    """The frame, cut to every size from the shortest up."""
    return [bytes(frame)[:size] for size in range(shortest, len(frame) + 1)]


class CutFramesAreForwarded(MalformedTest):
    """A frame that ends anywhere, in any header, is forwarded as it is."""

    def runTest(self):
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
        frames += cut(tagged, SHORTEST_TAGGED)
        self.insert(prioritise_entry(0, filter=1))
        self.send_each(frames)


class CutFramesAreMarkedWhenTheHeaderIsWhole(MalformedTest):
    """Feedback acts on a cut frame exactly when its IP header is whole."""

    def runTest(self):
        self.insert(port_feedback(ALWAYS))
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
    """Of all first bytes of an IP header only version 4 with 20 bytes or more, and version 6, are rewritten."""

    def runTest(self):
        self.insert(port_feedback(ALWAYS))
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

    def runTest(self):
        lies = (0, 1, 8, 19, 20, 21, 39, 40, 41, 1500, 65535)
        frames = [bytes(build_tcp(STATION, UPLINK, len=length)) for length in lies]
        frames += [bytes(build_ack(STATION, UPLINK, len=length)) for length in lies]
        frames += [bytes(build_ack(STATION, UPLINK, version=6, plen=length)) for length in lies]
        frames += [bytes(build_ip(STATION, UPLINK) / UDP(len=length) / bytes(20)) for length in lies]
        frames += [bytes(build_ip(STATION, UPLINK) / TCP(dataofs=words, flags="A")) for words in range(16)]
        frames += [bytes(build_ip(STATION, UPLINK, version=6) / TCP(dataofs=words, flags="A")) for words in range(16)]
        self.insert(prioritise_entry(0, filter=1))
        self.send_each(frames)


class RandomFramesAreForwarded(MalformedTest):
    """Random bytes behind the Ethernet header, and sound packets with a few bytes changed."""

    def runTest(self):
        generator = random.Random(SEED)
        frames = []
        for _ in range(300):
            ether_type = generator.choice((0x0800, 0x86DD, generator.randrange(65536)))
            payload = generator.randbytes(generator.randrange(200))
            frames.append(bytes(build_ethernet(STATION, UPLINK, type=ether_type)) + payload)
        sound = [
            build(STATION, UPLINK, version=version, **fields)
            for version in (4, 6)
            for build, fields in ((build_tcp, {}), (build_udp, {}), (build_ack, {"options": TIMESTAMPS}))
        ]
        for _ in range(300):
            frame = bytearray(bytes(generator.choice(sound)))
            for _ in range(generator.randint(1, 4)):
                frame[generator.randrange(ETHERNET_SIZE, len(frame))] = generator.randrange(256)
            frames.append(bytes(frame))
        self.insert(prioritise_entry(0, filter=1))
        self.send_each(frames)
