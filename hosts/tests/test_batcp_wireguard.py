# SPDX-License-Identifier: Apache-2.0
"""WireGuard over each of two uplinks and the proxies over both, as docs/hosts/two-uplinks.md has it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.checks.harness.hosts.batcp import NEEDS_ROOT
from accesspoint.checks.harness.hosts.wireguard import BYTES, MBIT
from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.requirements import ROOT, LabError

# In a process of its own: it leaves this one's signals and terminal alone.
RUN = """
import sys
from pathlib import Path
from accesspoint.topologies.kernels import kernel
folder = Path(sys.argv[1])
module = "accesspoint.checks.harness.hosts.wireguard"
sys.exit(kernel.run(kernel.of_virtual_time(), module, [str(folder)], [folder], kernel.VIRTUAL))
"""


@pytest.mark.long
@NEEDS_ROOT
@pytest.mark.timeout(300)
def test_proxies_over_two_tunnels_of_wireguard_carry_both_uplinks_sum(tmp_path: Path) -> None:
    try:
        kernel.of_virtual_time()
    except LabError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    print(f"{found['mbit']:.1f} of {2 * MBIT} Mbit/s through both")
    assert found["bytes"] == BYTES and " 3 received" in found["pings"]
    assert min(found["carried"].values()) > BYTES / 4, found["carried"]
    assert found["mbit"] > 0.75 * 2 * MBIT
