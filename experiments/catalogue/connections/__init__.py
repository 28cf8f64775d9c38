# SPDX-License-Identifier: Apache-2.0
"""Connections of real TCP stacks, each behind the switch's FIFO and behind this access point."""
