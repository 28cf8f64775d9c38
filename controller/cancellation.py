# SPDX-License-Identifier: Apache-2.0
"""Cancellation that a library loses: it comes with the answer, and only the answer is passed on.

Python 3.11's `asyncio.wait_for` does so, and gRPC's calls while a connection begins. A task that has lost its
cancellation goes on, and whoever awaits its end waits for ever.
"""

import asyncio
import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def cancellable() -> Iterator[None]:
    """Raise `CancelledError` at the end when the task was cancelled meanwhile, whatever the body returned or raised."""
    task = asyncio.current_task()
    assert task is not None
    cancelled = task.cancelling()
    try:
        yield
    finally:
        if task.cancelling() > cancelled:
            raise asyncio.CancelledError
