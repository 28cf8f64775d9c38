# SPDX-License-Identifier: Apache-2.0
"""Paper 002: congestion windows bounded by the RTT ratio."""
