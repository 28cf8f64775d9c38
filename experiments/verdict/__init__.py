# SPDX-License-Identifier: Apache-2.0
"""Verdicts: claims and goals, their evidence, and the words of pages."""
