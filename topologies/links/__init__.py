# SPDX-License-Identifier: Apache-2.0
"""What is between two nodes: veth pairs, link models and the profiles and traces that they follow, queue disciplines of
Linux, and what frames may be encapsulated in. Knows no Mininet."""
