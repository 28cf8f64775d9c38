# SPDX-License-Identifier: Apache-2.0
"""The transport like QUIC's: its window does what RFC 9002 says, and it fills a link."""

import os
import subprocess
import sys

import pytest

from accesspoint.experiments.scenes.datagrams import (
    ACK,
    ACKNOWLEDGEMENT,
    HISTORY,
    INITIAL_WINDOW,
    MIN_WINDOW,
    PACKET,
    Sender,
)
from accesspoint.topologies.links.paths import Paths
from accesspoint.topologies.requirements import ROOT

RTT = 0.1


def ack(*numbers: int, marked: int = 0) -> bytes:
    """An acknowledgement of these packets."""
    largest = max(numbers)
    seen = sum(1 << (largest - number) for number in numbers)
    return ACKNOWLEDGEMENT.pack(ACK, largest, seen.to_bytes(HISTORY // 8, "big"), marked)


def fill(sender: Sender, now: float) -> int:
    """Sends what the window allows; how many packets."""
    sent = 0
    while sender.may_send():
        assert len(sender.send(now)) == PACKET
        sent += 1
    return sent


def test_slow_start_doubles_the_window_in_a_round_trip() -> None:
    sender = Sender()
    assert fill(sender, 0.0) == INITIAL_WINDOW // PACKET == 10
    sender.acknowledge(ack(*range(10)), RTT)
    assert fill(sender, RTT) == 20


def test_a_mark_halves_the_window_once_in_a_round_trip() -> None:
    sender = Sender()
    fill(sender, 0.0)
    sender.acknowledge(ack(0, 1, marked=1), RTT)
    assert sender.window == 12 * PACKET / 2
    sender.acknowledge(ack(2, 3, marked=2), RTT)
    assert sender.window == 6 * PACKET, "the same round trip"
    sender.acknowledge(ack(*range(4, 10), marked=2), RTT)
    fill(sender, 2 * RTT)
    sender.acknowledge(ack(10, 11, marked=3), 3 * RTT)
    assert sender.window < 4 * PACKET, "the next one"


def test_what_is_three_packets_behind_is_lost() -> None:
    sender = Sender()
    fill(sender, 0.0)
    sender.acknowledge(ack(1, 2), RTT)
    assert sender.window == 12 * PACKET and 0 in sender.in_flight
    sender.acknowledge(ack(1, 2, 3), RTT)
    assert sender.window == 13 * PACKET / 2 and 0 not in sender.in_flight


def test_silence_brings_two_probes_past_the_window() -> None:
    sender = Sender()
    fill(sender, 0.0)
    assert sender.timeout() > RTT
    sender.probe(sender.timeout())
    assert fill(sender, 1.0) == 2
    for start in range(0, 2000, 4):
        sender.acknowledge(ack(start + 3, marked=start + 1), 2.0 + start)
        fill(sender, 2.0 + start)
    assert sender.window >= MIN_WINDOW


@pytest.mark.realtime
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_it_fills_a_link_and_no_more() -> None:
    words = [sys.executable, "-m", "accesspoint.experiments.scenes.datagrams"]
    with Paths() as paths:
        a, b = paths.host("a"), paths.host("b")
        link = paths.link(a, b, rate="2mbit", delay="10ms", limit=30)
        receiver = b.popen(*words, "receive", link.b_ip, "4433", cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert receiver.stdout and receiver.stdout.readline() == "ready\n"
        a.run(*words, "send", link.b_ip, "4433", "4", cwd=ROOT)
        receiver.terminate()
        rates = [float(line.split()[1]) for line in receiver.stdout]
    # 1250 bytes of payload in a frame of 1292.
    assert 1.0 < sum(rates[4:12]) / 8 < 2 * 1250 / 1292 * 1.1
