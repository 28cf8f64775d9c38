# SPDX-License-Identifier: Apache-2.0
"""Stand of a case: the target under BMv2's names, the given folders, and the processes of its client."""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from accesspoint.checks.foreign.case import FOLDERS, Failed, NotRun
from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies import targets
from accesspoint.topologies.links import veth
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.requirements import ROOT

CLIENTS = ROOT / "out/foreign/venv/bin"  # tools/install.sh foreign
MININET = Path("/usr/lib/python3/dist-packages/mininet")
P4RUNTIME = "127.0.0.1:9559"
PORTS = (1, 2, 3)
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


class Stand:
    """The place of one case. scratch: a folder that vanishes with it. log: takes what the processes print. patience: s
    that one thing may take."""

    def __init__(self, target: str, folders: Mapping[str, Path], scratch: Path, log: Path, patience: float) -> None:
        self.target = target
        self.folders = folders
        self.scratch = scratch
        self.log = log
        self.patience = patience
        self.wires = veth.Wires({})
        self.received: defaultdict[int, list[bytes]] = defaultdict(list)
        bin_ = scratch / "bin"
        bin_.mkdir()
        for name, program in programs(target).items():
            (bin_ / name).symlink_to(program)
        (bin_ / "sudo").write_text('#!/bin/sh\nexec env "$@"\n')  # scripts call it, and who runs this is root
        (bin_ / "sudo").chmod(0o755)
        if MININET.is_dir():  # alone: a virtual environment shall not see the distribution's other packages
            (scratch / "python").mkdir()
            (scratch / "python/mininet").symlink_to(MININET)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
            "PATH": os.pathsep.join((str(bin_), str(CLIENTS), os.environ["PATH"])),
            "PYTHONPATH": str(scratch / "python"),
            "PYTHONUNBUFFERED": "1",
            "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
            "HOME": str(scratch),
            "TERM": "dumb",
        }

    @property
    def python(self) -> str:
        """The Python that has the clients of PyPI. Raises NotRun."""
        path = CLIENTS / "python"
        if not path.exists():
            raise NotRun("the clients of PyPI are missing: tools/install.sh foreign")
        return str(path)

    def folder(self, name: str) -> Path:
        """Return a folder that the user gave. Raises NotRun."""
        if name not in self.folders:
            raise NotRun(f"no checkout of {FOLDERS[name]} was given: {name.upper().replace('-', '_')}=DIR")
        return self.folders[name]

    def copy(self, name: str, *parts: str) -> Path:
        """Copy parts of a folder that the user gave, as clients write beside their sources; return the copy."""
        source, copied = self.folder(name), self.scratch / name
        for part in parts:
            if not (source / part).exists():
                raise NotRun(f"{source.name} has no {part}: is it {FOLDERS[name]}?")
            shutil.copytree(source / part, copied / part, symlinks=True, dirs_exist_ok=True)
        return copied

    def run(
        self,
        *command: str | Path,
        cwd: Path | None = None,
        stdin: str = "",
        seconds: float | None = None,
        environment: Mapping[str, str] | None = None,
        succeeds: bool = True,
    ) -> str:
        """Run a client to its end; return its output without colours. Raises Failed when it fails or takes longer."""
        words = [str(word) for word in command]
        process = subprocess.Popen(
            words,
            cwd=cwd or self.scratch,
            env={**self.environment, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        late = False
        seconds = self.patience if seconds is None else seconds
        try:
            output, _ = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        output = ANSI.sub("", output)
        self.note(f"$ {' '.join(words)}\n{output}\n")
        name = Path(words[0]).name
        if late:
            raise Failed(f"{name} did not end within {seconds:g} s: {last(output)}")
        if succeeds and process.returncode:
            raise Failed(f"{name} ended with {process.returncode}: {last(output)}")
        return output

    def wait_text(self, path: Path, pattern: str, seconds: float, what: str) -> str:
        """Wait until a file that a client writes has the pattern; return its text. Raises Failed."""

        def text() -> str:
            return ANSI.sub("", path.read_text(errors="replace")) if path.exists() else ""

        found = eventually(lambda: re.search(pattern, text(), re.S), seconds, pause=0.1)
        self.note(f"-- {path.name}\n{text()}\n")
        if not found:
            raise Failed(what)
        return text()

    def note(self, text: str) -> None:
        """Write to the log."""
        with self.log.open("a") as log:
            log.write(text)

    @contextmanager
    def switch(
        self,
        *options: str,
        ports: Sequence[int] = PORTS,
        device_id: int = 0,
        program: Path | None = None,
        address: str = P4RUNTIME,
        server: Sequence[str] = (),
    ) -> Iterator[None]:
        """Run the switch on veth pairs whose far ends are `self.wires`. options: before `--`; server: after it."""
        near, far = veth.make(tuple(ports))
        command = ["simple_switch_grpc", "--device-id", str(device_id), "--log-console", "-L", "warn", *options]
        command += [word for port, name in near.items() for word in ("-i", f"{port}@{name}")]
        command += [str(program or "--no-p4"), "--", "--grpc-server-addr", address]
        command += ["--cpu-port", str(targets.CPU_PORT), *server]
        self.wires = veth.Wires(far)
        with self.log.open("a") as log:
            process = subprocess.Popen(command, env=self.environment, cwd=self.scratch, stdout=log, stderr=log)
        try:
            if (
                not eventually(lambda: process.poll() is not None or listens(address), self.patience)
                or process.poll() is not None
            ):
                raise Failed(f"the switch does not start: {last(self.log.read_text(errors='replace'))}")
            yield
            if process.poll() is not None:
                raise Failed(f"the switch ended with {process.returncode}")
        finally:
            stop_process(process)

    def frames(self, port: int, count: int) -> list[bytes]:
        """Wait for so many frames out of a port of the switch; return them. Raises Failed."""
        found = self.received[port]

        def came() -> bool:
            for number, frame in self.wires.receive(0.05):
                self.received[number].append(frame)
            return len(found) >= count

        if not eventually(came, self.patience):
            raise Failed(f"{len(found)} frames left port {port}, not {count}")
        return found


def programs(target: str) -> dict[str, Path]:
    """Return the names that scripts for BMv2 call, and the target's programs. Raises NotRun."""
    try:
        own = Path(targets.find(target).binary()).resolve()
    except targets.LabError as error:
        raise NotRun(str(error)) from None
    if target != "bmv2":
        names = {name: own.with_name(name) for name in ("simple_switch_grpc", "simple_switch")}
        if missing := [path for path in names.values() if not path.exists()]:
            raise NotRun(f"{missing[0]} is missing: build it with `make switch`")
        return names
    found = {
        "simple_switch_grpc": str(own),
        **{name: shutil.which(name) for name in ("simple_switch", "simple_switch_CLI")},
    }
    return {name: Path(path).resolve() for name, path in found.items() if path}


def listens(address: str) -> bool:
    """Return whether a TCP port is open."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.replace("0.0.0.0", "127.0.0.1"), int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def last(output: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"


class Session:
    """A client with a prompt: a line is typed when the prompt is there, as a person does. Ends with the block."""

    def __init__(self, stand: Stand, *command: str | Path, cwd: Path, prompt: str, seconds: float = 60.0) -> None:
        self.stand = stand
        self.prompt = prompt
        words = [str(word) for word in command]
        self.name = Path(words[0]).name
        stand.note(f"$ {' '.join(words)}\n")
        self.process = subprocess.Popen(
            words,
            cwd=cwd,
            env=stand.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            self.opening = self._read(seconds)
        except BaseException:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise

    def ask(self, line: str, seconds: float = 60.0) -> str:
        """Type a line; return the output up to the next prompt. Raises Failed when there is none in time."""
        assert self.process.stdin
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.name} has ended before `{line}`") from None
        return self._read(seconds)

    def _read(self, seconds: float) -> str:
        assert self.process.stdout
        file, said, end = self.process.stdout.fileno(), b"", time.monotonic() + seconds
        while not said.rstrip(b" ").endswith(self.prompt.rstrip().encode()):
            ready, _, _ = select.select([file], [], [], max(0.0, end - time.monotonic()))
            more = os.read(file, 65536) if ready else b""
            said += more
            if not more:
                text = ANSI.sub("", said.decode(errors="replace"))
                self.stand.note(text)
                why = "has ended" if ready else f"has no prompt after {seconds:g} s"
                raise Failed(f"{self.name} {why}: {last(text)}")
        text = ANSI.sub("", said.decode(errors="replace"))
        self.stand.note(text)
        return text.removesuffix(self.prompt)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):
            assert self.process.stdin
            self.process.stdin.write(b"exit\n")
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
