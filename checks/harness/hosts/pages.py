# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/hosts/ that need hosts to run in: the blocks behind `<!-- namespace -->`."""

import re

from accesspoint.topologies.requirements import ROOT


def documented_commands(page: str) -> list[str]:
    text = (ROOT / "docs/hosts" / f"{page}.md").read_text()
    blocks = re.findall(r"^<!-- namespace -->\n```sh\n(.*?)^```", text, re.M | re.S)
    return [line for block in blocks for line in block.splitlines()]
