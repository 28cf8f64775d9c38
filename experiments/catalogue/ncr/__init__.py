# SPDX-License-Identifier: Apache-2.0
"""Paper 000: NCR, downloads protected from uploads."""
