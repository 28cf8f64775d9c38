# SPDX-License-Identifier: Apache-2.0
"""Measurements: samples, the figures of one run, and of many."""
