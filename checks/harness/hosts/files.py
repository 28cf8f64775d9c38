# SPDX-License-Identifier: Apache-2.0
"""Files over BATCP between two hosts of a lab: what its tests and its measurements share."""

import hashlib
import json
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from accesspoint.topologies.links.paths import PathHost, PathLink
from accesspoint.topologies.requirements import ROOT

HOSTS = Path(os.environ.get("HOSTS", ROOT / "target/release/hosts"))
PORT = 7000


@dataclass(frozen=True)
class TransferResult:
    """Result of one end of a transfer: its exit code, its summary, if there is one, and the rest of its output."""

    code: int
    summary: dict[str, Any]
    said: str


def make_file(path: Path, size: int) -> str:
    """A file of random octets; returns its SHA-256."""
    with path.open("wb") as file:
        digest = hashlib.sha256()
        for at in range(0, size, 1 << 20):
            block = os.urandom(min(1 << 20, size - at))
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


class Transfer:
    """One file from one host to another, over all of `links`, as a context manager."""

    def __init__(
        self,
        links: list[PathLink],
        file: Path,
        folder: Path,
        weights: tuple[str, ...] = (),
        sender: tuple[str, ...] = (),
        both: tuple[str, ...] = (),
        prefix: tuple[str, ...] = (),
    ) -> None:
        """weights: what follows each interface's name, as ":0.1:0.9:4". sender, both: further options of the sender, of
        both ends. prefix: the command that runs the sender."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with tempfile.NamedTemporaryFile("w", suffix=".key", delete=False) as key:  # for its owner's eyes only
            key.write(secrets.token_hex(16))
        self.key = Path(key.name)
        if prefix:
            os.chown(self.key, 65534, 65534)  # who gives up root's rights reads what is nobody's
        both = (*both, "--key-file", str(self.key))
        words = ["--listen", f"0.0.0.0:{PORT}", "--output", str(folder), "--count", "1", "--json", *both]
        self.receiver = links[0].b.popen(HOSTS, "batcp", "receive", *words, **pipes)
        assert self.receiver.stderr
        first = self.receiver.stderr.readline()
        assert first.startswith("listening on"), first
        words = [word for link in links for word in ("--to", f"{link.b_ip}:{PORT}")]
        weights = weights or ("",) * len(links)
        words += [word for link, w in zip(links, weights, strict=True) for word in ("--interface", link.a_if + w)]
        words += ["--json", *both, *sender]
        self.sender = links[0].a.popen(*prefix, HOSTS, "batcp", "send", str(file), *words, **pipes)

    def ends(self, seconds: float = 60) -> tuple[TransferResult, TransferResult]:
        """Waits for both ends; sender and receiver."""
        return _ended(self.sender, seconds), _ended(self.receiver, seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in (self.sender, self.receiver):
            process.kill()
            process.communicate()
        self.key.unlink()


def _ended(process: "subprocess.Popen[str]", seconds: float) -> TransferResult:
    output, said = process.communicate(timeout=seconds)
    return TransferResult(process.returncode, json.loads(output) if output else {}, said.strip())


def received_bytes(host: PathHost, interface: str) -> int:
    """Return the bytes that an interface has received so far."""
    return int(json.loads(host.ip("-s", "-j", "link", "show", interface))[0]["stats64"]["rx"]["bytes"])


def when_received(link: PathLink, octets: int, then: Callable[[], object], seconds: float = 120) -> None:
    """Does `then` once the far end of a link has received so many octets."""
    deadline = time.monotonic() + seconds
    while received_bytes(link.b, link.b_if) < octets:
        assert time.monotonic() < deadline, f"no {octets} octets came over {link.a_if}"
        time.sleep(0.01)
    then()
