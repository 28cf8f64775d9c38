# SPDX-License-Identifier: Apache-2.0
"""The harness of all checks and tests: servers, frames, switches in simulated time, and end hosts."""

import os

# Servers are forked while clients run: gRPC's handlers of a fork end the child before it is exec'd.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
