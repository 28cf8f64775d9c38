# SPDX-License-Identifier: Apache-2.0
"""User-mode kernels: where a lab runs that needs what this machine's own kernel lacks. Knows no links."""
