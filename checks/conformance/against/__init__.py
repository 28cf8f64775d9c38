# SPDX-License-Identifier: Apache-2.0
"""Two servers, packet by packet: `python -m accesspoint.checks.conformance --target apswitch --against bmv2`."""
