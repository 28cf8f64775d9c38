# SPDX-License-Identifier: Apache-2.0
"""Offers frames straight to an interface's receive path, which one core can do at more than twice a sender's rate.

A sender on a packet socket has each frame copied into the kernel and carried through the veth, so that its core offers
hardly more than the switch's core carries. `inject.bpf.c` starts where the veth hands a frame over (netif_rx): from
there on nothing differs. It runs within a system call and is attached to nothing.
"""

import argparse
import ctypes
import json
import os
import socket
import subprocess
import tempfile
import time
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from pathlib import Path
from typing import Any

from scapy.utils import RawPcapReader

from accesspoint.checks.bench.report import run
from accesspoint.topologies.requirements import LabError

SOURCE = Path(__file__).parent / "inject.bpf.c"
CLANG = ("clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror")
PR_SET_TIMERSLACK = 29
BATCH = 64


class Context(Structure):
    """struct __sk_buff: what `inject.bpf.c` uses, and room for all that a kernel gives back."""

    _fields_ = (
        ("before", c_uint32 * 10),
        ("ifindex", c_uint32),
        ("tc_index", c_uint32),
        ("cb", c_uint32 * 5),
        ("after", c_uint32 * 64),
    )


class TestRun(Structure):
    """struct bpf_test_run_opts of libbpf."""

    _fields_ = (
        ("sz", c_size_t),
        ("data_in", c_char_p),
        ("data_out", c_void_p),
        ("data_size_in", c_uint32),
        ("data_size_out", c_uint32),
        ("ctx_in", POINTER(Context)),
        ("ctx_out", POINTER(Context)),
        ("ctx_size_in", c_uint32),
        ("ctx_size_out", c_uint32),
        ("retval", c_uint32),
        ("repeat", c_int),
        ("duration", c_uint32),
        ("flags", c_uint32),
        ("cpu", c_uint32),
        ("batch_size", c_uint32),
    )


def libbpf() -> ctypes.CDLL:
    """Load libbpf, which iproute2 needs as well. Raises LabError when it is missing."""
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise LabError(f"{error}; install it with: apt-get install libbpf1") from None
    for function in (
        library.bpf_object__open_file,
        library.bpf_object__find_map_by_name,
        library.bpf_object__find_program_by_name,
    ):
        function.argtypes, function.restype = (c_void_p, c_char_p), c_void_p
    library.bpf_object__open_file.argtypes = (c_char_p, c_void_p)
    for function in (library.bpf_object__load, library.bpf_map__fd, library.bpf_program__fd):
        function.argtypes = (c_void_p,)
    library.bpf_map_update_elem.argtypes = (c_int, POINTER(c_uint32), c_char_p, c_uint64)
    library.bpf_prog_test_run_opts.argtypes = (c_int, POINTER(TestRun))
    return library


def checked(what: str, result: Any) -> Any:
    """Return libbpf's result. Raises LabError when that is an error."""
    if result is None or result < 0:
        raise LabError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


class Injector:
    """Frames, all of one length, and the interface of this network namespace that shall receive them."""

    def __init__(self, interface: str, frames: list[bytes]) -> None:
        try:
            index = socket.if_nametoindex(interface)
        except OSError as error:
            raise LabError(f"{interface}: {error}") from None
        size = len(frames[0])
        if any(len(frame) != size for frame in frames):
            raise LabError("the frames differ in length; only frames of one length can be injected")
        self._bpf = libbpf()
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/inject.bpf.o"
            command = [
                *CLANG,
                f"-DFRAMES={len(frames)}",
                f"-DFRAME_BYTES={size}",
                f"-DBATCH={BATCH}",
                "-c",
                str(SOURCE),
                "-o",
                path,
            ]
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except FileNotFoundError:
                raise LabError("clang is missing; install it with: apt-get install clang") from None
            if done.returncode:
                raise LabError(f"clang cannot compile {SOURCE.name}: {done.stderr.strip()}")
            program = checked(f"opening {path}", self._bpf.bpf_object__open_file(path.encode(), None))
        checked(f"loading {SOURCE.name} into the kernel", self._bpf.bpf_object__load(program))
        slots = self._bpf.bpf_map__fd(self._bpf.bpf_object__find_map_by_name(program, b"frames"))
        for number, frame in enumerate(frames):
            put = self._bpf.bpf_map_update_elem(slots, byref(c_uint32(number)), frame, 0)
            checked("handing the frames to the kernel", put)
        self._program = self._bpf.bpf_program__fd(self._bpf.bpf_object__find_program_by_name(program, b"inject"))
        self._before, self._after = Context(ifindex=index), Context()
        self._options = TestRun(
            sz=sizeof(TestRun),
            data_in=frames[0],
            data_size_in=size,
            ctx_in=ctypes.pointer(self._before),
            ctx_out=ctypes.pointer(self._after),
            ctx_size_in=sizeof(Context),
            ctx_size_out=sizeof(Context),
        )

    def batch(self) -> int:
        """Offers the next frames; how many of them the interface took."""
        checked("running the BPF program", self._bpf.bpf_prog_test_run_opts(self._program, byref(self._options)))
        self._before.cb[0], taken = self._after.cb[0:2]
        return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.checks.bench.switch.inject", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("interface")
    parser.add_argument("frames", type=Path, help="pcap file; its frames, all of one length, over and over")
    parser.add_argument("--rate", type=float, default=0, help="packets per second; 0: as fast as it can")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    injector = Injector(options.interface, [frame for frame, _ in RawPcapReader(str(options.frames))])
    # To the microsecond: by default the kernel wakes a sleeper up to 50 µs late.
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    packets, taken, start = 0, 0, time.perf_counter()
    while (now := time.perf_counter() - start) < options.seconds:
        if options.rate and (due := packets / options.rate) > now:
            # Asleep rather than spinning: others need the CPU, too.
            time.sleep(due - now)
        packets += BATCH
        taken += injector.batch()
    print(json.dumps({"packets": packets, "refused": packets - taken, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    run(main)
