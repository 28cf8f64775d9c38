# SPDX-License-Identifier: Apache-2.0
"""Speed of the hosts' transports, always compared with a peer in the same run."""
