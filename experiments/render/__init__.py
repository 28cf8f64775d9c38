# SPDX-License-Identifier: Apache-2.0
"""Figures, reports and the site."""
