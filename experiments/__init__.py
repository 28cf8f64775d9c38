# SPDX-License-Identifier: Apache-2.0
"""Experiments on the access point: declared as data, run in fresh labs, ended in a table, plots and a summary."""
