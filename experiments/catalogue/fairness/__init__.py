# SPDX-License-Identifier: Apache-2.0
"""Paper 001: instantaneous fairness of TCP."""
