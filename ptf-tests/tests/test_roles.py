# SPDX-License-Identifier: Apache-2.0
"""roles: a port's role, and from the roles of both ports the direction of a packet."""

from accesspoint.ptf_tests.lib.base import (
    DOWN,
    LOCAL,
    OTHER_STATION,
    PORTS,
    STATION,
    UP,
    UPLINK,
    AccessPointTest,
    HostsTest,
    class_entry,
    entry,
    forward_entry,
)
from accesspoint.ptf_tests.lib.packets import BROADCAST, build_arp, build_udp

RADIO = 3  # role
CLASSES = {LOCAL: 3, UP: 2, DOWN: 1}


def direction_entries() -> list:
    """A class for each direction, so that counters show the direction."""
    return [class_entry(class_id, direction=direction) for direction, class_id in CLASSES.items()]


class DirectionFollowsFromBothPorts(HostsTest):
    """Station to uplink is uplink, uplink to station is downlink, station to station is local."""

    def runTest(self) -> None:
        self.insert(*direction_entries())
        for source, target, direction in (
            (STATION, UPLINK, UP),
            (UPLINK, STATION, DOWN),
            (STATION, OTHER_STATION, LOCAL),
        ):
            self.reset_counts()
            self.send_and_expect(source, build_udp(source, target), target)
            for class_id in CLASSES.values():
                count = int(class_id == CLASSES[direction])
                self.expect_counts(target, class_id, arrived=count, sent=count)


class PortsWithoutRoleAreLocal(AccessPointTest):
    """Without a role at either end a packet has no direction."""

    def runTest(self) -> None:
        self.insert(*direction_entries(), forward_entry(UPLINK, UPLINK), forward_entry(STATION, STATION))
        self.insert(entry("ingress_roles", {"ingress_port": STATION}, "set_ingress_role", role=1))
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_counts(UPLINK, CLASSES[LOCAL], arrived=1, sent=1)
        self.insert(entry("egress_roles", {"egress_port": STATION}, "set_egress_role", role=1))
        self.send_and_expect(UPLINK, build_udp(UPLINK, STATION), STATION)
        self.expect_counts(STATION, CLASSES[LOCAL], arrived=1, sent=1)


class RoleChangesAtOnce(HostsTest):
    """A port whose ingress role changes from station to uplink changes the direction of its packets."""

    def runTest(self) -> None:
        self.insert(*direction_entries())
        self.send_and_expect(STATION, build_udp(STATION, OTHER_STATION), OTHER_STATION)
        self.expect_counts(OTHER_STATION, CLASSES[LOCAL], arrived=1, sent=1)
        self.modify(entry("ingress_roles", {"ingress_port": STATION}, "set_ingress_role", role=2))
        self.send_and_expect(STATION, build_udp(STATION, OTHER_STATION), OTHER_STATION)
        self.expect_counts(OTHER_STATION, CLASSES[DOWN], arrived=1, sent=1)


class RadioReflects(HostsTest):
    """Stations behind a radio reach each other through it, alone and as a group; in all else they are stations."""

    def runTest(self) -> None:
        self.add_flood_group()
        self.insert(forward_entry(7, STATION), *direction_entries())
        self.modify(
            entry("ingress_roles", {"ingress_port": STATION}, "set_ingress_role", role=RADIO),
            entry("egress_roles", {"egress_port": STATION}, "set_egress_role", role=RADIO),
        )
        self.send_and_expect(STATION, build_udp(STATION, 7), STATION)
        self.expect_counts(STATION, CLASSES[LOCAL], arrived=1, sent=1)
        packet = build_arp(STATION, 7, dst=BROADCAST)
        self.send_and_expect(STATION, packet, PORTS)
        size = len(packet)
        self.expect_group(arrived={STATION: (1, size)}, sent=dict.fromkeys(PORTS, (1, size)))
        self.send_and_expect(STATION, build_udp(STATION, UPLINK), UPLINK)
        self.expect_counts(UPLINK, CLASSES[UP], arrived=1, sent=1)
        self.send_and_expect(UPLINK, build_udp(UPLINK, STATION), STATION)
        self.expect_counts(STATION, CLASSES[DOWN], arrived=1, sent=1)
