# SPDX-License-Identifier: Apache-2.0
"""Packet tests, the models of the policy and of connections that search for counterexamples, and mutants."""
