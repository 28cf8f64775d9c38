# SPDX-License-Identifier: Apache-2.0
"""Address takeover on a real switch: a station takes the gateway's address while another one sends to the gateway."""

import functools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.l2 import ARP, Ether

from accesspoint.checks.harness.switches import (
    SERVER,
    STATION,
    TARGETS,
    WAIT_SECONDS,
    Controller,
    SwitchLab,
    lab,
    missing,
    udp,
    wait_for,
)

from .patient import patient

VICTIM, UPLINK, SPOOFER = 1, 2, 3
GATEWAY_IP = "10.0.0.2"
PORT = 4000
PACE = 0.004
SETTLE_SECONDS = 30.0
"""Seconds for the last frames, which a busy machine may hold up."""
MIN_SENT = 200
"""Frames of the victim without which a loss could be missed."""
EVERYBODY = b"\xff" * 6
OTHER = b"\x02\0\0\0\0\x77"
SAYS_NOTHING = EVERYBODY + SERVER + b"\x88\xb5" + bytes(46)
"""A frame with the gateway's address as its source."""


@pytest.fixture(params=TARGETS)
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SwitchLab]:
    """A running switch with a victim, a gateway behind the uplink and a spoofer."""
    if reason := missing(request.param):
        pytest.skip(reason)
    with lab(request.param, tmp_path, 3) as made:
        made.start_switch()
        yield made


def controlled(made: SwitchLab, patience: float | None = None, **of_spoofer: Any) -> Controller:
    """Return a controller, told of links on which nothing waits; `patience`: seconds of a first contest."""
    ports = [
        {"port": VICTIM, "role": "station", "capacity_bps": 10**9},
        {"port": UPLINK, "role": "uplink", "capacity_bps": 10**9},
        {"port": SPOOFER, "role": "station", "capacity_bps": 10**9, **of_spoofer},
    ]
    if patience is None:
        controller = made.controller(ports=ports)
    else:
        controller = patient(made, {"agent.contests:CONTEST_SECONDS": patience}, ports=ports)
    made.introduce(controller)
    return controller


class Victim:
    """A station that sends numbered packets to the gateway all the time, and the gateway that counts them."""

    def __init__(self, made: SwitchLab) -> None:
        self._wires = made.wires
        self._ended = threading.Event()
        self.sent = 0
        self.received: set[int] = set()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]

    def __enter__(self) -> "Victim":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # An attack lasts as long as it lasts; a machine that is busy sends less meanwhile.
        wait_for(lambda: self.sent > MIN_SENT)
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @property
    def lost(self) -> int:
        return self.sent - len(self.received)

    def _send(self) -> None:
        frame = udp(STATION, SERVER, PORT, PORT)
        while not self._ended.wait(PACE):
            self._wires[VICTIM].send(frame[:42] + self.sent.to_bytes(4) + frame[46:])
            self.sent += 1

    def _receive(self) -> None:
        end = time.monotonic() + SETTLE_SECONDS
        while self._threads[0].is_alive() or (self.lost and time.monotonic() < end):
            for frame in self._wires[UPLINK].received(0.05):
                if frame[:12] == SERVER + STATION and frame[36:38] == PORT.to_bytes(2):
                    self.received.add(int.from_bytes(frame[42:46]))
                elif frame[12:14] == b"\x08\x06":
                    self._answer(Ether(frame))
            if self._threads[0].is_alive():
                end = time.monotonic() + SETTLE_SECONDS

    def _answer(self, asked: Any) -> None:
        if asked[ARP].op == 1 and asked[ARP].pdst == GATEWAY_IP:
            self._wires[UPLINK].send(arp(asked[ARP].hwsrc, asked[ARP].psrc))


def arp(to: str, address: str) -> bytes:
    """Return the gateway's answer to ARP."""
    mac = SERVER.hex(":")
    return bytes(Ether(dst=to, src=mac) / ARP(op=2, hwsrc=mac, psrc=GATEWAY_IP, hwdst=to, pdst=address)).ljust(
        60, b"\0"
    )


def three_frames(made: SwitchLab) -> None:
    """Each after one of the gateway, which used up the moves of an address."""
    for _ in range(3):
        made.wires[UPLINK].send(SAYS_NOTHING)
        time.sleep(0.1)
        made.wires[SPOOFER].send(SAYS_NOTHING)
        time.sleep(0.1)
    time.sleep(1)


def without_end(made: SwitchLab) -> None:
    """For two seconds, in which the gateway says nothing."""
    for _ in range(1000):
        made.wires[SPOOFER].send(SAYS_NOTHING)
        time.sleep(0.002)


def against_a_gateway_that_speaks(made: SwitchLab) -> None:
    """For two seconds, in which the gateway speaks ten times a second."""
    for number in range(1000):
        made.wires[SPOOFER].send(SAYS_NOTHING)
        if number % 50 == 0:
            made.wires[UPLINK].send(SAYS_NOTHING)
        time.sleep(0.002)


def is_at(controller: Controller, mac: bytes, port: int) -> bool:
    """Return whether an address is known behind a port."""
    return (mac.hex(":"), port) in {(entry["address"], entry["port"]) for entry in controller.get("stations")}


