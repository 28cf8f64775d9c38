# SPDX-License-Identifier: Apache-2.0
"""Cells of 802.11 in ns-2, with the TCPs that it brings, for what papers simulated there."""
