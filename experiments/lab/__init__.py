# SPDX-License-Identifier: Apache-2.0
"""A lab with a clock: probes, traffic, the stage that runs start from, and the same in ns-3."""