def refused(controller: Controller) -> int:
    """Claims to addresses of the uplink."""
    lines = controller.request("GET", "/metrics").text.splitlines()
    line = next(line for line in lines if line.startswith("ap_stations_refused_total") and 'reason="uplink"' in line)
    return int(float(line.split()[-1]))


@pytest.mark.parametrize("attack", [three_frames, without_end, against_a_gateway_that_speaks])
def test_gateway_claimed_by_a_wired_station_loses_nothing(
    three: SwitchLab, attack: Callable[[SwitchLab], None]
) -> None:
    controller = controlled(three)
    with Victim(three) as victim:
        attack(three)
        assert is_at(controller, SERVER, UPLINK)
    assert (victim.lost, victim.sent > MIN_SENT) == (0, True)
    assert wait_for(lambda: refused(controller))


def test_gateway_that_speaks_after_the_spoofer_is_found_for_good(three: SwitchLab) -> None:
    controller = controlled(three)
    for wire in (SPOOFER, UPLINK):
        three.wires[wire].send(udp(OTHER, EVERYBODY, 9, 9))
        wait_for(functools.partial(is_at, controller, OTHER, wire))
    for _ in range(50):
        three.wires[SPOOFER].send(udp(OTHER, EVERYBODY, 9, 9))
        time.sleep(0.01)
    assert is_at(controller, OTHER, UPLINK)


# A gateway of which nothing is heard for a second may have roamed, and on a busy machine so it may be.
@pytest.mark.parametrize("patience", [100.0, pytest.param(None, marks=pytest.mark.realtime)])
@pytest.mark.parametrize("attack", [three_frames, without_end, against_a_gateway_that_speaks])
def test_gateway_claimed_on_a_radio_loses_nothing(
    three: SwitchLab, attack: Callable[[SwitchLab], None], patience: float | None
) -> None:
    """In `without_end` the gateway says nothing but what it answers to ARP, which the controller asks."""
    controller = controlled(three, patience, roaming=True)
    three.wires[UPLINK].send(arp("02:00:00:00:00:01", "10.0.0.1"))
    # The gateway was heard once another one, who spoke after it, is known.
    three.wires[UPLINK].send(udp(OTHER, EVERYBODY, 9, 9))
    wait_for(lambda: controller.knows(OTHER))
    with Victim(three) as victim:
        attack(three)
        wait_for(functools.partial(is_at, controller, SERVER, UPLINK))
    assert (victim.lost, victim.sent > MIN_SENT) == (0, True)


def test_station_that_comes_to_a_radio_from_the_uplink_is_found(three: SwitchLab) -> None:
    controller = controlled(three, roaming=True)
    three.wires[UPLINK].send(udp(OTHER, EVERYBODY, 9, 9))
    wait_for(lambda: controller.knows(OTHER))
    sent = 0

    def say() -> None:
        nonlocal sent
        three.wires[UPLINK].send(udp(SERVER, OTHER, 5000 + sent, 9))
        sent += 1

    def comes() -> set[int]:
        frames = three.wires[SPOOFER].received(0.05)
        return {int.from_bytes(frame[34:36]) - 5000 for frame in frames if frame[:6] == OTHER}

    def first() -> set[int]:
        say()
        return comes()

    # Frames to it reach it, but not yet those before its own first one there was heard.
    three.wires[SPOOFER].send(udp(OTHER, EVERYBODY, 9, 9))
    got = wait_for(first)
    began, deadline = time.monotonic(), time.monotonic() + WAIT_SECONDS
    while time.monotonic() < began + 3 or not is_at(controller, OTHER, SPOOFER):
        assert time.monotonic() < deadline, "it is not found"
        three.wires[SPOOFER].send(udp(OTHER, EVERYBODY, 9, 9))
        time.sleep(0.05)
        say()
        got |= comes()

    def all_came() -> bool:
        got.update(comes())
        return got >= {*range(min(got), sent)}

    wait_for(all_came)
    assert is_at(controller, OTHER, SPOOFER)


def test_address_that_moves_too_often_goes_back_to_where_it_was(three: SwitchLab) -> None:
    controller = three.controller(stations={SERVER.hex(":"): {"locked_port": UPLINK}}, limits={"moves": 3})
    three.introduce(controller)
    for port in (VICTIM, SPOOFER, VICTIM, SPOOFER):
        three.wires[port].send(udp(OTHER, EVERYBODY, 9, 9))
        wait_for(functools.partial(is_at, controller, OTHER, port))
    for port in (VICTIM, SPOOFER, VICTIM, SPOOFER):
        three.wires[port].send(udp(OTHER, EVERYBODY, 9, 9))
        three.wires[SPOOFER].send(udp(SERVER, EVERYBODY, 9, 9))
        wait_for(functools.partial(is_at, controller, OTHER, VICTIM))
    time.sleep(0.5)
    assert is_at(controller, OTHER, VICTIM) and is_at(controller, SERVER, UPLINK)
    assert {entry["moves"] for entry in controller.get("stations")} == {0, 4}
