# SPDX-License-Identifier: Apache-2.0
"""Script that a user-mode kernel executes: environment of the program in it."""

import os
import shlex
import subprocess
import sys

import pytest

from accesspoint.topologies.kernels import kernel


def test_script_has_the_environment_it_is_given() -> None:
    lines = kernel._script(["true"], kernel.REAL, {"FILES": "/a b/mine.py"}).splitlines()
    assert f"export FILES={shlex.quote('/a b/mine.py')}" in lines and "export LAB_KERNEL=1" in lines


def test_path_there_ends_with_what_this_one_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/opt/bmv2/bin:/usr/bin")
    paths = [line for line in kernel._script(["true"], kernel.REAL, {}).splitlines() if line.startswith("export PATH=")]
    assert len(paths) == 1 and paths[0].endswith("/bin:/opt/bmv2/bin") and paths[0].count("/usr/bin") == 1


HOLD = """
import contextlib, os
from accesspoint.topologies.kernels.kernel import _own_processor
from accesspoint.topologies.namespaces import contain

contain.own_network()  # has no names of kernels that run elsewhere
processors = os.sched_getaffinity(0)
with contextlib.ExitStack() as held:
    for _ in range(len(processors) + 1):
        held.enter_context(_own_processor())
        print(*os.sched_getaffinity(0))
        os.sched_setaffinity(0, processors)
"""


def test_kernels_have_a_processor_each_while_there_are_some() -> None:
    number = len(os.sched_getaffinity(0))
    done = subprocess.run([sys.executable, "-c", HOLD], capture_output=True, text=True, check=True)
    found = [line.split() for line in done.stdout.splitlines()]
    assert len(found) == number + 1 and all(len(one) == 1 for one in found)
    assert len({one[0] for one in found}) == number
