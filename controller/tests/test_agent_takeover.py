# SPDX-License-Identifier: Apache-2.0
"""Two agents of one access point, with a real engine and switch: one is killed, and packets do not notice."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accesspoint.checks.harness.switches import End
from accesspoint.topologies.fleet import Fleet, missing

from .faults import Numbered
from .fleet_faults import wrong
from .test_takeover import FAILOVER_SECONDS, FLOWS, indices

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.timeout(600),
]

AP = "/access-points/ap1"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, agents=1, backups=1, traffic=False) as made:
        yield made


def test_a_killed_agent_loses_no_packet_and_gives_no_index_twice(fleet: Fleet) -> None:
    ap = fleet.access_points[0]
    agents = [ap.parts["agent1"], ap.parts["agent2"]]
    primary, backup = sorted(agents, key=lambda part: not part.said("ready ap1"))
    fleet.looking(lambda: backup.said("waiting as backup"), "the other one waits")
    wires = {1: End(ap.station, "eth0"), 2: End(ap.server, "eth0")}
    with Numbered(wires, FLOWS, per_second=FLOWS / 4) as traffic:
        fleet.looking(lambda: fleet.get(AP)["flows"] >= FLOWS, "all flows are learned")
        before = indices(fleet.get(f"{AP}/flows?limit=500"))
        os.kill(primary.pid, signal.SIGKILL)
        start = time.monotonic()
        while not backup.said("ready ap1"):
            assert time.monotonic() - start < FAILOVER_SECONDS, backup.log.read_text()
            time.sleep(0.01)
        fleet.looking(lambda: fleet.get(AP)["loop"]["ticks"] and not wrong(fleet, [0]), "all is as it was")
        after = indices(fleet.get(f"{AP}/flows?limit=500"))
    for wire in wires.values():
        wire.close()
    assert len(before) == 500
    assert before == {key: after.get(key) for key in before}
    assert len(traffic.got) == traffic.sent
    assert fleet.get(AP)["flows"] >= FLOWS
