# SPDX-License-Identifier: Apache-2.0
"""Peers: queue disciplines of Linux in our lab, in a kernel that has them."""

import json
from pathlib import Path

import pytest

from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.links import peers
from accesspoint.topologies.links.peers import PEERS
from accesspoint.topologies.links.station_classes import StationClass
from accesspoint.topologies.requirements import LabError
from accesspoint.topologies.targets import Port
from accesspoint.topologies.tests.conftest import Start

MEASURED = ("tc-fifo", "cake-ack-filter")
PORT = Port(1_000_000, 14_000_000, 1000)


def test_a_discipline_gets_the_ports_rate_and_limit() -> None:
    assert PEERS["tc-fifo"].commands(PORT, True) == [
        ("qdisc", "root handle 1: tbf rate 1000000bit burst 3028 limit 1514000"),
        ("qdisc", "parent 1: pfifo limit 1000"),
    ]
    assert PEERS["cake-ack-filter"].commands(PORT, True) == [("qdisc", "root cake bandwidth 1000000bit raw ack-filter")]
    up, down = (PEERS["cake-hosts"].commands(PORT, uplink) for uplink in (True, False))
    assert up == [("qdisc", "root cake bandwidth 1000000bit raw ack-filter dual-srchost")]
    assert down == [("qdisc", "root cake bandwidth 1000000bit raw dual-dsthost")]
    up, down = (PEERS["cake-path"].commands(PORT, uplink, rtt=0.047) for uplink in (True, False))
    assert up == [("qdisc", "root cake bandwidth 1000000bit raw rtt 47000us ack-filter dual-srchost")]
    assert down == [("qdisc", "root cake bandwidth 1000000bit raw rtt 47000us dual-dsthost")]
    assert "rtt 10000us" in PEERS["cake-path"].commands(PORT, True, rtt=0.002)[0][1]
    assert PEERS["fq_codel"].needs() == {"fq_codel", "tbf", "netem"} and PEERS["cake"].needs() == {"cake", "netem"}


def test_stations_have_classes_where_their_packets_leave() -> None:
    classes = (StationClass(1, "down", 2_000_000, 2_000_000), StationClass(2, "up", 300_000, 300_000))
    up = PEERS["htb"].commands(PORT, True, classes)
    assert [what for what, _ in up] == ["qdisc", "class", "class", "qdisc", "class", "qdisc", "filter"]
    assert up[2][1].startswith("parent 1:1 classid 1:12 htb rate 300000bit ceil 300000bit burst 3028 ")
    assert up[4][1].startswith("parent 1:1 classid 1:fff htb rate 700000bit ceil 1000000bit ")
    assert up[6][1] == "parent 1: protocol ip u32 match ip src 10.0.0.12/32 flowid 1:12"
    down = PEERS["htb"].commands(Port(14_000_000, 1_000_000, 100), False, classes)
    assert down[6][1] == "parent 1: protocol ip u32 match ip dst 10.0.0.11/32 flowid 1:11"
    assert PEERS["htb"].needs() == {"htb", "fq_codel", "netem"}


def test_an_unknown_peer_is_named() -> None:
    with pytest.raises(
        LabError, match="peer 'pie' is unknown: choose one of tc-fifo, fq_codel, cake, cake-ack-filter, "
    ):
        peers.kernel_for(["cake", "pie"])


def test_a_missing_kernel_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "has", lambda kind: kind == "tbf")
    monkeypatch.setattr(kernel, "DEBIAN", kernel.Kernel(tmp_path / "linux.uml", tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(
        LabError, match=r"has no fq_codel, netem, which tc-fifo, fq_codel needs: .*`apt install user-mode"
    ):
        peers.kernel_for(["tc-fifo", "fq_codel"])


def test_a_kernel_that_has_them_runs_them_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "has", lambda kind: True)
    assert peers.kernel_for(list(PEERS)) is None


RUN = """
import sys
from pathlib import Path
from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.links import peers
found = peers.kernel_for(["tc-fifo", "cake-ack-filter"])
if found:
    sys.exit(kernel.run(found, "accesspoint.topologies.tests.peers_in_the_kernel", sys.argv[1:], [Path(sys.argv[1])]))
import accesspoint.topologies.tests.peers_in_the_kernel as here
sys.exit(here.contain.run(here.main))
"""


@pytest.mark.usefixtures("privileged")
def test_peers_carry_the_links(start: Start, tmp_path: Path) -> None:
    try:
        peers.kernel_for(list(MEASURED))
    except LabError as error:
        pytest.skip(str(error))
    process = start("-c", RUN, str(tmp_path))
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    found = json.loads((tmp_path / "found.json").read_text())
    for name in MEASURED:
        seen = found[name]
        assert " 4 received" in seen["pings"]
        assert 20 <= seen["fastest"] < 40, "half of the round trip is missing, or there twice"
        assert 0.1e6 < seen["rate"] < 2e6, "the station's link has another rate"
        for rate, discipline in zip(("2Mbit", "1Mbit"), seen["at"], strict=True):
            assert f"qdisc {PEERS[name].kind} " in discipline and rate in discipline
            assert (" ack-filter" in discipline) == (name == "cake-ack-filter")
    assert "discipline, htb with netem: rate=500000bit,burst=" in found["taken"]
    assert ",limit=50,delay=25000us,jitter=10000us,loss=0.0100" in found["taken"]
