# SPDX-License-Identifier: Apache-2.0
"""Settings of stations, with a real switch: their effect on packets, and the usage that their flows count for."""

import contextlib
import functools
import itertools
import re
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from accesspoint.checks.harness.switches import SERVER, STATION, Controller, SwitchLab, Wire, udp, udp6, wait_for
from accesspoint.controller.agent.flow_table import NOBODYS, SLOTS, FlowTable
from accesspoint.controller.agent.program import Program
from accesspoint.controller.agent.stations import Stations
from accesspoint.controller.agent.usage import Usage, address_binding
from accesspoint.controller.config import Pipeline

from .test_entries import PIPELINE, config

pytestmark = pytest.mark.realtime

OTHER = bytes.fromhex("020000000003")
SPARE = bytes.fromhex("020000000004")
PORTS = [
    {"port": 1, "role": "station", "capacity_bps": 14_000_000, "isolated": False},
    {"port": 2, "role": "uplink", "capacity_bps": 14_000_000},
]
NOT_ECT, ECT0, CE = 0, 2, 3


def arp(mac: bytes, tags: bytes = b"") -> bytes:
    """Somebody looks for the server."""
    said = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + mac + bytes([10, 0, 0, mac[5]]) + bytes(6) + bytes([10, 0, 0, 2])
    return (b"\xff" * 6 + mac + tags + b"\x08\x06" + said).ljust(60, b"\0")


def solicitation(mac: bytes, source: bytes, target: bytes) -> bytes:
    """Make a neighbour solicitation of IPv6."""
    to = b"\x33\x33\xff" + target[13:]
    said = b"\x87\0\0\0\0\0\0\0" + target + b"\x01\x01" + mac
    header = struct.pack(">IHBB", 6 << 28, len(said), 58, 255) + source + b"\xff\x02" + bytes(9) + b"\x01\xff"
    return to + mac + b"\x86\xdd" + header + target[13:] + said


@pytest.fixture
def radio(link_lab: SwitchLab) -> tuple[SwitchLab, Controller]:
    """Two stations behind one port, and a server behind the other."""
    link_lab.start_switch("1:rate=14mbit,limit=300", "2:rate=14mbit,limit=300")
    controller = link_lab.controller(ports=PORTS)
    link_lab.introduce(controller)
    for mac in (STATION, OTHER):
        link_lab.wires[1].send(arp(mac))
        wait_for(functools.partial(controller.knows, mac))
    return link_lab, controller


def station(controller: Controller, mac: bytes) -> Any:
    return controller.get(f"stations/{mac.hex(':')}")


def say(controller: Controller, mac: bytes, **said: object) -> None:
    answer = controller.send("PATCH", f"stations/{mac.hex(':')}", said)
    assert answer.status_code == 200, answer.text


