# SPDX-License-Identifier: Apache-2.0
"""Files over FTP, as FileZilla moves them: vsftpd at the server, and lftp at the station. What arrives is written to a
file.

`python -m accesspoint.experiments.scenes.ftp FILE SECONDS COMMAND...` runs a client for so long, and prints `time Mb/s`
four times a second until it is ended (s since the epoch, the end of the interval): FILE's growth. It unlinks FILE as
soon as it has opened it, so that nothing stays on the disk however a run ends.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from accesspoint.experiments.lab.stage import Flow, start_of
from accesspoint.topologies.requirements import LabError

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

PORTS = {"down": 2121, "up": 2122}
SIZE = 1 << 30  # bytes, all holes: more than a timeline carries
BUFFER = 212_992
"""Bytes of the client's socket buffers. FileZilla asks for 4 MiB to receive and 256 KiB to send (its settings "Socket
recv buffer size (v2)", "Socket send buffer size (v2)"), of which Linux gave this much in 2018 (net.core.rmem_max,
wmem_max)."""
OFFERED, RECEIVED = "offered", "received"
INTERVAL = 0.25  # s
TIMED_OUT = 124  # timeout(1)


@dataclass(frozen=True)
class FileTransfer:
    """A file that the first station loads from the server, or sends to it, from `start` to `end` (None: the scene's
    end), at the same instants as a Flow of that name. Samples are `rate_mbps` of source `name`."""

    name: str
    direction: Literal["down", "up"]
    start: float = 0.0
    end: float | None = None

    def prepare(self, stage: "Stage") -> None:
        """Start the server and plan the client. Raises LabError for a missing program."""
        for tool in ("vsftpd", "lftp"):
            if not shutil.which(tool):
                raise LabError(f"{tool} is missing: install it with `apt install {tool}`")
        folder = stage.directory.resolve() / self.name
        folder.mkdir()
        with (folder / OFFERED).open("wb") as offered:
            offered.truncate(SIZE)
        settings, port = folder / "vsftpd.conf", PORTS[self.direction]
        settings.write_text(configuration(folder, port))
        stage.program(stage.server, "vsftpd", str(settings))
        words = (sys.executable, "-m", "accesspoint.experiments.scenes.ftp", str(folder / RECEIVED))
        last = stage.seconds if self.end is None else self.end * stage.scale

        def begin() -> None:
            command = client(folder, self.direction, stage.address, port)
            seconds = f"{last - stage.now():.3f}"
            stage.program(
                stage.station(1), *words, seconds, *command, take=lambda line: stage.take_rate(line, self.name)
            )

        start = start_of(Flow(self.name, self.direction, self.start), stage.seed, stage.scale)
        stage.at(start / stage.scale, begin)
        stage.at(stage.seconds / stage.scale, lambda: shutil.rmtree(folder))


def configuration(folder: Path, port: int) -> str:
    """Return a configuration of vsftpd (vsftpd.conf(5)) that gives anybody a folder, to read and to write new files."""
    settings = {
        "listen": "YES",
        "listen_port": port,
        "background": "NO",
        "run_as_launching_user": "YES",
        "anonymous_enable": "YES",
        "no_anon_password": "YES",
        "anon_root": folder,
        "write_enable": "YES",
        "anon_upload_enable": "YES",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def client(folder: Path, direction: str, address: str, port: int) -> list[str]:
    """Return the command of a client that moves the offered file. One failure ends it."""
    got = shlex.quote(str(folder / RECEIVED)), shlex.quote(str(folder / OFFERED))
    move = f"get {OFFERED} -o {got[0]}" if direction == "down" else f"put {got[1]} -o {RECEIVED}"
    settings = f"set net:socket-buffer {BUFFER}; set net:max-retries 1; set dns:order inet"
    return ["lftp", "--norc", "-c", f"{settings}; open -p {port} {address}; {move}"]


def watch(file: Path, seconds: float, command: Sequence[str]) -> None:
    """Run a client and print rates until the process ends. Exits when the client ends before its time."""
    client = subprocess.Popen(
        ["timeout", "--foreground", f"{seconds:.3f}", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    due, before, received = time.time() + INTERVAL, 0, None
    while client.poll() in (None, TIMED_OUT):
        time.sleep(max(0.0, due - time.time()))
        if received is None and file.exists():
            received = file.open("rb")
            file.unlink()
        volume = os.fstat(received.fileno()).st_size if received else 0
        print(f"{due:.3f} {(volume - before) * 8 / INTERVAL / 1e6:.3f}", flush=True)
        due, before = due + INTERVAL, volume
    sys.exit(f"the client ended before its time: {client.communicate()[1].strip()}")


if __name__ == "__main__":
    watch(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
