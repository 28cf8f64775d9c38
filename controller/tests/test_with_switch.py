# SPDX-License-Identifier: Apache-2.0
"""The controller with a real switch: apswitch, and BMv2 where it is on PATH."""

import contextlib
import csv
import functools
import itertools
import json
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from accesspoint.checks.harness.switches import (
    ROOT,
    SERVER,
    STATION,
    WAIT_SECONDS,
    Controller,
    SwitchLab,
    Wire,
    udp,
    udp6,
    wait_for,
)
from accesspoint.checks.harness.waiting import paced

from .faults import unlike
from .patient import patient

PLAIN = {"ack_priority": False, "ack_filter": False, "sparse": False, "ncr": False}


def test_it_learns_and_forwards(any_lab: SwitchLab) -> None:
    controller = any_lab.controller()
    any_lab.introduce(controller)
    roles = {entry["address"]: entry["role"] for entry in controller.get("stations")}
    assert roles == {STATION.hex(":"): "station", SERVER.hex(":"): "uplink"}
    up = udp(STATION, SERVER, 1000, 2000)

    def comes() -> list[bytes]:
        any_lab.wires[1].send(up)
        return [frame for frame in any_lab.wires[2].received() if frame[36:38] == (2000).to_bytes(2)]

    assert set(wait_for(comes)) == {up}


def test_a_station_that_moves_is_followed(any_lab: SwitchLab) -> None:
    controller = any_lab.controller()
    any_lab.introduce(controller)
    any_lab.wires[2].send(udp(STATION, b"\xff" * 6, 9, 9))
    station = wait_for(
        lambda: next(
            (entry for entry in controller.get("stations") if entry["address"] == STATION.hex(":") and entry["moves"]),
            None,
        )
    )
    assert (station["port"], station["role"]) == (2, "uplink")


def test_a_station_that_ages_takes_nobody_elses_flows_away(any_lab: SwitchLab) -> None:
    controller = any_lab.controller(station_idle_timeout=3, flow_idle_timeout=60)
    any_lab.introduce(controller)
    other = b"\x02\0\0\0\0\x77"

    def talk() -> dict[tuple[str, int], float] | None:
        any_lab.wires[1].send(udp(STATION, SERVER, 1000, 2000))
        any_lab.wires[2].send(udp(SERVER, STATION, 2000, 1000))
        flows = [flow for flow in controller.get("flows") if flow["dst_port"] in (1000, 2000)]
        found = {(flow["direction"], flow["src_port"]): flow["since"] for flow in flows}
        return found if len(found) == 2 else None

    def all_talk() -> bool:
        any_lab.wires[1].send(udp(other, b"\xff" * 6, 9, 9))
        talk()
        return len(controller.get("stations")) == 3

    wait_for(all_talk)
    before = wait_for(talk)
    # It goes silent behind the port that both flows use.
    wait_for(lambda: talk() and len(controller.get("stations")) == 2)
    time.sleep(0.3)
    assert wait_for(talk) == before


def test_who_takes_an_address_takes_no_flow_away(any_lab: SwitchLab) -> None:
    controller = any_lab.controller()
    any_lab.introduce(controller)

    def flows() -> dict[tuple[str, int, int], float]:
        return {
            (flow["src_addr"], flow["ingress_port"], flow["egress_port"]): flow["since"]
            for flow in controller.get("flows")
            if flow["dst_port"] in (1000, 2000)
        }

    def talk() -> dict[tuple[str, int, int], float] | None:
        any_lab.wires[1].send(udp(STATION, SERVER, 1000, 2000))
        any_lab.wires[2].send(udp(SERVER, STATION, 2000, 1000))
        return flows() if len(flows()) == 2 else None

    before = wait_for(talk)
    assert before.keys() == {("10.0.0.1", 1, 2), ("10.0.0.2", 2, 1)}

    def is_at(mac: bytes, port: int) -> bool:
        return (mac.hex(":"), port) in {(entry["address"], entry["port"]) for entry in controller.get("stations")}

    # A station says that it is the server, and then the server that it is the station.
    for port, mac in ((1, SERVER), (2, STATION)):
        any_lab.wires[port].send(udp(mac, b"\xff" * 6, 9, 9))
        wait_for(functools.partial(is_at, mac, 2))
        assert before.items() <= flows().items()
    time.sleep(0.3)
    assert wait_for(talk) == before


