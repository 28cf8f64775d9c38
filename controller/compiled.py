# SPDX-License-Identifier: Apache-2.0
"""The loop's modules as native code (mypyc). Their Python is what it is made from, and what runs without it.

`python -m controller.compiled` puts it into the virtual environment, below a hash of the controller's modules: one
that was changed runs as it stands until it is compiled again, never in an old form. Only the loop's process uses it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import controller
import controller.law

MODULES = (
    "feedback", "flow_table", "http2", "law.base", "law.paper", "law.pi2", "queue_estimate", "regulator", "ticker",
    "worker",
)  # fmt: skip
"""What a tick runs through. `messages` is not among them: compiled classes cannot be pickled for interpreted ones."""

PACKAGE = Path(__file__).resolve().parent
BUILDS = Path(sys.prefix) / "compiled"
MOST_BUILDS = 8
"""Older ones are removed: one environment may serve several checkouts."""


def directory() -> Path:
    """Where the compiled form of these sources is, if there is one."""
    digest = hashlib.sha256(str(sys.implementation.cache_tag).encode())
    # All of them: the compiler takes types and constants from modules that it does not compile, too.
    for source in sorted([*PACKAGE.glob("*.py"), *PACKAGE.glob("law/*.py")]):
        digest.update(str(source.relative_to(PACKAGE)).encode() + hashlib.sha256(source.read_bytes()).digest())
    return BUILDS / digest.hexdigest()[:16]


def failure() -> Path:
    """What the compiler said, if it failed on these sources."""
    return directory().with_suffix(".log")


def use() -> bool:
    """Whether there is a compiled form; `MODULES` that are imported from now on are then those."""
    built = directory()
    if not built.is_dir():
        return False
    # The modules, and the library that they share.
    controller.__path__.insert(0, str(built / PACKAGE.name))
    controller.law.__path__.insert(0, str(built / PACKAGE.name / "law"))
    sys.path.insert(0, str(built))
    return True


def build(to: str) -> None:
    """Compile into a directory; the working directory is the project's."""
    from mypyc.build import mypycify
    from setuptools import setup

    paths = [f"{PACKAGE.name}/{module.replace('.', '/')}.py" for module in MODULES]
    setup(
        name=PACKAGE.name,
        packages=[],
        py_modules=[],
        ext_modules=mypycify(paths, opt_level="2", debug_level="0", group_name=PACKAGE.name, target_dir=f"{to}/c"),
        script_args=["build_ext", f"--build-lib={to}/lib", f"--build-temp={to}/objects"],
    )


def main() -> int:
    """Compile; with `--needed` only say, as an exit code, whether that is neither done nor has failed already."""
    built, log = directory(), failure()
    if sys.argv[1:] == ["--needed"]:
        return int(built.is_dir() or log.exists())
    BUILDS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILDS) as scratch:
        code = f"from controller.compiled import build; build({scratch!r})"
        environment = {**os.environ, "MYPY_CACHE_DIR": f"{scratch}/cache"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=PACKAGE.parent, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode:
            log.write_bytes(done.stdout)
            why = f"see {log}, and remove it to have it tried again"
            print(f"the controller's loop could not be compiled and runs interpreted: {why}", file=sys.stderr)
            return 1
        if not built.is_dir():
            os.rename(f"{scratch}/lib", built)
    for old in sorted(BUILDS.iterdir(), key=lambda path: path.stat().st_mtime)[:-MOST_BUILDS]:
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
