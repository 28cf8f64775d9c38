# SPDX-License-Identifier: Apache-2.0
"""Choice between paths: cheap ones first, limits, quotas, and paths that carry no long packets."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accesspoint.checks.harness.hosts.batcp import HOSTS, NEEDS_ROOT
from accesspoint.checks.harness.hosts.files import Transfer, make_file, when_received
from accesspoint.checks.harness.hosts.proxies import SIZE, Scene, fetched, web
from accesspoint.topologies.links.paths import PathLink, Paths

pytestmark = NEEDS_ROOT
FILE = 2_000_000
RATE: dict[str, Any] = {"rate": "6mbit", "delay": "5ms", "limit": 40}


@pytest.fixture
def links() -> Iterator[list[PathLink]]:
    with Paths() as paths:
        a, b = paths.host("client"), paths.host("server")
        yield [paths.link(a, b, **RATE), paths.link(a, b, **RATE)]


def sent(transfer: Transfer) -> dict[str, int]:
    """Payload by interface of a transfer that has arrived."""
    sender, receiver = transfer.ends()
    assert (sender.code, receiver.code) == (0, 0), f"{sender.said} {receiver.said}"
    return {total["interface"]: total["bytes_sent"] for total in sender.summary["status"]["totals"]}


def counted(link: PathLink) -> int:
    """Bytes that the near end's interface has received and sent."""
    stats = json.loads(link.a.ip("-s", "-j", "link", "show", link.a_if))[0]["stats64"]
    return int(stats["rx"]["bytes"]) + int(stats["tx"]["bytes"])


def by_price(links: list[PathLink], tmp_path: Path, size: int) -> dict[str, int]:
    """Payload by interface of a file, where the second one is dear."""
    make_file(tmp_path / "file", size)
    (tmp_path / "received").mkdir()
    with Transfer(links, tmp_path / "file", tmp_path / "received", weights=("", ":1000")) as transfer:
        return sent(transfer)


def test_a_cheap_interface_carries_beside_a_dear_one(links: list[PathLink], tmp_path: Path) -> None:
    share = by_price(links, tmp_path, 3 * FILE)
    assert share["eth0"] > share.get("eth1", 0)


@pytest.mark.realtime  # a link that stands still is no longer cheap
def test_a_dear_interface_rests_while_a_cheap_one_carries(links: list[PathLink], tmp_path: Path) -> None:
    share = by_price(links, tmp_path, FILE)
    assert share["eth0"] >= FILE and share.get("eth1", 0) == 0


@pytest.mark.realtime
def test_a_dear_interface_carries_once_the_cheap_one_is_gone(links: list[PathLink], tmp_path: Path) -> None:
    make_file(tmp_path / "file", FILE)
    (tmp_path / "received").mkdir()
    with Transfer(links, tmp_path / "file", tmp_path / "received", weights=("", ":1000")) as transfer:
        when_received(links[0], FILE // 4, links[0].blackhole)
        share = sent(transfer)
    links[0].restore()
    assert share["eth1"] > 0.5 * FILE


@pytest.mark.realtime
def test_a_dear_interface_helps_when_the_cheap_one_is_full(links: list[PathLink], tmp_path: Path) -> None:
    make_file(tmp_path / "file", FILE)
    (tmp_path / "received").mkdir()
    with Transfer(links, tmp_path / "file", tmp_path / "received", weights=("", ":2")) as transfer:
        assert min(sent(transfer).values()) > 0.25 * FILE


def test_a_limit_holds_for_what_is_sent(links: list[PathLink], tmp_path: Path) -> None:
    make_file(tmp_path / "file", FILE)
    before = counted(links[1])
    (tmp_path / "received").mkdir()
    started = time.monotonic()
    with Transfer(links, tmp_path / "file", tmp_path / "received", sender=("--limit", "eth1=1mbit")) as transfer:
        share = sent(transfer)
        seconds = time.monotonic() - started
    assert share["eth1"] > 0
    # With headers, acknowledgements and what the limit makes up for.
    assert counted(links[1]) - before < 1.2 * (125_000 * seconds) + 50_000


def test_a_limit_holds_for_what_is_received(slow: Scene) -> None:
    expected = web(slow)
    slow.remote()
    slow.socks("--limit", "eth1=1mbit")
    before = slow.carried()
    started = time.monotonic()
    assert fetched(slow, "--proxy", "socks5h://127.0.0.1:1080") == expected
    seconds = time.monotonic() - started
    eth1 = slow.carried()[1] - before[1]
    # The kernel's buffer takes some, which waits for its turn.
    assert 10_000 < eth1 < 1.2 * (125_000 * seconds) + 500_000, f"{eth1} bytes in {seconds:.1f} s"


def test_a_quota_counts_what_the_interface_counts_and_survives_a_restart(
    links: list[PathLink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    make_file(tmp_path / "file", 2 * FILE)
    (tmp_path / "received").mkdir()
    for turn in range(2):
        before = counted(links[0])
        with Transfer(links, tmp_path / "file", tmp_path / "received", sender=("--quota", "eth0=500KB/30")) as transfer:
            share = sent(transfer)
        kept = json.loads((tmp_path / "state/eth0.json").read_text())
        if turn == 0:
            assert share["eth0"] > 100_000
            assert kept["used"] >= 500_000 and kept["used"] >= share["eth0"], "headers and acknowledgements count"
            assert share["eth1"] > share["eth0"]
        else:
            assert "eth0" not in share and counted(links[0]) - before < 10_000
    with Transfer(links[:1], tmp_path / "file", tmp_path / "received", sender=("--quota", "eth0=500KB/30")) as transfer:
        transfer.sender.wait(120)
        transfer.receiver.kill()
        sender, _ = transfer.ends()
    assert sender.code == 2 and "eth0: its quota is used up" in sender.said


def test_a_quota_is_shown(slow: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(slow.directory))
    slow.remote()
    local = slow.socks("--quota", "eth1=2GB")
    [path] = local.status()["paths"]
    assert (path["path"], path["quota"]) == ("eth1", 2_000_000_000) and path["quota_used"] < 1_000_000
    shown = slow.a.run(HOSTS, "batcp", "status", "--as", "prometheus")
    assert 'path="eth1"} 2000000000' in shown


def drop_long(link: PathLink) -> None:
    """Drop packets of more than 1300 octets without a word, both ways."""
    assert link._namespace
    for port in ("port1", "port2"):
        link._namespace.ip("link", "set", port, "mtu", "1300")


@pytest.mark.realtime
def test_a_path_that_drops_long_packets_sends_short_ones(links: list[PathLink], tmp_path: Path) -> None:
    drop_long(links[0])
    make_file(tmp_path / "file", 2 * FILE)
    (tmp_path / "received").mkdir()
    with Transfer(links, tmp_path / "file", tmp_path / "received") as transfer:
        assert sent(transfer)["eth0"] > 0.2 * 2 * FILE


@pytest.mark.realtime
def test_a_path_that_drops_long_packets_receives_short_ones(slow: Scene) -> None:
    drop_long(slow.links[0])
    expected = web(slow)
    slow.remote()
    slow.socks("--spare", "0")
    for _ in range(3):
        assert fetched(slow, "--proxy", "socks5h://127.0.0.1:1080") == expected
    assert slow.carried()[0] > SIZE // 2, "the second and the third page come over both"
