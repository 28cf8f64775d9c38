# SPDX-License-Identifier: Apache-2.0
"""ns-3's wheel, and our C++ compiled against it: one shared library of this folder, `cells`, the papers' transports
(hosts/ns3) and their algorithms (hosts/algorithms).

`python -m accesspoint.topologies.ns3.build` compiles it, as `make ns3` does. Each output in out/ns3 has a hash of all
its inputs in its name: a change makes another file, and unchanged sources are not compiled again.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from accesspoint.topologies.requirements import ROOT, LabError

VERSION = "3.44"
"""Version of ns-3: headers and bindings change from one to the next."""

HERE = Path(__file__).resolve().parent
BUILDS = ROOT / "out/ns3"
CELLS = HERE / "cells"
HOSTS = ROOT / "hosts/ns3"
ALGORITHMS = ROOT / "hosts/algorithms"
SWITCH = ROOT / "target/release/libapswitch_c.so"
MODULES = (
    "core", "network", "internet", "mobility", "wifi", "csma", "point-to-point", "bridge", "applications",
    "traffic-control", "lte", "wimax", "spectrum", "propagation", "antenna", "stats",
)  # fmt: skip
FLAGS = ("-std=c++20", "-O2", "-fPIC", "-Wall", "-Wextra")
COMPILE_SECONDS = 600


def wheel() -> Path:
    """The folder of ns-3's wheel. Raises LabError when it is missing, or of another version."""
    spec = importlib.util.find_spec("ns3")
    if spec is None or not spec.submodule_search_locations:
        raise LabError("ns-3 is missing: install it with `make ns3`")
    try:
        found = importlib.metadata.version("ns3")
    except importlib.metadata.PackageNotFoundError:
        raise LabError("the ns3 that Python finds is no wheel's: install that with `make ns3`") from None
    if found != VERSION and not found.startswith(f"{VERSION}."):
        raise LabError(f"ns-3 is of version {found}, and {VERSION} is needed: install that with `make ns3`")
    return Path(next(iter(spec.submodule_search_locations)))


def version() -> str:
    """Return the wheel's version. Raises LabError."""
    wheel()
    return importlib.metadata.version("ns3")


def compiler() -> str:
    """The C++ compiler: $CXX, or g++. Raises LabError."""
    name = os.environ.get("CXX", "g++")
    if not shutil.which(name):
        raise LabError(f"the C++ compiler {name} is missing: install it with `apt install g++`, or name one as CXX")
    return name


def sources() -> list[Path]:
    """Return the sources, all of which are compiled as C++."""
    found = [path for folder in (HERE, CELLS, HOSTS) for path in folder.glob("*.cc")]
    return sorted([*found, *ALGORITHMS.glob("*.c")])


def library() -> Path:
    """The shared library, which is compiled if it is not there. Raises LabError."""
    ns3 = wheel()
    if not SWITCH.is_file():
        raise LabError(f"the switch's library {SWITCH} is missing: build it with `make switch`")
    objects = {source: BUILDS / f"{source.stem}-{_digest(_made_from(ns3), source)}.o" for source in sources()}
    linked = [*_shared(ns3), f"-L{SWITCH.parent}", f"-Wl,-rpath,{SWITCH.parent}", "-lapswitch_c"]
    made = BUILDS / f"lib-{_digest(*linked, *(path.name for path in objects.values()))}.so"
    if not made.is_file():
        BUILDS.mkdir(parents=True, exist_ok=True)
        for source, to in objects.items():
            if not to.is_file():
                _compile(to, *_includes(ns3), "-c", str(source))
        _compile(made, *map(str, objects.values()), *linked)
    return made


def scene(source: Path) -> Path:
    """Compile a scene of one's own to a library, and return that. Raises LabError."""
    ns3, ours = wheel(), library()
    try:
        made = BUILDS / f"{source.stem}-{_digest(_made_from(ns3), ours.name, source)}.so"
    except OSError as error:
        raise LabError(f"{source}: {error.strerror}: name a C++ file") from None
    if not made.is_file():
        _compile(made, *_includes(ns3), str(source), *_shared(ns3), str(ours), f"-Wl,-rpath,{BUILDS}")
    return made


def _made_from(ns3: Path) -> str:
    """Return a digest of the inputs that every file is compiled with."""
    headers = [path for folder in (HERE, CELLS, HOSTS, ALGORITHMS) for path in folder.glob("*.h")]
    headers.append(ROOT / "switch/c/apswitch.h")
    return _digest(version(), compiler(), *FLAGS, str(ns3), *sorted(headers))


def _includes(ns3: Path) -> list[str]:
    return [f"-isystem{ns3}/include", f"-I{HERE}", f"-I{CELLS}", f"-I{HOSTS}", f"-I{ROOT}/switch/c"]


def _shared(ns3: Path) -> list[str]:
    """Return the linker options of a shared library on those of ns-3."""
    libraries = [f"-l:libns{VERSION}-{module}.so" for module in MODULES]
    lib = ns3 / "lib64"
    return ["-shared", "-Wl,--no-undefined", f"-L{lib}", f"-Wl,-rpath,{lib}", *libraries]


def _digest(*parts: str | Path) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes() if isinstance(part, Path) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def _compile(to: Path, *words: str) -> None:
    """Compile to a file, atomically: a concurrent compilation of the same makes the same file. Raises LabError."""
    with tempfile.TemporaryDirectory(dir=BUILDS) as directory:
        part = Path(directory) / to.name
        command = [compiler(), *FLAGS, *words, "-o", str(part)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS)
        except subprocess.TimeoutExpired:
            raise LabError(
                f"{command[0]} took over {COMPILE_SECONDS} s for {to.name}: try again on a quieter machine"
            ) from None
        if done.returncode:
            log = to.with_suffix(".log")
            log.write_text(done.stderr)
            first = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
            raise LabError(f"{command[0]} cannot compile {to.stem}: {first.strip()}; all of it is in {log}")
        part.replace(to)


def main() -> int:
    try:
        made = library()
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"ns-3 {version()}: {made.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
