# SPDX-License-Identifier: Apache-2.0
"""Paper 004: QoS-guaranteed TCP."""