@contextlib.contextmanager
def traffic(wire: Wire, *frames: bytes, each: float) -> Iterator[None]:
    """Frames in turn, `each` so many in a second; a moment that was missed is made up for."""
    stop = threading.Event()

    def run() -> None:
        due, turn = time.monotonic(), itertools.cycle(frames)
        while not stop.is_set():
            wire.send(next(turn))
            due += 1 / each / len(frames)
            time.sleep(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def got(wire: Wire, seconds: float = 2.0) -> Counter[bytes]:
    """Count the frames that come out for each station."""
    return Counter(frame[:6] for frame in wire.received(seconds))


def test_what_a_station_uses_is_told(radio: tuple[SwitchLab, Controller]) -> None:
    lab, controller = radio

    def used(mac: bytes) -> tuple[int, int]:
        lab.wires[1].send(udp(STATION, SERVER, 1000, 2000, size=200))
        lab.wires[2].send(udp(SERVER, STATION, 2000, 1000, size=400))
        seen = station(controller, mac)
        return seen["packets_up"], seen["packets_down"]

    # Of the first reading there is no rate yet.
    wait_for(lambda: min(used(STATION)) > 5 and station(controller, STATION)["rate_down_bps"] > 0)
    seen = station(controller, STATION)
    # What was sent before the flow was known is not counted; what was is of these sizes.
    assert (seen["bytes_up"], seen["bytes_down"]) == (200 * seen["packets_up"], 400 * seen["packets_down"])
    assert seen["rate_up_bps"] > 0 and seen["rate_down_bps"] > 0
    assert used(OTHER) == (0, 0)
    # The most active come first.
    first = controller.request("GET", "/api/v1/access-points/ap1/stations?sort=-bytes_down").json()[0]
    assert first["address"] == STATION.hex(":")
    # In /metrics are those that something is said of, and no others.
    say(controller, STATION, name="Laptop")
    told = f'ap_station_info{{access_point="ap1",name="Laptop",station="{STATION.hex(":")}"}} 1.0'
    wait_for(lambda: told in controller.request("GET", "/metrics").text)
    text = controller.request("GET", "/metrics").text
    assert f'ap_station_bytes_total{{access_point="ap1",direction="down",station="{STATION.hex(":")}"}}' in text
    assert OTHER.hex(":") not in text

    def kept() -> Any:
        used(STATION)
        found = controller.get(f"stations/{STATION.hex(':')}/history?start=-600")["used"]
        return found if found["bytes_down"] else None

    found = wait_for(kept)
    assert found["bytes_down"] % 400 == 0 and 0 < found["bytes_down"] <= station(controller, STATION)["bytes_down"]
    assert controller.get(f"stations/{OTHER.hex(':')}/history?start=-600")["columns"]["time"] == []


def test_who_is_alone_behind_a_port_needs_not_be_heard_of(link_lab: SwitchLab) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()
    link_lab.introduce(controller)

    def used() -> int:
        link_lab.wires[1].send(udp6(STATION, SERVER, 1000, 2000))
        return int(station(controller, STATION)["packets_up"])

    wait_for(lambda: used() > 3)
    # As soon as there are two nobody knows any more whose it is: until it is heard.
    link_lab.wires[1].send(udp(OTHER, SERVER, 9, 9))
    wait_for(lambda: controller.knows(OTHER))

    def stands_still() -> bool:
        before = used()
        for _ in range(15):
            time.sleep(0.1)
            used()
        return used() == before

    wait_for(stands_still)
    address = bytes.fromhex("fd" + 14 * "00" + "01")
    link_lab.wires[1].send(solicitation(STATION, address, address[:15] + b"\2"))
    before = used()
    wait_for(lambda: used() > before + 3)


def test_nothing_is_sent_to_who_is_blocked(radio: tuple[SwitchLab, Controller]) -> None:
    lab, controller = radio
    frames = [udp(SERVER, mac, 2000, 1000) for mac in (STATION, OTHER)]

    def both() -> set[bytes]:
        """Return the receivers, once the other one has received: frames to the station are sent first."""
        seen: set[bytes] = set()

        def until_other() -> bool:
            for frame in frames:
                lab.wires[2].send(frame)
            seen.update(mac for mac in got(lab.wires[1], 0.4) if mac in (STATION, OTHER))
            return OTHER in seen

        wait_for(until_other)
        return seen

    wait_for(lambda: both() == {STATION, OTHER})
    say(controller, STATION, blocked=True)
    # What was on its way is there by now.
    both()
    for _ in range(3):
        assert both() == {OTHER}
    # What it sends still leaves: the program has no table by source address.
    lab.wires[2].received(0.2)
    lab.wires[1].send(udp(STATION, SERVER, 1000, 2000))
    wait_for(lambda: SERVER in got(lab.wires[2], 0.5))
    # Another controller that takes the switch over finds it so.
    lab.controllers.remove(controller)
    controller.process.kill()
    controller.process.wait(120)
    again = lab.controller(ports=PORTS, stations={STATION.hex(":"): {"blocked": True}}, election_id=2)
    wait_for(lambda: again.knows(STATION))
    assert both() == {OTHER}
    say(again, STATION, blocked=None)
    wait_for(lambda: both() == {STATION, OTHER})


def test_a_station_is_locked_while_the_session_goes_on(radio: tuple[SwitchLab, Controller]) -> None:
    lab, controller = radio
    sessions = controller.get()["sessions"]
    say(controller, STATION, locked_port=2)
    wait_for(lambda: not controller.knows(STATION))

    def is_refused() -> bool:
        lab.wires[1].send(arp(STATION))
        told = controller.request("GET", "/metrics").text
        return re.search(r'reason="locked"} [1-9]', told) is not None

    wait_for(is_refused)
    assert not controller.knows(STATION)
    say(controller, STATION, locked_port=None)

    def is_back() -> bool:
        lab.wires[1].send(arp(STATION))
        return controller.knows(STATION)

    wait_for(is_back)
    assert controller.get()["sessions"] == sessions


def holds(what: Callable[[], Counter[bytes]], fits: Callable[[int, int], bool]) -> None:
    """Until it is so between what the two stations get; both are sent the same."""

    def one() -> bool:
        each = what()
        return each[OTHER] > 50 and fits(each[STATION], each[OTHER])

    wait_for(one)


def test_a_limit_holds_a_station_and_no_other(radio: tuple[SwitchLab, Controller]) -> None:
    lab, controller = radio
    frames = [udp(SERVER, mac, 2000, 1000, size=1000, ecn=NOT_ECT) for mac in (STATION, OTHER)]
    with traffic(lab.wires[2], *frames, each=100):
        holds(lambda: got(lab.wires[1]), lambda limited, other: limited > 0.8 * other)
        # A quarter of what is sent.
        say(controller, STATION, limit_down_bps=200_000)
        holds(lambda: got(lab.wires[1]), lambda limited, other: 0.1 * other < limited < 0.5 * other)
        flows = {flow["dst_addr"]: flow for flow in controller.get("flows") if flow["dst_port"] == 1000}
        assert flows["10.0.0.1"]["feedback_limit"] > 0.4
        assert flows["10.0.0.3"]["feedback_limit"] == 0
        say(controller, STATION, limit_down_bps=None)
        holds(lambda: got(lab.wires[1]), lambda limited, other: limited > 0.8 * other)


def test_a_limit_marks_what_can_be_marked(radio: tuple[SwitchLab, Controller]) -> None:
    lab, controller = radio
    up = udp(STATION, SERVER, 1000, 2000, size=1000, ecn=ECT0)
    say(controller, STATION, limit_up_bps=100_000)
    with traffic(lab.wires[1], up, each=100):

        def marked() -> float:
            seen = [frame for frame in lab.wires[2].received(1) if frame[:6] == SERVER]
            return sum(frame[15] & 3 == CE for frame in seen) / max(1, len(seen))

        wait_for(lambda: marked() > 0.5)


def test_a_weight_tells_who_gets_more_of_a_full_link(link_lab: SwitchLab) -> None:
    link_lab.start_switch("1:rate=1mbit,limit=100")
    ports = [PORTS[0] | {"capacity_bps": 1_000_000}, PORTS[1]]
    controller = link_lab.controller(ports=ports, stations={STATION.hex(":"): {"weight": 8}})
    link_lab.introduce(controller)
    for mac in (STATION, OTHER):
        link_lab.wires[1].send(arp(mac))
        wait_for(functools.partial(controller.knows, mac))
    frames = [udp(SERVER, mac, 2000, 1000, size=1000, ecn=NOT_ECT) for mac in (STATION, OTHER)]
    # Together 1.36 of what the link carries.
    with traffic(link_lab.wires[2], *frames, each=85):

        def terms() -> dict[str, float]:
            return {flow["dst_addr"]: flow["feedback"] for flow in controller.get("flows") if flow["dst_port"] == 1000}

        wait_for(lambda: terms().get("10.0.0.3", 0) > terms().get("10.0.0.1", 1) + 0.1)
        holds(lambda: got(link_lab.wires[1], 3), lambda heavy, light: heavy > 1.2 * light)


def test_limit_that_queue_and_drops_keep_is_not_missed(radio: tuple[SwitchLab, Controller]) -> None:
    lab, controller = radio
    say(controller, STATION, limit_down_bps=200_000)
    with traffic(lab.wires[2], udp(SERVER, STATION, 2000, 1000, size=1000, ecn=NOT_ECT), each=100):
        wait_for(lambda: station(controller, STATION)["rate_down_bps"] > 600_000)
        for _ in range(10):
            assert not station(controller, STATION)["limit_down_missed"]
            time.sleep(1)
        assert station(controller, STATION)["rate_down_bps"] > 600_000


def test_a_storm_of_addresses_is_not_listened_to_for_ever(radio: tuple[SwitchLab, Controller]) -> None:
    lab, controller = radio

    def lost() -> bool:
        for number in range(100):
            lab.wires[1].send(arp(SPARE[:4] + number.to_bytes(2)))
        return 'ap_messages_lost_total{access_point="ap1",reason="packets"} 0.0' not in (
            controller.request("GET", "/metrics").text
        )

    wait_for(lost)
    assert controller.get()["state"] == "ready"
    assert "more than 100 packets in a second carry addresses" in controller.errors.read_text()


def test_what_says_nothing_of_addresses_tells_none() -> None:
    own = bytes([10, 0, 0, 1])
    assert address_binding(arp(STATION)) == (int.from_bytes(STATION), (0, 0), own)
    assert address_binding(arp(STATION, b"\x81\0\0\5\x81\0\0\6")) == (int.from_bytes(STATION), (5, 6), own)
    address = bytes(range(16))
    assert address_binding(solicitation(STATION, address, address)) == (int.from_bytes(STATION), (0, 0), address)
    # Who asks for an address of its own has none yet.
    assert address_binding(solicitation(STATION, bytes(16), address)) == (int.from_bytes(STATION), (0, 0), address)
    forged = arp(STATION)[:6] + OTHER + arp(STATION)[12:]
    for frame in (b"", arp(STATION)[:30], forged, udp(STATION, SERVER, 1, 2), udp6(STATION, SERVER, 1, 2)):
        assert address_binding(frame) is None


def test_made_up_addresses_take_no_place_for_ever() -> None:
    settings = config(stations={STATION.hex(":"): {"weight": 2}})
    program, table = Program(Pipeline.model_validate(PIPELINE)), FlowTable()
    known = Stations(settings, program)
    usage = Usage(settings, program, known, table)
    mine = usage._slot(int.from_bytes(STATION))
    places = {usage._slot(1 << 40 | number) for number in range(3 * SLOTS)}
    # As many as there is room for, and whoever something is said of keeps its own.
    assert len(places) == SLOTS - 2 and not places & {mine, NOBODYS}
    assert usage._slot(int.from_bytes(STATION)) == mine
