# SPDX-License-Identifier: Apache-2.0
"""Run plans: each run in a process of its own, here or on a cluster."""
