# SPDX-License-Identifier: Apache-2.0
"""Databases for tests: SQLite in a file, and a PostgreSQL server of the test's own, without a network."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from accesspoint.checks.harness.waiting import eventually

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
USER = "postgres"


def missing_postgresql() -> str | None:
    """Return the reason why PostgreSQL cannot run here, or None."""
    if not BINARIES:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(USER)
        except KeyError:
            return f"the user {USER} is missing, and PostgreSQL does not run as root: apt-get install postgresql"
    return None


def prepared(directory: Path) -> tuple[list[str], str]:
    """Make a server that listens on a socket in `directory` only; return its command, which ends with its parent, and
    its URL."""
    directory.mkdir()
    as_user = []
    if os.geteuid() == 0:
        account = pwd.getpwnam(USER)
        os.chown(directory, account.pw_uid, account.pw_gid)
        ids = f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"
        as_user = ["setpriv", *ids, "--pdeathsig=QUIT"]
    data, binaries = directory / "data", BINARIES[-1]
    make = [*as_user, str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", USER, "-N"]
    subprocess.run(make, check=True, capture_output=True, cwd=directory)
    settings = "listen_addresses=", "fsync=off", "shared_buffers=4MB", "max_connections=30"
    options = [word for setting in settings for word in ("-c", setting)]
    command = [*as_user, str(binaries / "postgres"), "-D", str(data), "-k", str(directory), *options]
    return command, f"postgresql://{USER}@/{USER}?host={directory}"


def answers(directory: Path) -> bool:
    """Return True when the server of a folder takes connections."""
    return subprocess.run([BINARIES[-1] / "pg_isready", "-q", "-h", directory], check=False).returncode == 0


@contextlib.contextmanager
def postgresql(directory: Path) -> Iterator[str]:
    """Run a new server; yields its URL."""
    command, url = prepared(directory)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        assert eventually(lambda: answers(directory), 240), (directory / "log").read_text()
        yield url
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)
