# SPDX-License-Identifier: Apache-2.0
"""Names of congestion controls in BPF: a kernel has one control of each, for all checkouts and namespaces."""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from accesspoint.topologies.requirements import LabError

LOCKS = Path("/run/lock/accesspoint-controls")
PAUSE = 0.2  # s
PATIENCE = 240.0  # s

_held: set[str] = set()


class InUse(LabError):
    """A name that another process holds."""


@contextlib.contextmanager
def alone(*controls: str, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the names of controls for this process, which may ask for them again within.

    controls: as `hosts cc load` names them. patience: seconds to wait for others. Raises InUse, LabError."""
    deadline = time.monotonic() + patience
    with contextlib.ExitStack() as stack:
        # In one order: two who want the same names do not wait for each other.
        for control in sorted({*controls} - _held):
            file = stack.enter_context(_opened(LOCKS / control))
            while not _locked(file.fileno()):
                if time.monotonic() > deadline:
                    raise InUse(f"congestion control {control} is in use by another process: wait until that ends")
                time.sleep(PAUSE)
            _held.add(control)
            stack.callback(_held.discard, control)
        yield


def _opened(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w")
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}: congestion controls in BPF need root") from None


def free(control: str) -> bool:
    """Return True where no other process holds a control's name. Raises LabError."""
    if control in _held:
        return True
    with _opened(LOCKS / control) as file:
        return _locked(file.fileno())


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
