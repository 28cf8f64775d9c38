# SPDX-License-Identifier: Apache-2.0
"""Checks of a server from outside: conformance, attacks, speed, and the harness that they share."""