def tagged(frame: bytes, *vids: int) -> bytes:
    return frame[:12] + b"".join(b"\x81\x00" + vid.to_bytes(2) for vid in vids) + frame[12:]


def test_each_vlan_is_learned_apart(any_lab: SwitchLab) -> None:
    controller = any_lab.controller()
    any_lab.introduce(controller)
    other = b"\x02\0\0\0\0\x77"

    def places() -> set[tuple[str, int, int, int]]:
        # The server's address is the station's in VLAN 5, and another host's in VLAN 6 within 7.
        for wire, mac, vids in ((1, SERVER, (5,)), (2, other, (5,)), (2, SERVER, (7, 6))):
            any_lab.wires[wire].send(tagged(udp(mac, b"\xff" * 6, 9, 9), *vids))
        return {
            (entry["address"], entry["outer_vid"], entry["inner_vid"], entry["port"])
            for entry in controller.get("stations")
        }

    server = SERVER.hex(":")
    wanted = {(server, 0, 0, 2), (server, 5, 0, 1), (server, 7, 6, 2), (other.hex(":"), 5, 0, 2)}
    wait_for(lambda: wanted <= places())

    def flow() -> dict[str, Any] | None:
        any_lab.wires[1].send(tagged(udp(SERVER, other, 1000, 2000), 5))
        return next((entry for entry in controller.get("flows") if entry["src_port"] == 1000), None)

    found = wait_for(flow)
    assert (found["outer_vid"], found["inner_vid"]) == (5, 0)
    assert (found["ingress_port"], found["egress_port"], found["direction"]) == (1, 2, "uplink")
    assert all(entry["moves"] == 0 for entry in controller.get("stations"))


def test_one_port_does_not_fill_the_tables(any_lab: SwitchLab) -> None:
    controller = any_lab.controller(limits={"stations_per_port": 5, "flows_per_port": 10})
    any_lab.introduce(controller)
    for number in range(20):
        any_lab.wires[1].send(udp(b"\x02\0\0\0\x01" + bytes([number]), b"\xff" * 6, 9, 9))
    wait_for(lambda: len(controller.get("stations")) >= 6)
    time.sleep(0.5)
    assert sum(entry["port"] == 1 for entry in controller.get("stations")) == 5
    for number in range(30):
        any_lab.wires[1].send(udp(STATION, SERVER, 1000 + number, 2000))

    def flows() -> int:
        return sum(flow["ingress_port"] == 1 for flow in controller.get("flows"))

    wait_for(lambda: flows() >= 10)
    time.sleep(0.5)
    assert flows() == 10


def test_flows_are_learned_both_ways_and_aged(any_lab: SwitchLab) -> None:
    controller = any_lab.controller(flow_idle_timeout=2)
    any_lab.introduce(controller)

    def talk() -> bool:
        any_lab.wires[1].send(udp(STATION, SERVER, 1000, 2000))
        any_lab.wires[2].send(udp(SERVER, STATION, 2000, 1000))
        any_lab.wires[1].send(udp6(STATION, SERVER, 1000, 2000))
        return True

    def flows() -> dict[tuple[str, int, int], Any]:
        return {(entry["src_addr"], entry["src_port"], entry["dst_port"]): entry for entry in controller.get("flows")}

    wanted = {("10.0.0.1", 1000, 2000), ("10.0.0.2", 2000, 1000), ("fd00::1", 1000, 2000)}
    known = wait_for(lambda: talk() and wanted <= (now := flows()).keys() and now)
    assert known["10.0.0.1", 1000, 2000]["direction"] == "uplink"
    assert known["10.0.0.2", 2000, 1000]["direction"] == "downlink"
    assert len({entry["flow_index"] for entry in known.values()}) == len(known)
    wait_for(lambda: talk() and (flow := flows().get(("10.0.0.1", 1000, 2000))) and flow["packets"] > 5)
    wait_for(lambda: not flows() and controller.get()["flows_free"] == 65536)


