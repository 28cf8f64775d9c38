# SPDX-License-Identifier: Apache-2.0
"""The harness of all checks and tests: servers, frames, switches in simulated time, and end hosts."""
