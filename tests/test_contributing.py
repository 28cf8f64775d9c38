# SPDX-License-Identifier: Apache-2.0
"""After `make setup` the commands of CONTRIBUTING.md run, word for word.

The short ones run in this checkout. The mark `long` takes a clone with nothing but `make setup`, and runs all but
`make test` and `make test-all`, which run this file: they are what runs it. A command that takes a tool which is not
installed says in one line what to install.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from accesspoint.checks.harness.apswitch import BINARY
from tests.pages import ROOT, blocks

PAGE = "CONTRIBUTING.md"
COMMANDS = [line for block in blocks() if block.page == PAGE and block.executed for line in block.commands]
MAKE = [line for line in COMMANDS if line.startswith("make ")]
OTHERS = [line for line in COMMANDS if not line.startswith("make ")]
IN_A_CLONE = [line for line in COMMANDS if line not in ("make setup", "make test", "make test-all")]
SHORT = [line for line in OTHERS if "test_every_package" in line or line.endswith("--test test_mark")]
TOOLS = {"--target bmv2": "simple_switch_grpc", "make p4": "p4c-bm2-ss"}
"""Part of a command -> the tool that it takes from PATH."""
MAX_SECONDS = 1800  # of a command in a clone, which compiles the switch

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="labs and packet tests need root")


def run(command: str, place: Path, seconds: float, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a checkout, without the caller's Python paths and what a make around it says."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    words, env = ["bash", "-c", command], {**kept, "PYTHONPATH": "", **variables}
    return subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, timeout=seconds)


def tool_of(command: str) -> str:
    """Return the tool that a command takes and `make setup` does not install; empty: none."""
    return next((tool for part, tool in TOOLS.items() if part in command), "")


def test_page_has_commands_of_each_kind() -> None:
    assert {"make setup", "make test", "make test-all"} < set(MAKE) and SHORT and len(OTHERS) > len(SHORT)
    assert {"make quick", "make check", "make p4", "make test PART=switch"} <= set(IN_A_CLONE)
    inline = set(re.findall(r"`(make [a-z0-9-]+)`", (ROOT / PAGE).read_text()))
    for command in {*MAKE, *inline}:
        done = run(command.replace("make", "make -n", 1), ROOT, 240)
        assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.parametrize("command", SHORT)
@pytest.mark.skipif(not BINARY.exists(), reason="apswitch is missing; build it with: make switch")
def test_short_command_of_the_page_runs(command: str) -> None:
    done = run(command, ROOT, 280)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]


@pytest.mark.parametrize("command", [line for line in COMMANDS if tool_of(line)])
def test_command_without_its_tool_names_it_in_one_line(command: str, tmp_path: Path) -> None:
    for folder in map(Path, reversed(os.environ["PATH"].split(":"))):
        for file in folder.glob("*"):
            if file.name != tool_of(command):
                (tmp_path / file.name).unlink(missing_ok=True)
                (tmp_path / file.name).symlink_to(file)
    done = run(command, ROOT, 240, PATH=str(tmp_path))
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("make: ***")]
    assert done.returncode == 2 and len(lines) == 1, lines
    assert lines[0].startswith("error: ") and tool_of(command) in lines[0] and "install" in lines[0]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with nothing but what `make setup` installs; its switch is this checkout's."""
    place = tmp_path_factory.mktemp("clone") / "checkout"
    subprocess.run(["git", "clone", "--quiet", ROOT, place], check=True)
    done = run("make setup", place, MAX_SECONDS, APSWITCH=str(BINARY))
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    return place


@pytest.mark.long
@pytest.mark.timeout(2 * MAX_SECONDS)
@pytest.mark.parametrize("command", IN_A_CLONE)
@pytest.mark.skipif(not BINARY.exists(), reason="apswitch is missing; build it with: make switch")
def test_setup_is_enough_for_command(command: str, clone: Path) -> None:
    if (tool := tool_of(command)) and not shutil.which(tool):
        pytest.skip(f"{tool} is not on PATH, as the page says that it has to be")
    # A part of the tests takes what `make` builds of the clone.
    switch = {} if command.startswith("make test") else {"APSWITCH": str(BINARY)}
    done = run(command, clone, MAX_SECONDS, **switch)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
