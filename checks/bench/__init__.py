# SPDX-License-Identifier: Apache-2.0
"""Speed and memory, always as ratios within one run. `make bench`."""
