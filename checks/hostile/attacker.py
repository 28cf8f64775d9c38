# SPDX-License-Identifier: Apache-2.0
"""The process that attacks: `python -m accesspoint.checks.hostile.attacker NAME JSON`. What is refused goes to its
output as lines."""

import contextlib
import faulthandler
import json
import os
import resource
import sys

from accesspoint.checks.hostile.attack import Target, load


def main() -> None:
    faulthandler.enable()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    name, told = sys.argv[1:]
    run = load()[name].run
    target = Target(**json.loads(told))
    target.tell()  # it begins
    # A server that closes the door on its attacker has done well.
    with contextlib.suppress(ConnectionError, TimeoutError, BrokenPipeError):
        run(target)
    target.tell()
    sys.stdout.flush()
    os._exit(0)  # threads that wait for answers need not


if __name__ == "__main__":
    main()
