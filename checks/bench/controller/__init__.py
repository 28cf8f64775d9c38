# SPDX-License-Identifier: Apache-2.0
"""Costs of an agent's ticks, of the service and of a fleet, with a real switch and a real engine."""
