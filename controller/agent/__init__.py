# SPDX-License-Identifier: Apache-2.0
"""Control of one switch: session, learning, entries and the 10 ms loop; `local_backend` is its interface."""
