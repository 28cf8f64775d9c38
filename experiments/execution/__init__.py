# SPDX-License-Identifier: Apache-2.0
"""Running: many runs, each in a process of its own, here or on a cluster, and one of each arm in the foreground."""