def test_flows_of_a_target_without_idle_timeouts_are_aged_by_their_counters(any_lab: SwitchLab, tmp_path: Path) -> None:
    info = text_format.Parse((ROOT / "p4src/compiled/ap.p4info.txtpb").read_text(), p4i.P4Info())
    for table in info.tables:
        if table.preamble.alias.startswith("flows_"):
            table.idle_timeout_behavior = p4i.Table.NO_TIMEOUT
    p4info = tmp_path / "no_timeouts.p4info.txtpb"
    p4info.write_text(text_format.MessageToString(info))
    pipeline = {"p4info": str(p4info), "device_config": str(ROOT / "p4src/compiled/ap.json")}
    controller = any_lab.controller(flow_idle_timeout=3, pipeline=pipeline)
    any_lab.introduce(controller)
    long = udp(STATION, SERVER, 1000, 2000)
    short = udp(STATION, SERVER, 1001, 2000)

    sent: list[float] = []

    def flows() -> set[int]:
        any_lab.wires[1].send(long)
        sent.append(time.monotonic())
        return {entry["src_port"] for entry in controller.get("flows")}

    # It is learned after that, whenever this process sees it.
    began = time.monotonic()
    any_lab.wires[1].send(short)
    wait_for(lambda: {1000, 1001} <= flows())
    wait_for(lambda: 1001 not in flows())
    assert time.monotonic() - began > 2
    if 1000 not in flows():
        longest = max(after - before for before, after in itertools.pairwise(sent))
        assert longest > 2, "only a machine that stood still lets the long one be forgotten, too"
        wait_for(lambda: 1000 in flows())


def test_a_plain_switch_asks_for_no_flows(any_lab: SwitchLab) -> None:
    controller = any_lab.controller(features=PLAIN)
    any_lab.introduce(controller)
    for _ in range(20):
        any_lab.wires[1].send(udp(STATION, SERVER, 1000, 2000))
    assert len(any_lab.wires[2].gathered(20, lambda _: True)) >= 20
    assert controller.get("flows") == []
    sent = {cell["index"]: cell["packets"] for cell in controller.get("counters") if cell["counter"] == "queued"}
    assert sent.keys() == {0}


def test_counters_tell_classes_apart(any_lab: SwitchLab) -> None:
    controller = any_lab.controller()
    any_lab.introduce(controller)
    for _ in range(10):
        any_lab.wires[1].send(udp(STATION, SERVER, 1000, 2000))
    for _ in range(5):
        any_lab.wires[2].send(udp(SERVER, STATION, 2000, 1000))

    def sent() -> dict[tuple[int, int], int]:
        cells = controller.get("counters")
        return {(cell["port"], cell["index"]): cell["packets"] for cell in cells if cell["counter"] == "sent"}

    wait_for(lambda: sent().get((2, 2), 0) >= 10 and sent().get((1, 1), 0) >= 5)


