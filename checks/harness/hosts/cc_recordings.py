# SPDX-License-Identifier: Apache-2.0
"""Events of real connections under each control, as `hosts cc record` prints them.

`python -m accesspoint.checks.harness.hosts.cc_recordings` renews those that are kept beside this file, until they tell
every definition in
CHANGES from the right one: a connection of some seconds does not always come to where two definitions differ.
"""

import contextlib
import gzip
import json
import tempfile
import time
from typing import IO

from accesspoint.checks.harness.hosts import cc_reference
from accesspoint.checks.harness.hosts.cc_lab import Transfer, kernel_name, loaded, rows
from accesspoint.topologies.kernels.controls import alone
from accesspoint.topologies.links.paths import Paths
from accesspoint.topologies.requirements import ROOT

# Sessions with pauses, so that all of it happens: slow start, avoidance, losses, timeouts, idle restarts.
PLAN = "30000b,wait1.1s,30000b,wait0.4s,3s,wait1.3s,20000b,wait1.1s,4s"
# Options of a definition whose default a short recording does not reach.
OPTIONS: dict[str, dict[str, int]] = {
    "vegas": {},
    "vegas_fair": {"introduction": 500_000},
    "westwood": {},
    "reno_maxwin": {},
    "tcp_av": {"target": 2500, "loss_limit": 3, "rest": 400, "timeout_limit": 0},
}
Recordings = dict[str, list[cc_reference.Event]]
# Other definitions than the right one.
CHANGES = [
    ("vegas", "alpha", 4),
    ("vegas", "beta", 3),
    ("vegas_fair", "more_alpha", 1000),  # it grows whatever the queue, as long as it is introduced
    ("vegas_fair", "pause", 5000),
    ("reno_maxwin", "bound", 9),
    ("tcp_av", "target", 2600),
    ("tcp_av", "loss_limit", 0),  # any loss is too many
]
# Changes of tcp_av's link in recordings of their own, with this target.
SCENES = ("outage", "no_rtt", "longer_rtt")
SCENE_TARGET = 1500  # kbit/s
KEPT = ROOT / "hosts/tests/recordings"


def options_of(name: str) -> dict[str, int]:
    """All options, with the defaults that `hosts cc list` shows."""
    (row,) = (row for row in rows("list") if row["name"] == name)
    return {**row["options"], **OPTIONS[name]}


def read(file: IO[str]) -> list[cc_reference.Event]:
    file.seek(0)
    return [json.loads(line) for line in file]


def record() -> Recordings:
    """Events of one connection by control, over links of 3 Mb/s with losses and two black holes, all at once."""
    with alone(*OPTIONS), contextlib.ExitStack() as stack:
        paths = stack.enter_context(Paths())
        a, b = paths.host("a"), paths.host("b")
        files, links = {}, []
        for name, options in OPTIONS.items():
            files[name] = stack.enter_context(tempfile.TemporaryFile("w+"))
            words = [f"{option}={value}" for option, value in options.items()]
            stack.enter_context(loaded(name, *words, record=files[name]))
            links.append(paths.link(a, b, rate="3mbit", limit=12, delay="20ms", loss=0.01))
        transfers = [Transfer(link, kernel_name(name), PLAN) for name, link in zip(OPTIONS, links, strict=True)]
        for start, seconds in ((4.0, 0.7), (3.5, 1.5)):
            time.sleep(start)
            for link in links:
                link.blackhole()
            time.sleep(seconds)
            for link in links:
                link.restore()
        for transfer in transfers:
            result = transfer.result()
            assert result["received"] == result["bytes"]
        time.sleep(0.2)  # the last events are on their way
        return {name: read(file) for name, file in files.items()}


def record_scene(name: str) -> list[cc_reference.Event]:
    """Events of tcp_av on 3 Mb/s and 40 ms: 10 s without a link, no first RTT, or a queue that makes it longer."""
    with contextlib.ExitStack() as stack:
        paths = stack.enter_context(Paths())
        a, b = paths.host("a"), paths.host("b")
        file = stack.enter_context(tempfile.TemporaryFile("w+"))
        stack.enter_context(loaded("tcp_av", f"target={SCENE_TARGET}", record=file))
        link = paths.link(a, b, rate="3mbit", limit=60, delay="20ms")
        interface = ("dev", link.a_if, "root", "blackhole")
        if name == "no_rtt":
            for host in (a, b):
                host.set("net.ipv4.tcp_timestamps", 0)
            a.run("tc", "qdisc", "add", *interface)
        transfer = Transfer(link, kernel_name("tcp_av"), "14s" if name == "outage" else "5s")
        time.sleep(0.5 if name == "no_rtt" else 1.5)
        match name:
            case "outage":
                a.run("tc", "qdisc", "add", *interface)
                time.sleep(10)
                a.run("tc", "qdisc", "del", *interface)
            case "no_rtt":
                a.run("tc", "qdisc", "del", *interface)
            case _:
                Transfer(link, "cubic", "4s").result()
        result = transfer.result()
        assert result["received"] == result["bytes"]
        time.sleep(0.2)  # the last events are on their way
        return read(file)


def scene_options() -> dict[str, int]:
    (row,) = (row for row in rows("list") if row["name"] == "tcp_av")
    return {**row["options"], "target": SCENE_TARGET}


def keep(name: str, events: list[cc_reference.Event]) -> None:
    KEPT.mkdir(exist_ok=True)
    # No time of day in the file: the same events are the same bytes.
    with gzip.GzipFile(KEPT / f"{name}.jsonl.gz", "wb", mtime=0) as file:
        file.write("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events).encode())


def kept(name: str) -> list[cc_reference.Event]:
    with gzip.open(KEPT / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def is_noticed(name: str, option: str, value: int, events: list[cc_reference.Event]) -> bool:
    """Return whether these events tell a control with another value of an option from its model."""
    try:
        cc_reference.replay(name, {**options_of(name), option: value}, events)
    except AssertionError:
        return True
    return False


def renew() -> None:
    missing = set(OPTIONS)
    while missing:
        for name, events in record().items():
            cc_reference.replay(name, options_of(name), events)
            changes = [(option, value) for control, option, value in CHANGES if control == name]
            unseen = [option for option, value in changes if not is_noticed(name, option, value, events)]
            print(f"{name}: {len(events)} events" + (f", which say nothing of {', '.join(unseen)}" if unseen else ""))
            if name in missing and not unseen:
                missing.remove(name)
                keep(name, events)
    for scene in SCENES:
        events = record_scene(scene)
        cc_reference.replay("tcp_av", scene_options(), events)
        keep(f"tcp_av_{scene}", events)


if __name__ == "__main__":
    renew()
