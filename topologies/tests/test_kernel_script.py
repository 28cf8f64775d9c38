# SPDX-License-Identifier: Apache-2.0
"""Script that a user-mode kernel executes: environment of the program in it."""

import os
import shlex
import subprocess
import sys

from accesspoint.topologies.kernels import kernel


def test_script_has_the_environment_it_is_given() -> None:
    lines = kernel._script(["true"], kernel.REAL, {"FILES": "/a b/mine.py"}).splitlines()
    assert f"export FILES={shlex.quote('/a b/mine.py')}" in lines and "export LAB_KERNEL=1" in lines


HOLD = """
import os, sys
from accesspoint.topologies.kernels.kernel import _own_processor

with _own_processor():
    print(*os.sched_getaffinity(0), flush=True)
    sys.stdin.read()
"""


def test_kernels_have_a_processor_each_while_there_are_some() -> None:
    number = len(os.sched_getaffinity(0))
    held = [
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(number + 1)
    ]
    found = [process.stdout.readline().split() for process in held if process.stdout]
    for process in held:
        process.communicate()
    assert all(len(one) == 1 for one in found)
    assert len({one[0] for one in found}) == number
