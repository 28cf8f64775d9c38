# SPDX-License-Identifier: Apache-2.0
"""The harness of checks and tests."""

import os
import socket
import subprocess
import sys

import pytest

from accesspoint.checks.harness.waiting import free_port

FORKS = """
import subprocess
import {}
import grpc
clients = [grpc.channel_ready_future(grpc.insecure_channel("127.0.0.1:9")) for _ in range(20)]
for _ in range(300):
    subprocess.run(["true"], preexec_fn=lambda: None, check=True)
print("all ran", flush=True)
"""


@pytest.mark.parametrize("module", ["accesspoint.checks.harness.p4runtime", "accesspoint.ptf_tests.targets"])
def test_servers_start_while_grpc_clients_run(module: str) -> None:
    own = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    command = [sys.executable, "-c", FORKS.format(module)]
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("all ran\n", "")


def test_a_free_port_is_given_to_its_server_alone() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)) as client:
        assert server.accept()[1] == client.getsockname()