def test_features_rules_and_gate_change_while_it_runs(any_lab: SwitchLab) -> None:
    controller = any_lab.controller()
    any_lab.introduce(controller)
    assert controller.send("PATCH", "features", {"sparse": False, "ack_priority": False}).status_code == 200
    assert controller.send("PATCH", "features", {"gate": {"2": {"buffer": 50, "batch": 10}}}).status_code == 200
    assert controller.send("PATCH", "features", {"gate": None, "sparse": True}).status_code == 200
    rule = {"name": "game", "protocol": 17, "dst_port": [3000, 3010], "class_id": 4, "queue": 3, "regulated": False}
    assert controller.send("PUT", "rules/game", rule).status_code == 200
    any_lab.wires[1].send(udp(STATION, SERVER, 1000, 3005))
    any_lab.wires[1].send(udp(STATION, SERVER, 1000, 3011))
    wait_for(
        lambda: (
            {
                cell["index"]: cell["packets"]
                for cell in controller.get("counters")
                if cell["counter"] == "sent" and cell["port"] == 2
            }.get(4)
            == 1
        )
    )
    assert [entry["class_id"] for entry in controller.get("classes")] == [0, 1, 2, 4]
    assert controller.send("DELETE", "rules/game", None).status_code == 204
    # BMv2 aborts when a digest is disabled while it holds a sample back, which it does for up to 0.2 s.
    time.sleep(0.5)
    for feature in ("ncr", "ack_filter", "ack_priority", "sparse"):
        answer = controller.send("PATCH", "features", {feature: False})
        assert answer.status_code == 200, answer.text
    assert controller.get()["state"] == "ready"


def test_ports_and_rates_change_while_it_runs(any_lab: SwitchLab) -> None:
    """Without a new session, and without losing what was counted or learned behind other ports."""
    controller = any_lab.controller()
    any_lab.introduce(controller)
    both = controller.get("config")["ports"]
    assert controller.send("PATCH", "config", {"ports": both[:1]}).status_code == 200
    assert [port["port"] for port in controller.get("ports")] == [1]
    wait_for(lambda: not controller.knows(SERVER) and controller.knows(STATION))
    up = udp(STATION, SERVER, 1000, 2000)
    any_lab.wires[1].send(up)
    assert up not in any_lab.wires[2].received()
    assert controller.send("PATCH", "config", {"ports": both}).status_code == 200
    for number in range(10):
        rate = {"capacity_bps": 900_000 + number, "queue_limit": 1000 + number}
        assert controller.send("PATCH", "ports/2", rate).status_code == 200
    any_lab.introduce(controller)

    def comes() -> list[bytes]:
        any_lab.wires[1].send(up)
        return [frame for frame in any_lab.wires[2].received() if frame[36:38] == (2000).to_bytes(2)]

    assert set(wait_for(comes)) == {up}
    timeouts = {"flow_idle_timeout": 20, "station_idle_timeout": 200}
    assert controller.send("PATCH", "config", timeouts).status_code == 200
    before = controller.get()
    assert (before["sessions"], before["revision_in_effect"]) == (1, before["revision"])
    wait_for(lambda: controller.get()["loop"]["ticks"] > before["loop"]["ticks"] + 5)
    assert controller.get("ports")[1]["capacity_used_bps"] == 900_009


def test_a_flow_gets_weight_and_class(any_lab: SwitchLab) -> None:
    controller = any_lab.controller()
    any_lab.introduce(controller)
    rule = {"name": "mine", "flow_class": 5, "class_id": 5}
    assert controller.send("PUT", "rules/mine", rule).status_code == 200
    packet = udp(STATION, SERVER, 1000, 2000)

    def flow() -> Any:
        any_lab.wires[1].send(packet)
        return next((entry for entry in controller.get("flows") if entry["dst_port"] == 2000), None)

    index = wait_for(flow)["flow_index"]
    answer = controller.send("PATCH", f"flows/{index}", {"weight": 2.5, "flow_class": 5})
    assert answer.json()["weight"] == 2.5
    assert answer.json()["class_id"] == 5
    wait_for(
        lambda: (
            flow()
            and any(
                cell["index"] == 5 and cell["port"] == 2
                for cell in controller.get("counters")
                if cell["counter"] == "sent"
            )
        )
    )


def test_a_second_controller_takes_over_and_gives_back(any_lab: SwitchLab) -> None:
    first = any_lab.controller(election_id=1)
    second = any_lab.controller(election_id=2)
    backup = wait_for(lambda: (answer := first.get())["state"] == "backup" and answer)
    assert "another controller is primary" in backup["problem"]
    assert "election id 2, this one has 1" in backup["problem"]
    # A change here is not in effect: the other one has a desired state of its own.
    assert first.send("PATCH", "class-weights", {"downlink": 9}, wait=0.2).status_code == 202
    second.process.send_signal(signal.SIGINT)
    assert second.process.wait(WAIT_SECONDS) == 0
    first.wait_ready()
    wait_for(lambda: first.get()["problem"] is None)
    assert first.send("PATCH", "class-weights", {"downlink": 9}).status_code == 200


