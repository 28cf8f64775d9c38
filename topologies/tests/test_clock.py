# SPDX-License-Identifier: Apache-2.0
"""Virtual time: without its kernel it is refused in one line; with the kernel the machine cannot disturb it."""

import json
import shutil
import time
from pathlib import Path

import pytest

from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.requirements import ROOT, LabError
from accesspoint.topologies.tests.conftest import Start

BUILT = kernel.with_radios().is_there()
needs_kernel = pytest.mark.skipif(not BUILT, reason="there is no user-mode kernel; `make wifi-kernel` builds it")


def test_a_missing_kernel_is_named_with_its_mend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(LabError, match=r"^CLOCK=virtual needs .* `make wifi-kernel` .*, or give CLOCK=real$"):
        kernel.of_virtual_time()


def test_a_kernel_from_before_is_named_with_its_mend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built = tmp_path / "programmable-access-point/wifi-kernel"
    (built / "lib/modules/6").mkdir(parents=True)
    (built / "lib/modules/6/modules.dep").touch()
    (built / "linux").touch(0o755)
    (built / "config").write_text("CONFIG_UML=y\n# CONFIG_UML_TIME_TRAVEL_SUPPORT is not set\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(LabError, match="older than CLOCK=virtual: renew it with `make wifi-kernel`"):
        kernel.of_virtual_time()


SLEEPER = """
import json, sys, time
from pathlib import Path
from accesspoint.topologies.kernels import kernel
before, started = time.monotonic(), time.time()
for _ in range(200):
    time.sleep(5)
late = time.monotonic() - before - 1000
Path(sys.argv[1], "found.json").write_text(json.dumps({"clock": kernel.clock(), "late": late}))
"""
BOOT = """
import sys
from pathlib import Path
from accesspoint.topologies.kernels import kernel
sys.exit(kernel.run(kernel.of_virtual_time(), "sleeper", sys.argv[1:], [Path(sys.argv[1])], kernel.VIRTUAL))
"""


@needs_kernel
@pytest.mark.usefixtures("privileged")
def test_a_clone_in_the_temporary_folder_runs_on_time_whatever_the_machine_does(start: Start, tmp_path: Path) -> None:
    assert tmp_path.is_relative_to("/tmp"), "the folder that the kernel has one of its own of"
    clone, results = tmp_path / "clone", tmp_path / "results"
    results.mkdir()
    for room in ("accesspoint", "topologies"):
        shutil.copytree(ROOT / room, clone / room, symlinks=True)
    (clone / "sleeper.py").write_text(SLEEPER)
    began = time.monotonic()
    process = start("-c", f"import os; os.chdir({str(clone)!r})\n{BOOT}", str(results), PYTHONPATH=str(clone))
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    found = json.loads((results / "found.json").read_text())
    assert found["clock"] == kernel.VIRTUAL
    # 200 sleeps, each late by the usual 50 us of a timer's slack (prctl(2)), and by nothing that the machine does.
    assert 0 <= found["late"] < 200 * 60e-6
    assert time.monotonic() - began < 280, "it waited for what takes no time"


@needs_kernel
@pytest.mark.usefixtures("privileged")
def test_a_program_that_asks_again_and_again_is_ended(start: Start, tmp_path: Path) -> None:
    """Time stands while it works, and so what it waits for never comes."""
    boot = BOOT.replace('"sleeper", sys.argv[1:]', '"timeit", ["-n", "1000000000000", "pass"]')
    boot = boot.replace("kernel.VIRTUAL)", "kernel.VIRTUAL, 5.0)")
    process = start("-c", boot, str(tmp_path))
    output, _ = process.communicate(timeout=280)
    assert process.returncode == kernel.TOO_LONG and "not done after 5 s" in output, output


YIELDER = """
import mmap, os, time
shared, (reading, writing) = mmap.mmap(-1, 1), os.pipe()
if not os.fork():
    os.read(reading, 1)
    while not shared[0]:
        os.sched_yield()
    os._exit(0)
for _ in range(200_000):
    time.monotonic()  # takes some time here: who waits has had less of the processor
os.write(writing, b".")
shared[0] = 1
os.wait()
"""


@needs_kernel
@pytest.mark.usefixtures("privileged")
def test_who_yields_lets_others_work(start: Start, tmp_path: Path) -> None:
    """A fair scheduler goes by time, which stands: who had least of it would be given the processor again and again."""
    boot = BOOT.replace('"sleeper", sys.argv[1:]', f'"timeit", ["-n", "1", "-r", "1", {YIELDER!r}]')
    boot = boot.replace("kernel.VIRTUAL)", "kernel.VIRTUAL, 300.0)")
    process = start("-c", boot, str(tmp_path))
    output, _ = process.communicate(timeout=330)
    assert process.returncode == 0, output
