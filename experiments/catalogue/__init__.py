# SPDX-License-Identifier: Apache-2.0
"""The experiments themselves, a folder for each question."""