def test_the_same_election_id_is_one_clear_line(any_lab: SwitchLab) -> None:
    any_lab.controller(election_id=7)
    second = any_lab.controller(ready=False, election_id=7)
    problem = wait_for(lambda: second.get()["problem"])
    assert "election id 7" in problem
    assert "\n" not in problem


def test_it_comes_back_when_the_switch_does(any_lab: SwitchLab) -> None:
    controller = any_lab.controller()
    any_lab.stop_switch()
    problem = wait_for(lambda: (answer := controller.get())["state"] == "connecting" and answer["problem"])
    assert "ap1" in problem
    any_lab.start_switch()
    controller.wait_ready()
    any_lab.introduce(controller)
    assert controller.get()["sessions"] == 2


def test_a_wrong_device_is_one_clear_line(any_lab: SwitchLab) -> None:
    controller = any_lab.controller(ready=False, device_id=99)
    problem = wait_for(lambda: controller.get()["problem"])
    assert "\n" not in problem
    assert controller.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(any_lab: SwitchLab, number: signal.Signals) -> None:
    controller = any_lab.controller()
    any_lab.introduce(controller)
    controller.process.send_signal(number)
    assert controller.process.wait(WAIT_SECONDS) == 0
    assert [line for line in controller.errors.read_text().splitlines() if "interpreted" not in line] == []


@contextlib.contextmanager
def flooding(wire: Wire, packet: bytes) -> Iterator[None]:
    """Send packets, about 5 Mb/s of 1000 bytes each, while the block runs."""
    stop = threading.Event()

    def flood() -> None:
        for _ in paced(stop, 0.02):
            for _ in range(12):
                wire.send(packet)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_events_come_with_every_tick_or_once_a_second(link_lab: SwitchLab) -> None:
    link_lab.start_switch()
    controller = link_lab.controller()

    def ticks(every: str, count: int) -> list[int]:
        path = f"{controller.url}/api/v1/access-points/ap1/events?every={every}"
        headers = {"authorization": f"Bearer {controller.token}"}
        with httpx.stream("GET", path, headers=headers, timeout=WAIT_SECONDS) as answer:
            lines = (line for line in answer.iter_lines() if line.startswith("data: "))
            first = itertools.islice(lines, count)
            return [json.loads(line.removeprefix("data: "))["loop"]["ticks"] for line in first]

    wait_for(lambda: controller.get()["loop"]["ticks"] > 10)
    second, tick = ticks("second", 4), ticks("tick", 40)
    # Each tick is told once; a busy machine may leave some out.
    assert sorted(set(tick)) == tick
    between = [
        statistics.median(after - before for before, after in itertools.pairwise(told)) for told in (second, tick)
    ]
    assert between[1] < between[0]


def uplink(controller: Controller, what: str) -> dict[str, Any]:
    return next(entry for entry in controller.get(what) if entry["port"] == 2)


@pytest.mark.realtime
def test_overload_is_marked_and_then_forgiven(link_lab: SwitchLab) -> None:
    link_lab.start_switch("2:rate=1mbit,limit=100")
    controller = link_lab.controller()
    link_lab.introduce(controller)
    with flooding(link_lab.wires[1], udp(STATION, SERVER, 1000, 2000, size=1000)):
        wait_for(
            lambda: (
                uplink(controller, "feedback")["device"] > 0.3
                and uplink(controller, "ports")["queue_packets"] > 50
                and controller.counter("marked", 2) > 10
            )
        )
    # Most of the flood was lost at the full queue, which no counter shows: the estimate must come back to 0.
    wait_for(lambda: uplink(controller, "feedback")["device"] == 0)
    # Feedback ends with a queue above its target; that the last of the rest was lost takes seconds to believe.
    wait_for(lambda: uplink(controller, "ports")["queue_packets"] == 0)


