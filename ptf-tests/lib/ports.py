# SPDX-License-Identifier: Apache-2.0
"""The ports of the packet tests, on every target; a Tofino's dev ports have the same numbers."""

STATION, OTHER_STATION, UPLINK, SLOW = PORTS = (1, 2, 3, 4)
