# SPDX-License-Identifier: Apache-2.0
"""Network and PID namespaces: where a lab runs, so that nothing of it outlives it. Knows no links."""
