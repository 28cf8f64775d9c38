# SPDX-License-Identifier: Apache-2.0
"""What stands beside one switch: session, learning, entries and the 10 ms loop; `control` is what others ask of it."""
