# SPDX-License-Identifier: Apache-2.0
"""The targets: what each is refused for, and a lab on each that is there."""

import os
import re
import signal
from pathlib import Path

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.topologies import targets
from accesspoint.topologies.bmv2 import FULL_FRAME, bulk_pace
from accesspoint.topologies.links.profiles import PROFILES, LinkProfile
from accesspoint.topologies.requirements import LabError
from accesspoint.topologies.targets import TARGETS, Port, Wiring
from accesspoint.topologies.tests.conftest import Start, descendants, links
from accesspoint.topologies.tests.mininet_scripts import ASK_ON

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
ON = {"ack_priority": True, "ack_filter": True, "sparse": True, "ncr": True, "gate": None}


@pytest.fixture
def bmv2(privileged: None) -> None:
    try:
        targets.find("bmv2")
    except LabError as error:
        pytest.skip(str(error))


def lab(start: Start, *commands: str, options: tuple[str, ...] = ()) -> str:
    """Return the output of a lab on BMv2 that runs these commands of the prompt."""
    words = [word for command in commands for word in ("--exec", command)]
    process = start("-m", "accesspoint.topologies.lab", "--target", "bmv2", *options, *words)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    return output


@pytest.mark.usefixtures("bmv2")
def test_a_lab_on_bmv2_has_the_links_delay(start: Start) -> None:
    output = lab(
        start,
        f"sta1 {ASK_ON}; ping -c 5 -l 5 -i 60 -W 60 server",
        f"sta1 {ASK_ON}; ping -6 -c 3 -l 3 -i 60 -W 60 fd00::1",
        options=("--rtt", "30ms"),
    )
    assert "5 packets transmitted, 5 received" in output
    assert "3 packets transmitted, 3 received" in output
    fastest = [float(value) for value in re.findall(r"rtt min/avg/max/mdev = ([\d.]+)/", output)]
    assert len(fastest) == 2 and all(30 <= value < 60 for value in fastest), "the links' delay is missing or too long"


@pytest.mark.usefixtures("bmv2")
@pytest.mark.parametrize("options", [(), ("--plain",)], ids=["paced", "plain"])
def test_a_lab_on_bmv2_has_the_links_rates(start: Start, options: tuple[str, ...]) -> None:
    output = lab(
        start,
        "sta1 iperf3 -c server -R -t 6 -O 2 -f k",
        "sta1 iperf3 -c server -p 5202 -t 6 -O 2 -f k",
        options=("--down", "8mbit", "--up", "2mbit", *options),
    )
    down, up = (float(rate) for rate in re.findall(r"([\d.]+) Kbits/sec +receiver", output))
    # A busy machine carries less than its links.
    assert 100 < down < 8_000
    assert 50 < up < 2_000


@pytest.mark.usefixtures("bmv2")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_ended_lab_on_bmv2_leaves_nothing(start: Start, number: signal.Signals) -> None:
    process = start(
        "-m",
        "accesspoint.topologies.lab",
        "--target",
        "bmv2",
        "--exec",
        "py net['ap1'].prefix",
        "--exec",
        "sta1 sleep 1000",
    )
    assert process.stdout
    prefix = process.stdout.readline().strip()
    assert re.fullmatch("[0-9a-f]{4}", prefix) and f" {prefix}-ap1-1" in links()
    pids = descendants(process.pid)
    process.send_signal(number)
    process.communicate(timeout=120)
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 120)
    assert eventually(lambda: f" {prefix}-" not in links(), 120)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_the_pace_leaves_room_for_the_acks_of_the_other_direction(profile: LinkProfile) -> None:
    for rate, opposite in ((profile.up, profile.down), (profile.down, profile.up)):
        bulk = bulk_pace(rate, opposite) * FULL_FRAME * 8
        acks = opposite / FULL_FRAME / 2 * 66
        assert bulk + acks < rate
        assert bulk + acks > 0.9 * rate, "the link is left idle"


def test_acks_never_take_all_of_a_link() -> None:
    assert bulk_pace(1_000_000, 100_000_000) * FULL_FRAME * 8 > 0.3 * 1_000_000


def test_a_runs_seed_reaches_the_switch() -> None:
    try:
        target = targets.find("apswitch")
    except LabError as error:
        pytest.skip(str(error))
    seeded = target.command(Wiring({1: "port1"}, seed=7))
    assert seeded[seeded.index("--seed") + 1] == "7"
    assert "--seed" not in target.command(Wiring({1: "port1"}))


def test_bmv2_refuses_links_that_are_too_slow() -> None:
    with pytest.raises(LabError, match=r"a link of 50 kbit/s is too slow for BMv2.*at least 130kbit"):
        TARGETS["bmv2"].check({1: Port(50_000, 50_000, 100)}, ON)
    TARGETS["bmv2"].check({1: Port(130_000, 14_000_000, 100)}, ON)
    TARGETS["apswitch"].check({1: Port(8_000, 8_000, 100)}, ON)


def test_bmv2_refuses_features_that_need_the_queue_in_the_switch() -> None:
    ports = {1: Port(14_000_000, 1_000_000, 100)}
    with pytest.raises(LabError, match="BMv2 cannot give ncr, sparse without ack_priority"):
        TARGETS["bmv2"].check(ports, ON | {"ack_priority": False})
    TARGETS["bmv2"].check(ports, dict.fromkeys(ON, False))
    TARGETS["apswitch"].check(ports, ON | {"ack_priority": False})


def program(directory: Path, version: str, usage: str) -> str:
    """A PATH that begins with a `simple_switch_grpc` which says only this."""
    file = directory / "simple_switch_grpc"
    file.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo '{version}' || echo '{usage}'\n")
    file.chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


@pytest.mark.usefixtures("privileged")
@pytest.mark.parametrize(
    ("version", "usage", "message"),
    [
        ("1.14.0-0123abcd", "--cpu-port", "simple_switch_grpc 1.14.0-0123abcd has no option --priority-queues"),
        ("apswitch 0.3.0", "--priority-queues", "{}/simple_switch_grpc is apswitch's: put BMv2's before it on PATH"),
        ("hello", "--priority-queues", "{}/simple_switch_grpc --version says 'hello', which is no version"),
    ],
)
def test_a_bmv2_that_will_not_do_is_named(start: Start, tmp_path: Path, version: str, usage: str, message: str) -> None:
    process = start(
        "-m",
        "accesspoint.topologies.lab",
        "--target",
        "bmv2",
        "--exec",
        "nodes",
        PATH=program(tmp_path, version, usage),
    )
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert output.startswith("error: " + message.format(tmp_path)) and output.count("\n") == 1


@pytest.mark.usefixtures("privileged")
@pytest.mark.parametrize(
    ("target", "message"),
    [("bmv2", "simple_switch_grpc is missing: install BMv2"), ("abacus", "target 'abacus' is unknown: choose one of")],
)
@pytest.mark.parametrize("module", ["accesspoint.topologies.lab", "accesspoint.experiments"])
def test_a_missing_target_is_named(start: Start, module: str, target: str, message: str) -> None:
    arguments = ["run", "headline"] if module == "accesspoint.experiments" else []
    process = start("-m", module, *arguments, "--target", target, PATH=SYSTEM_PATH)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert output.startswith(f"error: {message}") and output.count("\n") == 1


def test_targets_are_listed(start: Start) -> None:
    process = start("-m", "accesspoint.topologies.targets", PATH=SYSTEM_PATH)
    output, _ = process.communicate(timeout=120)
    assert re.match(
        r"target apswitch: \d+\.\d+\.\d+\ntarget bmv2: not available: simple_switch_grpc is missing", output
    )
