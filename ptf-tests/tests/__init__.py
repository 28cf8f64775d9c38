# SPDX-License-Identifier: Apache-2.0
"""Packet tests, a module for each stage of the program."""
