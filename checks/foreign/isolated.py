# SPDX-License-Identifier: Apache-2.0
"""One case, in a network, a /tmp and a process tree of its own: `python -m accesspoint.checks.foreign.isolated`.

Prints the outcome as a line of JSON. Whatever a client starts, and writes to /tmp, /usr/local, /etc or /run, is gone
when this process ends, be it by SIGKILL: clients use fixed names, as `/tmp/p4s.s1.log`."""

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from accesspoint.checks.conformance.suite import show
from accesspoint.checks.foreign.case import FAIL, NOT_RUN, PASS, Case, Failed, NotRun, Outcome, load
from accesspoint.checks.foreign.stand import Stand
from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.wifi import requirements

PATIENCE = 0.7
"""Part of a case's time that one thing in it may take: what does not come is named."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("target")
    parser.add_argument("log", type=Path)
    parser.add_argument("folders", type=json.loads)
    parser.add_argument("seconds", type=float)
    options = parser.parse_args()
    folders = {name: Path(path) for name, path in options.folders.items()}
    case = dataclasses.replace(load()[options.name], seconds=options.seconds)
    if case.radios and not kernel.inside() and not requirements.has_radios():
        found = kernel.with_radios()
        if not found.is_there():
            why = "this kernel has no mac80211_hwsim: `make wifi-kernel` builds one that has"
            print(json.dumps(dataclasses.asdict(Outcome(case.name, NOT_RUN, why))))
            return 0
        module = "accesspoint.checks.foreign.isolated"
        return kernel.run(found, module, sys.argv[1:], [options.log.parent], visible=[*folders.values()])

    # By its number, as the file's name may lead to another file once /tmp is a layer.
    log = options.log.open("a")
    log_path = Path(f"/proc/self/fd/{log.fileno()}")

    def within() -> int:
        contain.own_network()
        own_files()
        with tempfile.TemporaryDirectory(prefix="foreign-", ignore_cleanup_errors=True) as scratch:
            outcome = ask(case, options.target, folders, Path(scratch), log_path)
        print(json.dumps(dataclasses.asdict(outcome)))
        return 0

    return contain.run(within)


def own_files() -> None:
    """Have all that is written to /tmp, /usr/local, /etc and /run from now on vanish with the mount namespace."""
    spare = Path("/mnt")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", spare], check=True)
    for number, place in enumerate(("/tmp", "/usr/local", "/etc", "/run")):
        upper, work = spare / f"upper{number}", spare / f"work{number}"
        upper.mkdir()
        work.mkdir()
        layers = f"lowerdir={place},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, place], check=True)


def ask(case: Case, target: str, folders: dict[str, Path], scratch: Path, log: Path) -> Outcome:
    """Run a case and return its outcome, even when the client or the switch fails."""
    begin = time.monotonic()
    status, reason = PASS, ""
    try:
        reason = case.run(Stand(target, folders, scratch, log, PATIENCE * case.seconds)) or ""
    except NotRun as why:
        status, reason = NOT_RUN, str(why)
    except Failed as why:
        status, reason = FAIL, str(why)
    except Exception as error:
        with log.open("a") as file:
            traceback.print_exc(file=file)
        status, reason = FAIL, f"{type(error).__name__}: {error}"
    for path in sorted(Path("/tmp").glob("p4s*.log")):  # where scripts for BMv2 let it log
        with log.open("a") as file:
            file.write(f"-- {path.name}\n{path.read_text(errors='replace')[-5000:]}\n")
    return Outcome(case.name, status, show(reason.replace(f"{scratch}/", "")), time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main())
