# SPDX-License-Identifier: Apache-2.0
"""Helpers of tests and benchmarks of congestion controls: loading them, and transfers between hosts of a lab."""

import contextlib
import ctypes
import itertools
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from accesspoint.topologies.kernels.controls import alone
from accesspoint.topologies.links.paths import Namespace, PathHost, PathLink, Paths
from accesspoint.topologies.requirements import ROOT, LabError

HOSTS = Path(os.environ.get("HOSTS", ROOT / "target/release/hosts"))
TRANSFER = ROOT / "checks/harness/hosts/transfer.py"
MARK = ROOT / "checks/harness/hosts/mark.bpf.c"
UML_CONTROLS = ["vegas", "westwood"]  # those that both kernels have
UML_MODULES = Path("/usr/lib/uml/modules")
UML_LINK: dict[str, Any] = {"rate": "4mbit", "limit": 20, "delay": "50ms"}
UML_PLAN = "18s"
LIBC = ctypes.CDLL(None, use_errno=True)
SYS_BPF = 321  # x86-64
MAP_GET_NEXT_ID, MAP_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD = 12, 14, 15
MAP_INFO_SIZE = 80
PORTS = itertools.count(5000)


def kernel_name(control: str) -> str:
    return f"bpf_{control}"


def available() -> list[str]:
    """The congestion controls that the kernel knows now."""
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def hosts(*words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([HOSTS, *words], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise LabError(done.stderr.strip())
    return done


def rows(*words: str, host: Namespace | None = None) -> list[dict[str, Any]]:
    """Return the lines that `hosts cc WORDS --json` prints, in the namespace of `host`."""
    output = host.run(HOSTS, "cc", *words, "--json") if host else hosts("cc", *words, "--json").stdout
    return [json.loads(line) for line in output.splitlines()]


@contextlib.contextmanager
def loaded(control: str, *options: str, record: IO[str] | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A control for the time of a `with`; its events go to `record`. Raises LabError."""
    with alone(control):
        yield from _loaded(control, options, record)


def _loaded(control: str, options: tuple[str, ...], record: IO[str] | None) -> Iterator["subprocess.Popen[str]"]:
    said = subprocess.PIPE
    words = [HOSTS, "cc", "record" if record else "run", control, *options]
    process = subprocess.Popen(words, stdout=record or said, stderr=said, text=True)
    stream = process.stderr if record else process.stdout
    assert stream
    assert process.stderr
    try:
        if "is loaded" not in stream.readline():
            raise LabError(f"{control} was not loaded: {process.stderr.read()}")
        yield process
    finally:
        process.terminate()
        _, errors = process.communicate()
    if process.returncode != 0:
        raise LabError(errors)


def bpf_maps(name: str) -> int:
    """Count the BPF maps of that name in the kernel. A control's is called `control` and keeps its programs."""

    def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
        buffer = ctypes.create_string_buffer(attributes, len(attributes))
        return LIBC.syscall(SYS_BPF, command, buffer, len(attributes)), buffer.raw

    found, previous = 0, 0
    while True:
        result, answer = bpf(MAP_GET_NEXT_ID, struct.pack("III", previous, 0, 0))
        if result != 0:
            return found
        previous = struct.unpack_from("I", answer, 4)[0]
        fd, _ = bpf(MAP_GET_FD_BY_ID, struct.pack("III", previous, 0, 0))
        if fd < 0:
            continue  # gone meanwhile
        info = ctypes.create_string_buffer(MAP_INFO_SIZE)
        bpf(OBJ_GET_INFO_BY_FD, struct.pack("IIQ", fd, MAP_INFO_SIZE, ctypes.addressof(info)))
        found += info.raw[24:40].rstrip(b"\0") == name.encode()
        os.close(fd)


class Transfer:
    """One connection from the `a` to the `b` side of a link, see transfer.py; `to`: not to the IPv4 address of `b`."""

    def __init__(self, link: PathLink, control: str, plan: str, to: str = "") -> None:
        port = next(PORTS)
        self.sender: subprocess.Popen[str] | None = None
        self.receiver = start_receiver(link.b, port)
        words = ["send", to or link.b_ip, str(port), control, plan]
        self.sender = link.a.popen(sys.executable, TRANSFER, *words, stdout=subprocess.PIPE, text=True)

    def result(self) -> dict[str, Any]:
        """Both programs' figures, the receiver's count of bytes as `received`."""
        assert self.sender
        sent = json.loads(self.sender.communicate(timeout=120)[0])
        received = json.loads(self.receiver.communicate(timeout=120)[0])
        return {**received, "received": received["bytes"], **sent}

    def abandon(self) -> None:
        """Ends both programs."""
        for process in (self.sender, self.receiver):
            if process:
                process.kill()
                process.communicate()


def mark(link: PathLink, share: float) -> None:
    """Switch ECN (RFC 3168) on at both ends of a link, and mark that share of the packets that reach `b`."""
    for host in (link.a, link.b):
        host.set("net.ipv4.tcp_ecn", 1)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "mark.o")
        include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
        words = ["clang", "-O2", "-g", "-target", "bpf", include, f"-DSHARE={int(share * 0xFFFFFFFF)}u"]
        subprocess.run([*words, "-c", MARK, "-o", made], check=True)
        link.b.run("tc", "qdisc", "add", "dev", link.b_if, "clsact")
        link.b.run("tc", "filter", "add", "dev", link.b_if, "ingress", "bpf", "da", "obj", made, "sec", "tc")


def start_receiver(host: PathHost, port: int) -> "subprocess.Popen[str]":
    """transfer.py's receiver, listening."""
    receiver = host.popen(sys.executable, TRANSFER, "receive", str(port), stdout=subprocess.PIPE, text=True)
    assert receiver.stdout
    receiver.stdout.readline()
    return receiver


def uml_lacks() -> str | None:
    """Return what is missing to run UML_CONTROLS of the kernel under user-mode-linux, with the fix, or None."""
    if not any(Path(folder, "linux.uml").exists() for folder in os.environ["PATH"].split(":")):
        return "user-mode-linux is not installed (apt-get install user-mode-linux)"
    missing = [name for name in UML_CONTROLS if not uml_module(name)]
    return f"the kernel of user-mode-linux has no module tcp_{missing[0]}" if missing else None


def uml_module(control: str) -> Path | None:
    return next(UML_MODULES.glob(f"*/kernel/net/ipv4/tcp_{control}.ko"), None)


class UmlTransfer:
    """A Transfer whose sender is another Linux kernel, with its own `control`, in the place of host `a`.

    user-mode-linux boots on this machine's files and takes over the interface by a packet socket.
    """

    def __init__(self, link: PathLink, control: str, plan: str) -> None:
        port = next(PORTS)
        self._folder = tempfile.TemporaryDirectory()
        self.receiver = start_receiver(link.b, port)
        link.a.ip("address", "flush", "dev", link.a_if)
        mac = json.loads(link.a.run("ip", "-j", "link", "show", link.a_if))[0]["address"]
        folder = Path(self._folder.name)
        init = folder / "init"
        init.write_text(
            f"""#!/bin/sh
            export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
            mount -t proc proc /proc
            insmod {uml_module(control)}
            ethtool -K vec0 tso off gso off gro off
            ip link set vec0 address {mac}
            ip address add {link.a_ip}/24 dev vec0
            ip link set vec0 up
            python3 {TRANSFER} send {link.b_ip} {port} {control} {plan} >{folder}/out
            poweroff -f
            """
        )
        init.chmod(0o755)
        # A kernel that waits for a processor is a slow host. In a PID namespace, so that its processes end with it.
        words = [
            "nice",
            "-n",
            "-10",
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "linux.uml",
            f"uml_dir={folder}/",
            f"init={init}",
        ]
        words += ["rootfstype=hostfs", "rw", "mem=256M", "con=null", "con0=fd:0,fd:1", "quiet"]
        words += [f"vec0:transport=raw,ifname={link.a_if},depth=64,gro=0"]
        with (folder / "console").open("w") as console:
            self.kernel = link.a.popen(*words, stdin=subprocess.DEVNULL, stdout=console, stderr=console)

    def result(self) -> dict[str, Any]:
        folder = Path(self._folder.name)
        try:
            self.kernel.wait(120)
            sent = json.loads((folder / "out").read_text())
        except (OSError, ValueError, subprocess.TimeoutExpired):
            raise LabError(f"user-mode-linux failed: {(folder / 'console').read_text()[-500:]}") from None
        finally:
            self.kernel.kill()
            self._folder.cleanup()
        received = json.loads(self.receiver.communicate(timeout=120)[0])
        return {**received, "received": received["bytes"], **sent}


def compare_kernels() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Results of each of UML_CONTROLS in BPF and of another kernel's own: all at once, each on a link of its own.

    Raises LabError.
    """
    with contextlib.ExitStack() as stack:
        paths = stack.enter_context(Paths())

        def link() -> PathLink:
            return paths.link(paths.host("a"), paths.host("b"), **UML_LINK)

        for name in UML_CONTROLS:
            stack.enter_context(loaded(name))
        theirs = [UmlTransfer(link(), name, UML_PLAN) for name in UML_CONTROLS]
        ours = [Transfer(link(), kernel_name(name), UML_PLAN) for name in UML_CONTROLS]
        pairs = zip(UML_CONTROLS, ours, theirs, strict=True)
        return {name: (bpf.result(), own.result()) for name, bpf, own in pairs}
