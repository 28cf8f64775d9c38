# SPDX-License-Identifier: Apache-2.0
"""Packet tests, the models of the policy and of connections that search for counterexamples, and mutants."""

import accesspoint.checks  # noqa: F401 before gRPC, whose environment it sets
