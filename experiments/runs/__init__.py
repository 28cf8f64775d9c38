# SPDX-License-Identifier: Apache-2.0
"""Runs: which there are, what they come from, and what they leave behind."""
