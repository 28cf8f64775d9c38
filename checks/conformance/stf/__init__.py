# SPDX-License-Identifier: Apache-2.0
"""Packet cases in p4c's simple test format (STF), over P4Runtime: `python -m accesspoint.checks.conformance.stf
--help`."""
