# SPDX-License-Identifier: Apache-2.0
"""Traffic other than plain TCP: programs that send and receive it, and samples of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.packet import Raw as Payload

from accesspoint.checks.harness.waiting import eventually
from accesspoint.experiments.lab.stage import empty_pings
from accesspoint.experiments.measure.run_data import Raw, added, total
from accesspoint.experiments.measure.samples import Sample
from accesspoint.experiments.scenes import calls, http3
from accesspoint.experiments.scenes.arrival_log import parse
from accesspoint.experiments.scenes.crossing import reordered
from accesspoint.experiments.scenes.encapsulated import _table
from accesspoint.experiments.scenes.steady import FRAME, PAYLOAD
from accesspoint.topologies.links.paths import PathHost, Paths
from accesspoint.topologies.requirements import ROOT

SECONDS = 4
BEGAN = time.time()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


@contextmanager
def running(popen: object, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """`python -m words` of this project while the block runs."""
    command = [sys.executable, "-m", *words]
    process = popen(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # type: ignore[operator]
    try:
        assert process.stdout
        yield process
    finally:
        process.terminate()
        process.wait()


def rates(process: "subprocess.Popen[str]", number: int) -> list[float]:
    """Mb/s of so many lines; they may have waited to be read."""
    assert process.stdout
    lines = [process.stdout.readline().split() for _ in range(number)]
    assert all(BEGAN - 1 < float(when) < time.time() + 1 for when, _ in lines)
    return [float(rate) for _, rate in lines]


def came(host: PathHost) -> int:
    """The datagrams that have come to a host: also those that its program is too early or too late for."""
    counters = _table(Path(f"/proc/{host.pid}/net/snmp").read_text())
    return counters["Ip.InReceives"] - counters["Icmp.InMsgs"]


@needs_root
def test_call_sends_both_ways_at_its_rate() -> None:
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        link = paths.link(a, b, rate="2mbit", delay="5ms", limit=1000)
        words = ("accesspoint.experiments.scenes.calls",)
        ends = ((a, link.a_ip, link.b_ip), (b, link.b_ip, link.a_ip))
        processes = [
            host.popen(sys.executable, "-m", *words, own, other, "6001", str(SECONDS), cwd=ROOT)
            for host, own, other in ends
        ]
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
        for host in (a, b):
            assert eventually(lambda host=host: came(host) >= 0.9 * SECONDS / calls.PERIOD)  # type: ignore[misc]
            assert came(host) <= SECONDS / calls.PERIOD


@contextmanager
def files_over_quic() -> Iterator["subprocess.Popen[str]"]:
    """A client that loads files over 2 Mb/s, once the first one comes."""
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        link = paths.link(a, b, rate="2mbit", delay="5ms", limit=50)
        with running(a.popen, "accesspoint.experiments.scenes.http3", "serve", link.a_ip, "4433") as server:
            assert server.stdout and server.stdout.readline() == "ready\n"
            with running(b.popen, "accesspoint.experiments.scenes.http3", "get", link.a_ip, "4433", "100000") as client:
                while not rates(client, 1)[0]:
                    pass  # it comes up
                yield client


@needs_root
def test_files_over_quic_come_one_after_the_other() -> None:
    with files_over_quic() as client:
        loaded = 0.0  # bytes
        while loaded < 1e6:
            loaded += rates(client, 1)[0] * http3.INTERVAL * 1e6 / 8


@needs_root
@pytest.mark.realtime
def test_files_over_quic_fill_a_link() -> None:
    with files_over_quic() as client:
        found = rates(client, 8)
    # 1250 bytes of datagram in a frame of 1292, and of these QUIC has some.
    assert 1.0 < sum(found) / 8 < 2 * 1250 / 1292 * 1.05


@needs_root
@pytest.mark.parametrize("group", ["239.1.2.3", None])
def test_datagrams_are_as_many_as_their_rate_has(group: str | None) -> None:
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        link = paths.wire(a, b)
        to = group or link.b_ip
        with (
            running(b.popen, "accesspoint.experiments.scenes.steady", "receive", link.b_ip, to, "5004") as receiver,
            running(b.popen, "accesspoint.experiments.scenes.wire", link.b_if, link.a_ip) as wire,
        ):
            for program in (receiver, wire):
                assert program.stdout and program.stdout.readline() == "ready\n"
            send = ("send", link.a_ip, to, "5004", "4000000", str(SECONDS), "2")
            with running(a.popen, "accesspoint.experiments.scenes.steady", *send):
                found = [next(filter(None, (rates(receiver, 1)[0] for _ in count())))]
                while sum(found) < 0.999 * SECONDS * 4 * 4 * PAYLOAD / FRAME and len(found) < 400:
                    found += rates(receiver, 1)
                frames = [rates(wire, 1)[0]]
                while sum(frames) < 0.999 * SECONDS * 4 * 4 and len(frames) < 400:
                    frames += rates(wire, 1)
                assert sum(frames) / 4 == pytest.approx(SECONDS * 4, rel=1e-3)
    # On a busy machine they take longer, but are no less, and never come sooner.
    assert sum(found) / 4 == pytest.approx(SECONDS * 4 * PAYLOAD / FRAME, rel=1e-3)
    assert len(found) >= SECONDS * 4 - 1


@needs_root
def test_datagrams_wait_for_a_receiver_that_has_no_processor() -> None:
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        link = paths.wire(a, b)
        words = (link.b_ip, link.b_ip, "5004")
        with running(b.popen, "accesspoint.experiments.scenes.steady", "receive", *words) as receiver:
            assert receiver.stdout and receiver.stdout.readline() == "ready\n"
            receiver.send_signal(signal.SIGSTOP)
            send = ("send", link.a_ip, link.b_ip, "5004", "8000000", "2")
            with running(a.popen, "accesspoint.experiments.scenes.steady", *send) as sender:
                sender.wait()
            receiver.send_signal(signal.SIGCONT)
            found: list[float] = []
            while sum(found) < 0.999 * 2 * 4 * 8 * PAYLOAD / FRAME and len(found) < 400:
                found += rates(receiver, 1)
    assert len(found) < 400


def test_full_segments_are_told_from_all_else() -> None:
    segment = IP(id=7) / TCP(dport=5201, seq=123456)
    back = IP(id=8) / TCP(sport=5201, seq=123456)
    assert parse(bytes(segment / Payload(bytes(1448))), 5201) == (123456, 7)
    assert parse(bytes(back / Payload(bytes(1448))), 5201) == (123456, 8)
    assert parse(bytes(back / Payload(bytes(1448))), 5202) is None
    assert parse(bytes(segment / Payload(bytes(1448))), 5202) is None
    assert parse(bytes(segment), 5201) is None
    assert parse(bytes(IP() / UDP(dport=5201) / Payload(bytes(1448))), 5201) is None


@needs_root
def test_many_connections_are_counted_by_name() -> None:
    with Paths() as paths:
        station, server = paths.host("station"), paths.host("server")
        link = paths.link(station, server, rate="8mbit", limit=100)
        words = ("accesspoint.experiments.scenes.bulk", "receive", link.b_ip, "5401")
        with running(server.popen, *words) as receiver:
            assert receiver.stdout
            assert receiver.stdout.readline() == "ready\n"
            to = ("accesspoint.experiments.scenes.bulk", "send", link.b_ip, "5401")
            with running(station.popen, *to, "one", "1", "0"), running(station.popen, *to, "seven", "7", "0"):
                seen: dict[str, float] = {}
                while len(seen) < 2 or sum(seen.values()) < 6:
                    _, rate, name = receiver.stdout.readline().split()
                    seen[name] = float(rate)
    assert set(seen) == {"one", "seven"}


def test_what_comes_after_something_sent_later_is_reordered() -> None:
    assert reordered("abcde", "abcde") == reordered("abcde", "ade") == 0, "a loss is no reordering"
    assert reordered("abcde", "acbde") == 1
    assert reordered("abcde", "eabcd") == 4, "section 3.4: each of them is late"
    assert reordered("abc", "xbac") == 1, "what was not seen to leave does not count"


def test_the_kernels_counters_by_name() -> None:
    text = "Tcp: InSegs RetransSegs\nTcp: 10 2\nTcpExt: TCPOFOQueue\nTcpExt: 3\n"
    assert _table(text) == {"Tcp.InSegs": 10, "Tcp.RetransSegs": 2, "TcpExt.TCPOFOQueue": 3}


def test_empty_links_are_asked_once_the_path_is_there() -> None:
    waited = [Sample(-1.7 + 0.05 * n, "ping_ms", 1084.0 - 50 * n) for n in range(22)]
    asked = [Sample(-0.5 + 0.05 * n, "ping_ms", 4.0) for n in range(10)]
    loaded = [Sample(0.1, "ping_ms", 12.0), Sample(-0.2, "rate_mbps", 3.0)]
    assert empty_pings([*waited, *asked, *loaded]) == [4.0] * 10
    assert empty_pings(asked) == [4.0] * 9, "the first is what tells that the path is there"
    assert empty_pings(loaded) == []
    late = [Sample(-0.3 + 0.05 * n, "ping_ms", 70.0 if n < 2 else 5.0, source="other") for n in range(4)]
    assert empty_pings([*asked, *late]) == [4.0] * 9 + [5.0] * 2, "each source waits for its own path"


def test_what_a_load_adds_is_above_the_empty_links_of_its_own_run() -> None:
    samples = [Sample(0.0, "empty_ping_ms", value) for value in (4.0, 4.0, 30.0)]
    samples += [Sample(t + 0.5, "ping_ms", 4.0 if t < 5 else 9.0) for t in range(10)]
    raw = Raw([*samples, Sample(10.0, "retransmitted", 2.0), Sample(10.0, "retransmitted", 3.0)], seconds=10)
    assert added(5)(raw) == pytest.approx(5.0) and added()(raw) == pytest.approx(2.5)
    assert added(5)(Raw(samples[3:], seconds=10)) is None, "without empty links nothing can be said"
    assert total("retransmitted")(raw) == 5 and total("lost")(raw) is None
