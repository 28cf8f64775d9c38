# SPDX-License-Identifier: Apache-2.0
"""A whole fleet with real processes: each kind of them is killed, and nothing that was confirmed is lost."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from accesspoint.topologies.fleet import Fleet, Part, missing

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing())), pytest.mark.timeout(900)]

WEIGHTS = "/access-points/ap1/class-weights"
WEIGHTS_2 = "/access-points/ap2/class-weights"
PATIENCE = 120.0  # s, for the answer of a busy machine


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet"), agents=3, backups=1, traffic=False) as made:
        yield made


def kill(part: Part) -> None:
    """Kill a process by SIGKILL; `look` restarts it."""
    os.kill(part.pid, signal.SIGKILL)
    assert part.process is not None
    part.process.wait()


def of(fleet: Fleet, name: str, replica: int = 0) -> dict[str, Any]:
    found = fleet.looking(lambda: fleet.get(f"/access-points/{name}", replica), f"{name} is shown")
    assert isinstance(found, dict)
    return found


def downlink(fleet: Fleet, replica: int = 0, path: str = WEIGHTS) -> int:
    found = fleet.looking(lambda: fleet.get(path, replica), "weights are shown")
    return int(found["downlink"])


def ready(fleet: Fleet, name: str, replica: int = 0) -> bool:
    return fleet.states(replica).get(name) == "ready"


def change(fleet: Fleet, replica: int, downlink: int, path: str = WEIGHTS) -> None:
    answer = fleet.ask("PATCH", path, replica, json={"downlink": downlink}, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text


def test_ports_are_the_fleets_until_it_is_closed(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    ports = [fleet.engine_port, *(int(url.rpartition(":")[2]) for url in fleet.urls)]
    for port in ports:
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen()
    fleet.close()
    for port in ports:
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))


def test_both_replicas_show_every_access_point(fleet: Fleet) -> None:
    names = {"ap1", "ap2", "ap3"}
    for replica in (0, 1):
        fleet.looking(lambda of=replica: fleet.states(of) == dict.fromkeys(names, "ready"), "ready at both")  # type: ignore[misc]
    agents = fleet.get("/agents")
    assert sorted(agent["access_point"] for agent in agents) == ["ap1", "ap1", "ap2", "ap3"]


def test_a_change_at_one_replica_is_everywhere(fleet: Fleet) -> None:
    change(fleet, 0, 7)
    fleet.looking(lambda: downlink(fleet, 1) == 7, "the other replica follows")


def test_a_killed_replica_loses_nothing(fleet: Fleet) -> None:
    kill(fleet.parts["service1"])
    change(fleet, 1, 9)
    assert downlink(fleet) == 9  # once it is started again
    fleet.looking(lambda: ready(fleet, "ap1"), "it hears of the agents again")


def test_two_replicas_take_concurrent_changes_and_lose_none(fleet: Fleet) -> None:
    change(fleet, 0, 1)
    fleet.looking(lambda: downlink(fleet, 1) == 1, "the other replica follows")

    def add_one(number: int) -> int:
        """Adds 1, however often somebody else is faster; returns how often that was."""
        replica, refused = number % 2, 0
        while True:
            seen = fleet.ask("GET", WEIGHTS, replica, timeout=PATIENCE)
            # A reader may read fast; who is limited waits, as it is told to.
            if seen.status_code == 200:
                body = {"downlink": seen.json()["downlink"] + 1}
                headers = {"if-match": seen.headers["etag"]}
                answer = fleet.ask("PATCH", WEIGHTS, replica, json=body, headers=headers, timeout=PATIENCE)
                if answer.status_code == 200:
                    return refused
                assert answer.status_code in (409, 412, 429), answer.text
                refused += 1
            time.sleep(0.01)

    with ThreadPoolExecutor(6) as workers:
        refused = sum(workers.map(add_one, range(24)))
    fleet.looking(lambda: downlink(fleet) == downlink(fleet, 1) == 25, "all are there")
    assert refused, "nobody was ever in another one's way"


def test_a_killed_agent_is_followed_by_its_backup(fleet: Fleet) -> None:
    parts = fleet.access_points[0].parts
    agents = [parts["agent1"], parts["agent2"]]
    primary = next(part for part in agents if part.said("ready ap1"))
    backup = next(part for part in agents if part is not primary)
    kill(primary)
    fleet.looking(lambda: backup.said("ready ap1"), "the backup takes over")
    fleet.looking(lambda: ready(fleet, "ap1"), "the service hears of it")
    # The one that was killed is back, and does not push the other one aside.
    fleet.looking(lambda: primary.said("waiting as backup") or primary.starts > 1, "it is started again")
    ticks = of(fleet, "ap1")["loop"]["ticks"]
    fleet.looking(lambda: of(fleet, "ap1")["loop"]["ticks"] > ticks + 100, "ticks go on")
    change(fleet, 0, 11)


def test_a_killed_engine_stops_no_tick(fleet: Fleet) -> None:
    before = of(fleet, "ap2")
    engine = fleet.parts.pop("engine")
    kill(engine)
    try:
        fleet.looking(lambda: of(fleet, "ap2")["state"] == "connecting", "the service says that it hears nothing")
        assert "no message from its agent" in of(fleet, "ap2")["problem"]
        # A change that is confirmed while the engine is away is kept, and sent to the agents afterwards.
        change(fleet, 0, 13, WEIGHTS_2)
    finally:
        engine.start()
        fleet.parts["engine"] = engine
    fleet.looking(lambda: ready(fleet, "ap2"), "the engine is back")
    after = of(fleet, "ap2")
    assert after["sessions"] == before["sessions"] and after["loop"]["ticks"] > before["loop"]["ticks"]


def test_what_happens_while_an_agent_is_cut_off_is_in_history(fleet: Fleet) -> None:
    ap = fleet.access_points[2]
    fleet.looking(lambda: ready(fleet, "ap3"), "it is there")
    began = time.time()
    ap.relay.cut()
    fleet.looking(lambda: of(fleet, "ap3")["state"] == "connecting", "it is not heard")
    time.sleep(12)
    ap.relay.mend()
    mended = time.time()
    fleet.looking(lambda: ready(fleet, "ap3"), "it is back")

    def whole() -> bool:
        found = fleet.get(f"/access-points/ap3/history?start={began}&end={mended}&resolution=10")
        samples = sum(found["ports"][0]["columns"]["samples"]) if found and found["ports"] else 0
        # Never more than there were: nothing is written twice. A machine that is busy leaves out a second.
        assert samples <= mended - began + 21
        return samples > 0 and max(found["ports"][0]["columns"]["time"], default=0) >= mended - 20

    fleet.looking(whole, "history is whole")


def test_an_agent_starts_without_service_and_engine(fleet: Fleet) -> None:
    agent = fleet.access_points[1].parts["agent1"]
    stopped = {name: fleet.parts.pop(name) for name in ("engine", "service1", "service2")}
    try:
        for part in (*stopped.values(), agent):
            kill(part)
        said = agent.log.read_text().count("ready ap2")
        fleet.looking(lambda: agent.log.read_text().count("ready ap2") > said, "it goes on from its own disk")
    finally:
        for name, part in stopped.items():
            part.start()
            fleet.parts[name] = part
    fleet.looking(lambda: ready(fleet, "ap2") and ready(fleet, "ap2", 1), "all is as it was")
    assert downlink(fleet, path=WEIGHTS_2) == 13


def test_a_killed_switch_is_set_up_again(fleet: Fleet) -> None:
    fleet.looking(lambda: ready(fleet, "ap3"), "it is there")
    sessions = of(fleet, "ap3")["sessions"]
    kill(fleet.access_points[2].parts["switch"])
    fleet.looking(lambda: of(fleet, "ap3")["sessions"] > sessions and ready(fleet, "ap3"), "it is under control")
