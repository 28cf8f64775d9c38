# SPDX-License-Identifier: Apache-2.0
"""apswitch as a process, without program and interfaces."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accesspoint.checks.harness.p4runtime import WAIT
from accesspoint.checks.harness.waiting import free_port
from accesspoint.topologies.requirements import ROOT

BINARY = Path(os.environ.get("APSWITCH", ROOT / "target/release/apswitch"))
CPU_PORT = 510


def free_address() -> str:
    """Return an address on loopback that is free now."""
    return f"127.0.0.1:{free_port()}"


def start_switch(address: str, *options: str) -> subprocess.Popen:
    if not BINARY.exists():
        pytest.fail(f"{BINARY} is missing; build it with: make switch")
    command = [str(BINARY), "--no-p4", "--device-id", "1", *options]
    command += ["--", "--grpc-server-addr", address, "--cpu-port", str(CPU_PORT)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_it_listens(address: str, process: subprocess.Popen) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + WAIT
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port))).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.01)
    process.kill()
    pytest.fail(f"the switch does not listen: {process.communicate()[1]}")


@contextlib.contextmanager
def running(address: str, process: subprocess.Popen) -> Iterator[None]:
    """Wait until the switch listens, and end it afterwards; it must not end by itself."""
    try:
        wait_until_it_listens(address, process)
        yield
        assert process.poll() is None, f"the switch ended by itself: {process.communicate()[1]}"
    finally:
        process.terminate()
        try:
            process.communicate(timeout=WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
