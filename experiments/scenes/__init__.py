# SPDX-License-Identifier: Apache-2.0
"""Scenes: cells, radios and modems, and the parts they are made of."""
