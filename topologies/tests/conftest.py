# SPDX-License-Identifier: Apache-2.0
"""Labs for tests: each is a program of its own, as a user starts it, and is killed at the latest with its test."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accesspoint.topologies.requirements import ROOT

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `python ARGUMENTS` in the project's root, with its output in `stdout`."""
    running = []

    def start_(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        running.append(process)
        return process

    yield start_
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@pytest.fixture
def privileged() -> None:
    """Skip a test that makes network namespaces when it does not run as root."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")


def descendants(pid: int) -> set[int]:
    """The process ids of all children, their children, and so on."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # gone meanwhile
    found, fresh = set(), {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh}
        found |= fresh
    return found


def network_namespaces(pids: set[int]) -> set[int]:
    """The network namespaces (inodes) of processes."""
    found = set()
    for pid in pids:
        try:
            found.add(os.stat(f"/proc/{pid}/ns/net").st_ino)
        except OSError:
            continue
    return found


def links() -> str:
    """The interfaces of the machine's own namespace."""
    return subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
