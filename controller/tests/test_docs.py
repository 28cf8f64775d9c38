# SPDX-License-Identifier: Apache-2.0
"""The commands that docs/controller gives for beside a controller are true, and the client is that of the API."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from accesspoint.checks.harness.switches import ROOT, SwitchLab
from tools import client

from .conftest import Apctl

PAGES = sorted((ROOT / "docs/controller").glob("*.md"))


def commands(page: Path) -> list[str]:
    """Return the commands of every block behind `<!-- controller -->`."""
    blocks = re.findall(r"^<!-- controller -->\n```sh\n(.*?)^```", page.read_text(), re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def test_commands_beside_a_controller(link_lab: SwitchLab, tmp_path: Path, apctl: Apctl) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    link_lab.introduce(controller)
    given = {
        "APCTL_URL": controller.url,
        "APCTL_TOKEN": controller.token,
        "DATABASE": f"sqlite:///{controller.errors.with_suffix('.db')}",
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    environment, executed = os.environ | given, 0
    for page in PAGES:
        for command in commands(page):
            if command.startswith("./apctl "):
                code, output, errors = apctl(*shlex.split(command)[1:], **given)
                wrong = [line for line in output.splitlines() if line.lstrip().startswith("error ")]
                if code == 1 and wrong and all("ticks were late" in line for line in wrong):
                    code = 0  # of doctor, which is right to tell that the machine is busy
            else:
                there = command.replace("curl -s", "curl -sf").replace("localhost:8080", controller.url)
                there = there.replace("out/", f"{tmp_path}/")
                words = ["bash", "-c", there]
                done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, timeout=240)
                code, output, errors = done.returncode, done.stdout.decode(), done.stderr.decode()
            assert code == 0 and output, f"{page.name}: {command}\n{output}{errors}"
            executed += 1
        for script in re.findall(r"^<!-- controller -->\n```python\n(.*?)^```", page.read_text(), re.M | re.S):
            done = subprocess.run(
                [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, timeout=240
            )
            assert done.returncode == 0, f"{page.name}: {done.stderr.decode()}"
            executed += 1
    assert executed > 20


def test_the_client_is_that_of_the_api() -> None:
    for path, contents in client.made().items():
        assert path.read_text() == contents, f"{path.name} is not what `make client` makes"
