# SPDX-License-Identifier: Apache-2.0
"""Script that a user-mode kernel executes: environment of the program in it."""

import shlex

from accesspoint.topologies.kernels import kernel


def test_script_has_the_environment_it_is_given() -> None:
    lines = kernel._script(["true"], kernel.REAL, {"FILES": "/a b/mine.py"}).splitlines()
    assert f"export FILES={shlex.quote('/a b/mine.py')}" in lines and "export LAB_KERNEL=1" in lines
