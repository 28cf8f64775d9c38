# SPDX-License-Identifier: Apache-2.0
"""A conformance suite for P4Runtime servers that run v1model programs.

`python -m accesspoint.checks.conformance --help`, or `p4runtime-conformance` of its own distribution.
"""
