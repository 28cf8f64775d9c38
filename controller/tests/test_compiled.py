# SPDX-License-Identifier: Apache-2.0
"""The two forms of the loop's modules: which one runs, and that both do the same."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from controller import compiled
from controller.loop import Workers

from .switches import ROOT, WAIT_SECONDS

HERE = Path(__file__).parent
OF_MODULES = ("feedback", "http2", "law", "queue_estimate", "regulator", "ticker")
"""The tests of what is compiled."""


@pytest.fixture
def built() -> Path:
    """The compiled form of these sources."""
    if compiled.failure().exists():
        pytest.skip(f"the loop could not be compiled: {compiled.failure()}")
    assert compiled.directory().is_dir(), "not compiled since the controller was changed: `make python` does it"
    return compiled.directory()


def run(code: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Python with the controller of a checkout."""
    return subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=240)


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A checkout in which one module is not the one that was compiled."""
    for path in ROOT.iterdir():
        if path.name not in ("controller", ".git", ".venv", "out"):
            (tmp_path / path.name).symlink_to(path)
    shutil.copytree(ROOT / "controller", tmp_path / "controller", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "controller" / "ticker.py").open("a") as file:
        file.write("# changed\n")
    return tmp_path


async def test_the_process_of_the_loop_runs_it(built: Path) -> None:
    workers = Workers()
    await workers.prepare()
    try:
        own = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            maps = [Path(f"/proc/{child}/maps").read_text() for child in own]
            if any(f"{built.resolve()}/controller/worker." in of_one for of_one in maps):
                return
            await asyncio.sleep(0.05)
        pytest.fail("the process has no compiled module")
    finally:
        await workers.stop()


def test_the_modules_tests_pass_with_it(built: Path) -> None:
    tests = [str(HERE / f"test_{name}.py") for name in OF_MODULES]
    done = run(f"""
import importlib
import sys
import pytest
from controller import compiled
assert compiled.use()
for name in compiled.MODULES:
    module = importlib.import_module("controller." + name)
    assert module.__file__.startswith({str(built)!r}), module.__file__
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *{tests!r}]))
""")
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_checkout_with_the_same_sources_uses_it_and_a_changed_one_does_not(built: Path, changed: Path) -> None:
    ask = (
        "from controller import compiled; print(compiled.use()); from controller import ticker; print(ticker.__file__)"
    )
    assert run(ask, changed).stdout.split() == ["False", str(changed / "controller" / "ticker.py")]
    shutil.copy(ROOT / "controller" / "ticker.py", changed / "controller" / "ticker.py")
    used, path = run(ask, changed).stdout.split()
    assert used == "True"
    assert path.startswith(str(built))


def test_without_it_the_loop_runs_interpreted_and_says_so(changed: Path) -> None:
    test = changed / "controller" / "tests" / "test_with_switch.py"
    done = run(f"""
import sys
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "overload_is_marked", {str(test)!r}]))
""", changed)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = run("""
import asyncio
from controller.loop import Workers

async def main() -> None:
    workers = Workers()
    await workers.prepare()
    await workers.stop()

asyncio.run(main())
""", changed)  # fmt: skip
    assert "the loop runs interpreted" in said.stderr
