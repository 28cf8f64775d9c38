# SPDX-License-Identifier: Apache-2.0
"""apctl init where hostapd runs the radio: simulated ones, in a user-mode kernel that has them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.checks.harness.switches import ROOT
from accesspoint.topologies.kernels import kernel

pytestmark = pytest.mark.long

RUN = """
import sys
from pathlib import Path
from accesspoint.topologies.kernels import kernel
there = Path(sys.argv[1])
sys.exit(kernel.run(kernel.with_radios(), "accesspoint.controller.tests.radio_in_the_kernel", [str(there)], [there],
longest=560))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a user-mode kernel on this machine's files needs root")
@pytest.mark.skipif(not shutil.which("hostapd") or not shutil.which("iw"), reason="missing: apt install hostapd iw")
@pytest.mark.timeout(620)
def test_hostapds_radio_is_a_port_and_then_no_more(tmp_path: Path) -> None:
    if not kernel.with_radios().is_there():
        pytest.skip("no kernel with radios is there: `make wifi-kernel` builds one")
    done = subprocess.run([sys.executable, "-c", RUN, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the machine is as it was" in done.stdout
