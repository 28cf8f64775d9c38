# SPDX-License-Identifier: Apache-2.0
"""The quick starts of docs/quickstart are executed, step by step, and print what their pages show.

A block ```bash is a step, the block ```text right after it its output, numbers aside. All steps of a page run in one
shell, in namespaces of their own that end with it; only steps that install with pip run before, with the network.
docs/quickstart/operator.md is executed on a radio by controller/tests/test_install_on_radio.py.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from accesspoint.checks.harness.apswitch import BINARY
from tests.pages import ROOT, Block, blocks, like

P4 = "docs/quickstart/p4.md"
END = "== the step has ended"
PRELUDE = "mount -t tmpfs tmpfs /run && ip link set lo up && export PYTHONPATH=$PWD && set -e\n"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not BINARY.exists(), reason="apswitch is missing; build it with: make switch"),
]


def steps(page: str) -> list[tuple[Block, str]]:
    """The steps of a page, each with the output that the page shows; empty if none."""
    own = [block for block in blocks() if block.page == page]
    shown = {id(block.before): block.text for block in own if block.shows_a_step}
    return [(block, shown.get(id(block), "")) for block in own if block.language == "bash"]


def execute(page: str) -> None:
    """Execute the steps of a page, and compare their output."""
    installs = [step for step in steps(page) if "pip install" in step[0].text]
    for step, shown in installs:
        done = subprocess.run(["bash", "-ec", step.text], cwd=ROOT, capture_output=True, text=True, timeout=300)
        if done.returncode and "Could not find a version" in done.stderr:
            pytest.skip("p4runtime-shell cannot be installed here: pip finds no index")
        assert done.returncode == 0 and like(shown, done.stdout), done.stdout + done.stderr
    rest = [step for step in steps(page) if step not in installs]
    script = PRELUDE + f"\necho '{END}'\n".join(block.text for block, _ in rest)
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", script]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:]
    printed = done.stdout.split(END)
    assert len(printed) == len(rest)
    for (block, shown), output in zip(rest, printed, strict=True):
        assert like(shown, output), f"{block}\n{output}"


def test_quick_start_of_mininet() -> None:
    assert len([shown for _, shown in steps("docs/quickstart/mininet.md") if shown]) == 2
    execute("docs/quickstart/mininet.md")
    rates = json.loads((ROOT / "out/mine.json").read_text())
    assert set(rates) == {"plain", "access point"} and all(rates.values())
    assert "</svg>" in (ROOT / "out/mine.svg").read_text()


@pytest.mark.realtime
def test_quick_start_of_mininet_shows_the_difference() -> None:
    execute("docs/quickstart/mininet.md")
    rates = (ROOT / "out/mine.json").read_text()
    plain, protected = (sum(values) / len(values) for values in json.loads(rates).values())
    assert plain < 0.5 * protected


@pytest.mark.long
def test_quick_start_of_p4() -> None:
    assert len([shown for _, shown in steps(P4) if shown]) == 7
    execute(P4)


@pytest.mark.skipif(not shutil.which("p4c-bm2-ss"), reason="p4c-bm2-ss is not on PATH: install p4c")
def test_compiled_form_of_basic_is_fresh(tmp_path: Path) -> None:
    names = ("basic.json", "basic.p4info.txtpb")
    command = next(line for block in blocks() if block.page == P4 for line in block.commands if line.startswith("p4c"))
    for name in names:
        command = command.replace(f"examples/basic/{name}", str(tmp_path / name))
    subprocess.run(command.split(), cwd=ROOT, check=True, timeout=240)
    for name in names:
        assert (tmp_path / name).read_text().replace(str(tmp_path), "examples/basic") == (
            ROOT / "examples/basic" / name
        ).read_text()
