# SPDX-License-Identifier: Apache-2.0
"""classify: which TCP segments are pure ACKs."""

from scapy.layers.inet import TCP, IPOption_Router_Alert
from scapy.packet import Packet, Padding

from accesspoint.ptf_tests.lib.base import STATION, UPLINK, HostsTest, class_entry
from accesspoint.ptf_tests.lib.packets import TIMESTAMPS, build_ack, build_ip, build_tcp, build_udp

PURE_ACK = 4  # class

SACK = [("NOP", None), ("NOP", None), ("SAck", (3000, 4000))]
LONG_SACK = [("NOP", None), ("NOP", None), ("SAck", (3000, 4000, 5000, 6000, 7000, 8000))]


class PureAckTest(HostsTest):
    """A pure ACK test: pure ACKs have a class of their own."""

    def prepare(self) -> None:
        super().prepare()
        self.insert(class_entry(PURE_ACK, pure_ack=1))

    def expect_pure_acks(self, pure: bool, *packets: Packet) -> None:
        """All of the packets are pure ACKs, or none is."""
        for packet in packets:
            with self.subTest(packet=packet.summary()):
                self.reset_counts()
                self.send(STATION, packet)
                self.expect(UPLINK, packet)
                self.expect_counts(UPLINK, PURE_ACK, arrived=int(pure), sent=int(pure))
                self.expect_counts(UPLINK, 0, arrived=int(not pure), sent=int(not pure))
        self.expect_nothing()


class SegmentsWithoutDataArePureAcks(PureAckTest):
    """ACK without data, whatever its options and ECN flags."""

    def runTest(self) -> None:
        for version in (4, 6):
            self.expect_pure_acks(
                True,
                build_ack(STATION, UPLINK, version=version),
                build_ack(STATION, UPLINK, version=version, options=TIMESTAMPS),
                build_ack(STATION, UPLINK, version=version, options=SACK),
                build_ack(STATION, UPLINK, version=version, options=TIMESTAMPS + SACK),
                build_ack(
                    STATION, UPLINK, version=version, options=TIMESTAMPS + LONG_SACK[:2] + [("SAck", (1, 2, 3, 4))]
                ),
                build_ack(STATION, UPLINK, version=version, options=LONG_SACK),
                build_ack(STATION, UPLINK, version=version, flags="AE"),
                build_ack(STATION, UPLINK, version=version, flags="AC"),
                build_ack(STATION, UPLINK, version=version, flags="AEC", reserved=1),
                build_ack(STATION, UPLINK, version=version, flags="AP"),
                build_ack(STATION, UPLINK, version=version, dscp=8, ecn=2),
            )


class PaddedAckIsPure(PureAckTest):
    """Padding that Ethernet adds to a short frame is no data."""

    def runTest(self) -> None:
        for version in (4, 6):
            self.expect_pure_acks(True, build_ack(STATION, UPLINK, version=version) / Padding(bytes(6)))


class OtherSegmentsAreNotPureAcks(PureAckTest):
    """Data, SYN, FIN, RST, and no ACK at all."""

    def runTest(self) -> None:
        for version in (4, 6):
            self.expect_pure_acks(
                False,
                build_tcp(STATION, UPLINK, version=version, size=75),
                build_tcp(STATION, UPLINK, version=version, size=1500),
                build_tcp(STATION, UPLINK, version=version, flags="PA"),
                build_ack(STATION, UPLINK, version=version, flags="S"),
                build_ack(STATION, UPLINK, version=version, flags="SA"),
                build_ack(STATION, UPLINK, version=version, flags="FA"),
                build_ack(STATION, UPLINK, version=version, flags="RA"),
                build_ack(STATION, UPLINK, version=version, flags="R"),
                build_ack(STATION, UPLINK, version=version, flags=""),
                build_udp(STATION, UPLINK, version=version),
            )


class EveryHeaderLengthIsKnown(PureAckTest):
    """Every header length has pure ACKs, and segments that open, end or carry something."""

    def runTest(self) -> None:
        for words in range(11):
            options = [("NOP", None)] * 4 * words
            self.pass_through(build_ack(STATION, UPLINK, options=options))
            for flags in ("FA", "SA", "RA", "R", ""):
                self.pass_through(build_ack(STATION, UPLINK, flags=flags, options=options))
            self.pass_through(build_ack(STATION, UPLINK, options=options) / b"x")
        self.expect_counts(UPLINK, PURE_ACK, arrived=11, sent=11)
        self.expect_counts(UPLINK, 0, arrived=66, sent=66)
        self.expect_nothing()

    def pass_through(self, packet: Packet) -> None:
        """Send a packet and see it arrive."""
        self.send(STATION, packet)
        self.expect(UPLINK, packet)


class OneByteOfDataIsData(PureAckTest):
    """One byte behind the header, with and without options."""

    def runTest(self) -> None:
        for options in ([], TIMESTAMPS, TIMESTAMPS + SACK):
            self.expect_pure_acks(False, build_ack(STATION, UPLINK, options=options) / b"x")


class UncertainHeadersAreNotPureAcks(PureAckTest):
    """An ACK in a fragment, behind IP options or behind IPv6 extension headers is not taken for one."""

    def runTest(self) -> None:
        ack = TCP(sport=1111, dport=2222, ack=2000, flags="A")
        self.expect_pure_acks(
            False,
            build_ip(STATION, UPLINK, flags="MF") / ack,
            build_ip(STATION, UPLINK, frag=100) / ack,
            build_ip(STATION, UPLINK, options=[IPOption_Router_Alert()]) / ack,
            build_ip(STATION, UPLINK, version=6, nh=0) / bytes.fromhex("0600050200000100") / ack,
        )
