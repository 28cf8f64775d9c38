# SPDX-License-Identifier: Apache-2.0
"""Counters of what an access point does not learn or accept, by reason; the first of each reason is logged."""

import logging

LOG = logging.getLogger(__name__)

LOCKED, UPLINK, MOVES, PORT = "locked", "uplink", "moves", "port"
TABLE, SWITCH = "table", "switch"
"""A locked address behind another port; an address of the uplink behind a station's port; an address that moves too
often; as many as one port may bring; as many as there is room for; the switch itself."""
DIGESTS, UNKNOWN, ERRORS, PACKETS = "digests", "unknown", "errors", "packets"
"""Messages of a session's stream that had no effect: lists of digests beyond those that wait already (the switch
sends them again); digests that the program does not have; errors that the switch reports; packets with addresses,
beyond a bound in each second."""


class Refusals:
    """Refusals of one kind, for one access point."""

    def __init__(self, access_point: str, *reasons: str) -> None:
        self._access_point = access_point
        self.by_reason = dict.fromkeys(reasons, 0)

    def add(self, reason: str, text: str, *values: object) -> None:
        """Count one; only the first is logged, so that a flood does not fill the log."""
        if not self.by_reason[reason]:
            extra = {"access_point": self._access_point}
            LOG.warning("%s: " + text + "; more are counted", self._access_point, *values, extra=extra)
        self.by_reason[reason] += 1
