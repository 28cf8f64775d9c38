# SPDX-License-Identifier: Apache-2.0
"""Checks of a server from outside: conformance, attacks, speed, and the harness that they share."""

import os

# gRPC reads this when it is imported. Servers are forked while clients run, and its handlers of a fork would end the
# child before it is exec'd.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
