# SPDX-License-Identifier: Apache-2.0
"""Paper 003: one connection over several interfaces."""
