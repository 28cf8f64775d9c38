# SPDX-License-Identifier: Apache-2.0
"""Speed of the hosts' transports, always beside a peer in the same run."""
