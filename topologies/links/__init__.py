# SPDX-License-Identifier: Apache-2.0
"""Links between two nodes: veth pairs, link models and the profiles and traces that they follow, queue disciplines of
Linux, and encapsulations of frames. Knows no Mininet."""
