# SPDX-License-Identifier: Apache-2.0
"""The commands that the documentation gives for a running lab are true."""

import os
import re
import subprocess

import pytest

from accesspoint.topologies.requirements import ROOT
from accesspoint.topologies.tests.conftest import Start

TUTORIAL = "docs/tutorial.md"


def block(place: str, page: str = "docs/running.md") -> list[str]:
    """The commands of the block behind `<!-- place -->`."""
    match = re.search(rf"^<!-- {place} -->\n```sh\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    assert match
    return match[1].splitlines()


@pytest.mark.usefixtures("privileged")
def test_commands_in_the_lab_and_beside_it(start: Start) -> None:
    inside = [
        f"{command}{'' if command.endswith('&') else ' ;'} echo ended with $?"
        for command in (*block("prompt"), *block("prompt", TUTORIAL))
    ]
    commands = ["py net.lab.rest_url", "py net.lab.rest_token", *inside, "sta1 sleep 1000"]
    process = start("-m", "accesspoint.topologies.lab", *(word for command in commands for word in ("--exec", command)))
    assert process.stdout
    rest, token = process.stdout.readline().strip(), process.stdout.readline().strip()
    environment = os.environ | {"APCTL_URL": rest, "APCTL_TOKEN": token}
    for command in inside:
        for line in process.stdout:
            if line.startswith("ended with"):
                assert line.strip() == "ended with 0", command
                break
    for command in block("lab"):
        there = command.replace("curl -s", "curl -sf")
        done = subprocess.run(
            ["bash", "-c", there], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0 and done.stdout, command
