# SPDX-License-Identifier: Apache-2.0
"""Runs a lab in a user-mode Linux kernel of its own, for machines whose kernel lacks what the lab needs.

The kernel is a program that boots on this machine's own files, which it cannot change: writes of the lab stay in its
memory, except in the directories that it is given. It has one CPU, and no network but its own.
"""

import contextlib
import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.namespaces.scratch import ScratchFolder
from accesspoint.topologies.requirements import ROOT, LabError

MEMORY = 1024  # MiB
INSIDE = "LAB_KERNEL"  # set in the environment of what runs in there
LOG = "kernel.log"
NICENESS = -10  # as any lab's
REAL, VIRTUAL = "real", "virtual"
SIMULATED = "simulated"  # ns-3's: no kernel, no lab
CLOCKS = (REAL, VIRTUAL, SIMULATED)
_KEEPS_VIRTUAL_TIME = "CONFIG_UML_TIME_TRAVEL_SUPPORT=y"
_CLOCK = "LAB_CLOCK"  # in the environment of what runs in there, next to INSIDE
# Directories that the kernel mounts a tmpfs of its own over (topologies/kernels/init.sh).
_COVERED = tuple(map(Path, ("/dev", "/run", "/tmp", "/var/tmp")))
STOP_TIMEOUT = 5.0  # s
TOO_LONG = 124  # as timeout(1)
_PASSED_ON = ("APSWITCH", "LANG", "LC_ALL", "TERM")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Kernel:
    """A kernel that is a program. modules: the directory above that of its modules, which is named by its release."""

    program: Path
    modules: Path

    def is_there(self) -> bool:
        return os.access(self.program, os.X_OK) and any(self.modules.glob("*/modules.dep"))


# The kernel of Debian's package user-mode-linux: no radios, but every queue discipline.
DEBIAN = Kernel(Path("/usr/bin/linux.uml"), Path("/usr/lib/uml/modules"))


def with_radios() -> Kernel:
    """Return the kernel that `make wifi-kernel` builds."""
    return Kernel(directory() / "linux", directory() / "lib/modules")


def directory() -> Path:
    """Return the directory into which `make wifi-kernel` puts the kernel and its modules."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "programmable-access-point/wifi-kernel"


def of_virtual_time() -> Kernel:
    """The kernel whose clock the machine cannot disturb: it stands still while programs compute, and jumps to the next
    timer when all of them wait. Raises LabError when it has not been built."""
    kernel = with_radios()
    if not kernel.is_there():
        raise LabError(
            f"CLOCK={VIRTUAL} needs a kernel of its own, which is not there yet: build it once with `make wifi-kernel` "
            f"(about ten minutes), or give CLOCK={REAL}"
        )
    if _KEEPS_VIRTUAL_TIME not in (directory() / "config").read_text().splitlines():
        raise LabError(f"the kernel {kernel.program} is older than CLOCK={VIRTUAL}: renew it with `make wifi-kernel`")
    return kernel


def inside() -> bool:
    """Return whether this program runs in such a kernel."""
    return INSIDE in os.environ


def clock() -> str:
    """Return the kind of clock here: REAL, or VIRTUAL in a kernel that keeps it."""
    return os.environ.get(_CLOCK, REAL)


def run(
    kernel: Kernel,
    module: str,
    arguments: list[str],
    writable: list[Path],
    clock: str = REAL,
    longest: float | None = None,
    visible: Sequence[Path] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Boots a kernel, runs `python -m module arguments` in it at this terminal, and returns its exit code.

    writable: directories that it may write to. clock: VIRTUAL for the kernel `of_virtual_time` alone. longest: s of
    real time that it may take, else the exit code is TOO_LONG: where time stands while a program works, one that waits
    for another by asking again and again waits for good. visible: directories that it reads, in addition to this
    project's. environment: of the program, in addition to what any program there has. Raises LabError when the kernel
    does not come up, or ends early.
    """
    with ScratchFolder("lab-") as folder:
        exchange = folder.path
        shares = [path.resolve() for path in writable]
        (exchange / "visible").write_text("".join(f"{path}\n" for path in _covered([ROOT, Path(sys.prefix), *visible])))
        (exchange / "writable").write_text("".join(f"{path}\n" for path in [*shares, exchange]))
        command = [sys.executable, "-m", module, *arguments]
        (exchange / "run").write_text(_script(command, clock, environment))
        code = contain.run(lambda: _boot(kernel, exchange, clock, longest))
        if code:
            return code
        try:
            return int((exchange / "code").read_text())
        except (OSError, ValueError):
            said = (exchange / LOG).read_text(errors="replace").strip().rpartition("\n")[2] or "nothing"
            raise LabError(f"the kernel {kernel.program} ended before the lab did; it said: {said}") from None