def test_a_controller_that_ends_leaves_no_feedback_behind(link_lab: SwitchLab) -> None:
    link_lab.start_switch("2:rate=1mbit,limit=100")
    # The switch may take as long as a busy machine lets it, to remove all feedback.
    controller = patient(link_lab, {"agent.access_point:RELEASE_SECONDS": 120})
    link_lab.introduce(controller)
    packet = udp(STATION, SERVER, 1000, 2000, size=1000)
    with flooding(link_lab.wires[1], packet):
        wait_for(lambda: uplink(controller, "feedback")["device"] > 0.9)
        controller.process.send_signal(signal.SIGINT)
        assert controller.process.wait(WAIT_SECONDS) == 0

    def last_came() -> bool:
        link_lab.wires[1].send(packet[:-1] + b"\1")
        return any(frame[-1] == 1 for frame in link_lab.wires[2].received(0.5))

    wait_for(last_came)  # what was queued before was decided on before
    for _ in range(10):
        link_lab.wires[1].send(packet[:-1] + b"\2")
    frames = link_lab.wires[2].gathered(10, lambda frame: len(frame) == 1000 and frame[-1] == 2)
    assert len(frames) == 10
    assert all(frame[15] & 3 == 2 for frame in frames)


@pytest.mark.realtime
def test_a_flood_without_ecn_is_dropped_by_feedback(link_lab: SwitchLab) -> None:
    link_lab.start_switch("2:rate=1mbit,limit=1000")
    controller = link_lab.controller()
    link_lab.introduce(controller)
    with flooding(link_lab.wires[1], udp(STATION, SERVER, 1000, 2000, size=1000, ecn=0)):
        wait_for(lambda: controller.counter("dropped", 2) > 100)
        assert controller.counter("marked", 2) == 0
        assert controller.send("PATCH", "ncr", {"mark_only": True}).status_code == 200

        def dropping() -> bool:
            before = controller.counter("dropped", 2)
            time.sleep(0.3)
            return controller.counter("dropped", 2) > before

        # A flood that the machine holds up is not dropped either.
        wait_for(lambda: not dropping() and uplink(controller, "feedback")["device"] > 0.1)


@pytest.mark.parametrize("carried", [500_000, 2_000_000])
def test_a_capacity_that_is_configured_wrongly_is_found_and_told(link_lab: SwitchLab, carried: int) -> None:
    link_lab.start_switch(f"2:rate={carried}bit,limit=100")
    controller = link_lab.controller()
    link_lab.introduce(controller)
    assert uplink(controller, "ports")["capacity_problem"] is None
    with flooding(link_lab.wires[1], udp(STATION, SERVER, 1000, 2000, size=1000, ecn=0)):
        # Bytes of the link's own overhead are not counted.
        wanted = pytest.approx(carried, rel=0.15)
        port = wait_for(lambda: (now := uplink(controller, "ports"))["capacity_learned_bps"] == wanted and now)
        assert port["capacity_bps"] == 1_000_000
        assert port["capacity_used_bps"] == port["capacity_learned_bps"]
        assert "not 1 Mb/s" in port["capacity_problem"]
        told = 'ap_capacity_mistaken{access_point="ap1",port="2",role="uplink"} 1.0'
        wait_for(lambda: told in controller.request("GET", "/metrics").text)
        # What queues may take follows the link, and is no fault of the switch.
        assert unlike(link_lab) == []


def test_the_log_has_a_line_for_each_port(link_lab: SwitchLab, tmp_path: Path) -> None:
    link_lab.start_switch()
    log = tmp_path / "log.csv"
    controller = link_lab.controller("--stats", str(log))
    link_lab.introduce(controller)
    wait_for(lambda: log.read_text().count("\n") > 10)
    with log.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["port"] for row in rows} == {"1", "2"}
    assert all(float(row["delay_ms"]) >= 0 for row in rows)
