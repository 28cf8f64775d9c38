# SPDX-License-Identifier: Apache-2.0
"""Two veth pairs in a namespace of their own, and the processes that run in it.

gen --veth-- left [the switch] right --veth-- sink
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SWITCH = ROOT / "switch/target/release/apswitch"
TRAFFIC = ROOT / "switch/target/release/apswitch-bench"


class BenchError(RuntimeError):
    """One line that names what is missing and the mend."""


def run(*command: str | Path) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Lab:
    """The namespace; `start` runs a program inside, `close` ends what it started."""

    def __init__(self) -> None:
        self.namespace = f"apbench{os.getpid()}"
        self.processes: list[subprocess.Popen[bytes]] = []
        run("ip", "netns", "add", self.namespace)
        try:
            for left, right in (("gen", "left"), ("right", "sink")):
                self.ip("link", "add", left, "type", "veth", "peer", "name", right)
                for name in (left, right):
                    # No IPv6 chatter beside the measured packets.
                    self.inside("sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
                    self.ip("link", "set", name, "up")
                    offloads = [word for o in ("tx", "rx", "tso", "gso", "gro", "sg") for word in (o, "off")]
                    self.inside("ethtool", "-K", name, *offloads)
            self.ip("link", "set", "lo", "up")
        except BenchError:
            self.close()
            raise

    def ip(self, *words: str) -> str:
        return run("ip", "-n", self.namespace, *words)

    def inside(self, *command: str | Path) -> str:
        return run("ip", "netns", "exec", self.namespace, *command)

    def start(self, *command: str | Path, core: int) -> subprocess.Popen[bytes]:
        """A program inside the namespace on one core, so that sender and switch never share one by chance."""
        words = ["ip", "netns", "exec", self.namespace, "taskset", "-c", str(core), *map(str, command)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.processes.remove(process)

    def received(self) -> int:
        """Packets that have reached `sink`."""
        return int(self.inside("cat", "/sys/class/net/sink/statistics/rx_packets"))

    def close(self) -> None:
        for process in list(self.processes):
            self.stop(process)
        with contextlib.suppress(BenchError):
            run("ip", "netns", "del", self.namespace)


@contextlib.contextmanager
def lab() -> Iterator[Lab]:
    """A lab that is gone afterwards, also after an exception or Ctrl-C."""
    made = Lab()
    try:
        yield made
    finally:
        made.close()


def resident_bytes(pid: int) -> int:
    """RSS of a process (proc_pid_status(5))."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"process {pid} has no VmRSS; is it still running?")
