# SPDX-License-Identifier: Apache-2.0
"""Runs an experiment: each arm in a fresh lab, its samples kept, its figures worked out."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments import selfcheck
from experiments.live import Arm, Flow, LiveExperiment
from experiments.metrics import Summary, arm_summary, longest_gap, summed
from experiments.samples import Sample
from experiments.traffic import IPERF_PORT, Probe, Transfer
from topologies import labs, targets
from topologies.network import Features, Lab
from topologies.profiles import LinkProfile
from topologies.requirements import LabError

WARM_UP = 1.0  # s of probing before the arm's time starts: addresses and the probe's flow are learned
# s before the arm's time at which what runs from its start begins: programs come up late in a user-mode kernel.
EARLY = {labs.WIRED: 0.0, labs.WIRELESS: 4.0}
TICK = 0.1  # s between two looks at the clock
LOOKS = 5  # at each connection's state in the kernel


@dataclass(frozen=True)
class Setting:
    """What holds for every arm of a run. air: what radios do to frames, for the lab `mininet-wifi`."""

    profile: LinkProfile
    seconds: int
    cc: str = "cubic"
    ecn: bool = True
    target: str = targets.DEFAULT
    lab: str = labs.WIRED
    air: str = "plain"


@dataclass
class ArmRun:
    """An arm at work, or done: then with a `summary`."""

    arm: Arm
    started: float = 0.0  # s since the epoch
    samples: list[Sample] = field(default_factory=list)
    stats: Path | None = None  # the controller's own
    summary: Summary | None = None

    @property
    def elapsed(self) -> float:
        """s; 0 while the lab comes up."""
        return max(0.0, time.time() - self.started) if self.started else 0.0


def require(experiment: LiveExperiment, arms: list[str], setting: Setting) -> None:
    """Raises LabError when the lab or the target cannot give what one of these arms needs."""
    if experiment.access_points > 1 and setting.lab != labs.WIRELESS:
        raise LabError(f"experiment '{experiment.name}' needs more than one access point: give LAB={labs.WIRELESS}")
    for arm in experiment.arms:
        if arm.name in arms:
            ports = labs.lab_class(setting.lab).switch_ports(setting.profile, experiment.stations)
            targets.TARGETS[setting.target].check(ports, asdict(Features(**arm.features)))


def _lab(experiment: LiveExperiment, arm: Arm, setting: Setting, directory: Path) -> Lab:
    options: dict[str, Any] = {"cc": setting.cc, "ecn": setting.ecn, "stats": True, "target": setting.target}
    if setting.lab == labs.WIRELESS:
        options |= {"access_points": experiment.access_points, "air": setting.air}
    lab = labs.lab_class(setting.lab)
    return lab(setting.profile, directory, experiment.stations, Features(**arm.features), **options)


def run_arm(
    experiment: LiveExperiment, run: ArmRun, setting: Setting, directory: Path, tick: Callable[[], None]
) -> None:
    """Measures one arm into `run`; calls `tick` some times a second. Raises LabError.

    directory: takes the lab's logs and the controller's statistics.
    """
    made = _lab(experiment, run.arm, setting, directory)
    with made as lab:
        run.stats = lab.stats
        early = EARLY[setting.lab]
        started = time.time() + WARM_UP + early
        transfers = _transfers(experiment, lab, run.samples, started)
        for _, transfer in transfers:
            transfer.await_listening()
        length, address = setting.seconds + WARM_UP + early, lab.server.IP()
        probe = Probe(lab.stations[0], lab.server, address, run.samples, started, length)
        time.sleep(max(0.0, started - early - time.time()))
        run.started = started
        assert lab.access_point.process and lab.controller
        cpu = selfcheck.CpuMeter({"switch": lab.access_point.process.pid, "controller": lab.controller.pid})
        came_from = lab.associations() if experiment.walk else {}
        tcp = _drive(experiment, transfers, started, setting, lab, tick)
        load, drops = cpu.read(), lab.radio_drops()
        report = selfcheck.check(load, probe.late, probe.unanswered, tcp, setting.cc, setting.ecn, drops)
        went_to = lab.associations() if experiment.walk else {}
    run.samples[:] = sorted((s for s in run.samples if 0 <= s.time < setting.seconds), key=lambda s: s.time)
    run.samples[:] = summed(run.samples, experiment, setting.seconds)
    run.summary = arm_summary(experiment, run.samples, setting.seconds) | {"self_check": report}
    if experiment.walk:
        start, end = (part * setting.seconds for part in experiment.walk)
        gap = longest_gap(run.samples, "ping_ms", start, end)
        run.summary["handover"] = {"from": came_from, "to": went_to, "longest_gap_ms": round(gap * 1e3)}


def _transfers(
    experiment: LiveExperiment, lab: Lab, samples: list[Sample], started: float
) -> list[tuple[Flow, Transfer]]:
    server = lab.server
    return [
        (
            flow,
            Transfer(
                lab.stations[flow.station - 1], server, server.IP(), flow.direction, samples, started,
                quantity=flow.quantity, port=IPERF_PORT + index, streams=flow.streams,
            ),
        )
        for index, flow in enumerate(experiment.flows)
    ]  # fmt: skip


def _drive(
    experiment: LiveExperiment,
    transfers: list[tuple[Flow, Transfer]],
    started: float,
    setting: Setting,
    lab: Lab,
    tick: Callable[[], None],
) -> dict[str, list[str]]:
    """Begins and ends each transfer at its time, and has the station walk; returns what ss said of each, some times."""
    seconds = setting.seconds
    events: list[tuple[float, str, Flow, Transfer]] = []
    for flow, transfer in transfers:
        begin, end = flow.start * seconds, flow.end * seconds
        events += [(begin or -EARLY[setting.lab], "begin", flow, transfer), (end, "end", flow, transfer)]
        looks = [begin + (end - begin) * (look + 0.5) / LOOKS for look in range(LOOKS)]
        events += [(look, "look", flow, transfer) for look in looks]
    events.sort(key=lambda event: event[0])
    tcp: dict[str, list[str]] = {experiment.flow_name(flow): [] for flow, _ in transfers}
    for due, what, flow, transfer in [*events, (float(seconds), "stop", *transfers[0])]:
        while (left := started + due - time.time()) > 0:
            time.sleep(min(left, TICK))
            tick()
            if experiment.walk:
                first, last = (part * seconds for part in experiment.walk)
                lab.walk(min(1.0, max(0.0, (time.time() - started - first) / (last - first))))
            for _, each in transfers:
                each.require_alive()
            lab.require_running()
        if what == "begin":
            transfer.begin((flow.end - flow.start) * seconds)
        elif what == "look":
            tcp[experiment.flow_name(flow)].append(transfer.tcp_info())
        elif what == "end":
            transfer.end()
    return tcp
