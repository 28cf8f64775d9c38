# SPDX-License-Identifier: Apache-2.0
"""What an agent's ticks, the service and a fleet cost, beside a real switch and a real engine."""
