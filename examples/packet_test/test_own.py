# SPDX-License-Identifier: Apache-2.0
"""A packet test of one's own, on any target: DSCP 46 goes to a class of its own, and everything else does not.

.venv/bin/python ptf-tests/run.py --target apswitch --tests examples/packet_test
"""

from lib.base import UP, HostsTest, class_entry
from lib.packets import build_udp
from lib.ports import STATION, UPLINK

VOICE = 3  # class


class VoiceHasItsClass(HostsTest):
    """Entries are deleted by themselves; `expect_counts` also asks that no other counter has moved."""

    def runTest(self):
        self.insert(class_entry(VOICE, queue=5, direction=UP, dscp=46))
        self.send_and_expect(STATION, build_udp(STATION, UPLINK, dscp=46), UPLINK)
        self.send_and_expect(STATION, build_udp(STATION, UPLINK, dscp=0), UPLINK)
        self.expect_counts(UPLINK, class_id=VOICE, arrived=1, sent=1)
        self.expect_counts(UPLINK, class_id=0, arrived=1, sent=1)
        self.expect_queued(UPLINK, {0: 1, 5: 1})
