# SPDX-License-Identifier: Apache-2.0
"""End hosts under test: cells, links and kernels to run the program `hosts` in, its processes, and its recordings."""