def _covered(needed: list[Path]) -> list[Path]:
    """Return the directories that the kernel would hide, as a clone's in the system's temporary folder."""
    places = dict.fromkeys(path.resolve() for path in needed)
    return [path for path in places if any(path.is_relative_to(each) for each in _COVERED)]


def _script(command: list[str], clock: str, more: Mapping[str, str]) -> str:
    size = shutil.get_terminal_size()
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {**more}
    if clock == VIRTUAL:
        environment["PYTHONHASHSEED"] = "0"  # the same order of sets in every run
    environment |= {INSIDE: "1", _CLOCK: clock, "HOME": "/tmp", "PATH": _path()}
    environment |= {"COLUMNS": str(size.columns), "LINES": str(size.lines)}
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    if clock == VIRTUAL:
        # Taking turns: a fair scheduler goes by time, which stands, and would give the processor back to who yields it.
        command = ["chrt", "--rr", "1", *command]
    line = shlex.join(command)
    if not sys.stdout.isatty():
        # The console is a terminal in there all the same: what the lab prints must look as it does here.
        line = f"stty -opost -echo; set -o pipefail; {line} 2>&1 | cat"
    return "\n".join([f"cd {shlex.quote(str(ROOT))}", *exports, line, ""])


def _path() -> str:
    """Return a PATH for in there, which ends with what this one adds: targets are searched for there."""
    return os.pathsep.join(dict.fromkeys([*_PATH.split(os.pathsep), *os.get_exec_path()]))


def _boot(kernel: Kernel, exchange: Path, clock: str, longest: float | None) -> int:
    modules = next(kernel.modules.iterdir())
    command = [str(kernel.program), f"mem={MEMORY}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"]
    command += ["console=stderr", "con=null", "con0=fd:0,fd:1", f"init={ROOT / 'topologies/kernels/init.sh'}"]
    command += [f"lab={exchange}", f"modules={modules}"]
    command.append("seccomp=auto")  # from Linux 6.16 on: programs hand their system calls over, and are not traced
    if clock == VIRTUAL:
        command.append("time-travel=inf-cpu")
    else:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, NICENESS)  # in there it has no effect out here
    with (
        _own_processor(),
        _terminal_kept(),
        (exchange / LOG).open("wb") as log,
        subprocess.Popen(command, stderr=log) as process,
    ):
        try:
            return _exit_code(process.wait(longest))
        except subprocess.TimeoutExpired:
            print(f"the user-mode kernel was ended: not done after {longest:.0f} s", file=sys.stderr)
            return TOO_LONG
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(STOP_TIMEOUT)
                except subprocess.TimeoutExpired:
                    process.kill()


@contextlib.contextmanager
def _own_processor() -> Iterator[None]:
    """Keep this process, and the kernel that it starts, on one processor, if possible on one that no other kernel has.

    The kernel and its programs take turns: a switch on one processor is quicker than a wake-up on another."""
    processors = sorted(os.sched_getaffinity(0))
    random.shuffle(processors)
    with socket.socket(socket.AF_UNIX) as taken:
        # An abstract name is one's own as long as the process lives.
        for processor in processors:
            try:
                taken.bind(f"\0accesspoint-kernel-{processor}")
                break
            except OSError:
                continue
        os.sched_setaffinity(0, {processor})
        yield


def _exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """Restore the terminal: the kernel makes it raw, and a killed one leaves it so."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
