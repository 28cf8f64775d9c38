# SPDX-License-Identifier: Apache-2.0
"""Databases for tests: SQLite in a file, and a PostgreSQL server of the test's own, without a network."""

import contextlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

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


@contextlib.contextmanager
def postgresql(directory: Path) -> Iterator[str]:
    """A new server that listens on a socket in `directory` only; yields its URL."""
    directory.mkdir()
    as_user = []
    if os.geteuid() == 0:
        account = pwd.getpwnam(USER)
        os.chown(directory, account.pw_uid, account.pw_gid)
        as_user = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    data, binaries = directory / "data", BINARIES[-1]
    quick = "-c fsync=off -c shared_buffers=4MB -c max_connections=20"
    run = {"check": True, "capture_output": True, "cwd": directory}
    subprocess.run([*as_user, binaries / "initdb", "-D", data, "-A", "trust", "-U", USER, "-N"], **run)  # type: ignore[call-overload]
    start = [*as_user, binaries / "pg_ctl", "-D", data, "-l", directory / "log", "-w", "-t", "60"]
    socket = f"-k {directory} -c listen_addresses= {quick}"
    subprocess.run([*start, "-o", socket, "start"], **{**run, "capture_output": False, "stdout": subprocess.DEVNULL})  # type: ignore[call-overload]
    try:
        yield f"postgresql://{USER}@/{USER}?host={directory}"
    finally:
        subprocess.run([*as_user, binaries / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **run)  # type: ignore[call-overload]
        shutil.rmtree(directory, ignore_errors=True)
