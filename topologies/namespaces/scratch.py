# SPDX-License-Identifier: Apache-2.0
"""Temporary folders with logs and tokens: one that a killed process leaves goes when the next is made."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

LOCK = ".accesspoint-lab"
"""File in such a folder that its process holds locked: the kernel unlocks it when the process ends, whatever way."""


class ScratchFolder:
    """A temporary folder, as a context manager. Making one removes those of processes that have ended.

    prefix: of its name.
    """

    def __init__(self, prefix: str) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # Locked before it has the name by which others find it.
        new = self.path / f"{LOCK}.new"
        self._lock = new.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / LOCK)

    def close(self) -> None:
        """Remove the folder; also more than once."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def remove_abandoned() -> None:
    """Remove this user's folders in the temporary folder whose processes have ended."""
    for lock in Path(tempfile.gettempdir()).glob(f"*/{LOCK}"):
        # Another process may remove it at the same time.
        with contextlib.suppress(OSError), lock.open() as file:
            if lock.parent.is_symlink() or os.fstat(file.fileno()).st_uid != os.geteuid():
                continue
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
