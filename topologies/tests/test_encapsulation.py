# SPDX-License-Identifier: Apache-2.0
"""Tags, sessions and tunnels, and peers on links that change: in the user-mode kernel, which has all of it."""

import json
from pathlib import Path

import pytest

from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.links.encapsulation import TUNNELS, WRAPS
from accesspoint.topologies.requirements import LabError
from accesspoint.topologies.tests.conftest import Start
from accesspoint.topologies.tests.encapsulation_in_the_kernel import RATE

RUN = """
import sys
from pathlib import Path
from accesspoint.topologies.kernels import kernel
module = "accesspoint.topologies.tests.encapsulation_in_the_kernel"
sys.exit(kernel.run(kernel.of_virtual_time(), module, sys.argv[1:], [Path(sys.argv[1])], kernel.VIRTUAL))
"""
ON_THE_WIRE = {
    "802.1q": "8100/0800/1",
    "qinq": "88a8/8100",
    "pppoe": "8864",
    "wireguard": "0800/17:51820",
    "vxlan": "0800/17:4789",
}


@pytest.mark.usefixtures("privileged")
def test_frames_are_wrapped_and_links_change(start: Start, tmp_path: Path) -> None:
    try:
        kernel.of_virtual_time()
    except LabError as error:
        pytest.skip(str(error))
    process = start("-c", RUN, str(tmp_path))
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(ON_THE_WIRE) == {*WRAPS, *TUNNELS}
    for kind, frames in ON_THE_WIRE.items():
        assert " 3 received" in found[kind]["pings"], kind
        assert found[kind]["seen"] == [frames], "something went another way"
    assert RATE / 2 < found["changing"] < RATE, "not the trace's rate"
