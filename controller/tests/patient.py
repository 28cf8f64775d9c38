# SPDX-License-Identifier: Apache-2.0
"""A controller with times of its own, where a test must not depend on when a process gets a processor."""

import sys
from typing import Any

from accesspoint.checks.harness.switches import Controller, SwitchLab

RUN = (
    "import importlib, runpy, sys; "
    "[setattr(importlib.import_module(module), name, float(seconds)) "
    "for module, name, seconds in (word.split(':') for word in sys.argv[1].split(','))]; "
    "sys.argv[:] = ['controller', *sys.argv[5:]]; runpy.run_module('accesspoint.controller', run_name='__main__')"
)


def patient(made: SwitchLab, times: dict[str, float], **access_point: Any) -> Controller:
    """Start a controller beside a lab's switch, and wait until it is ready.

    Args:
        made: the lab.
        times: constants of the controller in place of its own, by "MODULE:NAME" within `accesspoint.controller`.
        access_point: as in `SwitchLab.config`.
    """
    given = ",".join(f"accesspoint.controller.{name}:{seconds}" for name, seconds in times.items())
    return made.controller(before=[sys.executable, "-c", RUN, given], **access_point)
