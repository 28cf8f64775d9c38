# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of BATCP's option and proxies: daemons, programs that use them, a list of BPF programs."""

import ctypes
import json
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from accesspoint.topologies.links.paths import PathHost
from accesspoint.topologies.requirements import ROOT

HOSTS = Path(os.environ.get("HOSTS", ROOT / "target/release/hosts"))
WIRE = Path(__file__).parent / "wire.py"
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and BPF programs need root")

_SYS_BPF = 321  # x86-64
_PROG_GET_NEXT_ID, _PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD = 11, 13, 15
_libc = ctypes.CDLL(None, use_errno=True)


class Daemon:
    """A daemon in a namespace, `ready` when it has said so (None: not waited for); its lines are in `log`."""

    def __init__(self, host: PathHost, *words: "str | Path", ready: str | None) -> None:
        self._host = host
        self.process = host.popen(HOSTS, "batcp", *words, stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if ready:
            self.await_line(ready)

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.log.append(line.rstrip())

    def await_line(self, text: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not any(text in line for line in list(self.log)):
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log}"
            assert time.monotonic() < deadline, f"never said '{text}': {self.log}"
            time.sleep(0.005)

    def kill(self) -> None:
        """SIGKILL, and waits for the end."""
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def status(self) -> dict[str, Any]:
        """Return this process' row of `hosts batcp status`."""
        rows = [json.loads(line) for line in self._host.run(HOSTS, "batcp", "status", "--json").splitlines()]
        return next(row for row in rows if row["pid"] == self.process.pid)

    def counts(self) -> dict[str, int]:
        """Return the TCP option's counts of this process."""
        counts: dict[str, int] = self.status()["option"]
        return counts


def python(host: PathHost, program: str, *arguments: str, **options: Any) -> "subprocess.Popen[Any]":
    """Runs Python code in a namespace."""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return host.popen(sys.executable, "-c", program, *arguments, **options)


def programs(names: tuple[str, ...] = ("batcp_",)) -> list[str]:
    """The names of the BPF programs that the kernel holds, of those that begin with one of `names`."""
    found, identity = [], 0
    while (identity := _next_program(identity)) != 0:
        attributes = ctypes.create_string_buffer(struct.pack("I", identity), 128)
        descriptor = _libc.syscall(_SYS_BPF, _PROG_GET_FD_BY_ID, attributes, 128)
        if descriptor < 0:
            continue  # gone meanwhile
        info = ctypes.create_string_buffer(256)
        query = struct.pack("IIQ", descriptor, 256, ctypes.addressof(info))
        _libc.syscall(_SYS_BPF, _OBJ_GET_INFO_BY_FD, ctypes.create_string_buffer(query, 128), 128)
        os.close(descriptor)
        name = info.raw[64:80].split(b"\0")[0].decode()  # struct bpf_prog_info: name
        if name.startswith(names):
            found.append(name)
    return found


def _next_program(identity: int) -> int:
    attributes = ctypes.create_string_buffer(struct.pack("II", identity, 0), 128)
    if _libc.syscall(_SYS_BPF, _PROG_GET_NEXT_ID, attributes, 128) != 0:
        return 0
    return int(struct.unpack("II", attributes.raw[:8])[1])
