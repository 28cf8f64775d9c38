# SPDX-License-Identifier: Apache-2.0
"""The harness of checks and tests."""

import subprocess
import sys

FORKS = """
import subprocess
import accesspoint.checks.harness
import grpc
clients = [grpc.channel_ready_future(grpc.insecure_channel("127.0.0.1:9")) for _ in range(20)]
for _ in range(300):
    subprocess.run(["true"], preexec_fn=lambda: None, check=True)
print("all ran", flush=True)
"""


def test_servers_start_while_grpc_clients_run() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("all ran\n", "")
