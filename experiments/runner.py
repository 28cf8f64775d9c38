# SPDX-License-Identifier: Apache-2.0
"""Runs an experiment: each arm in a fresh lab, its samples kept, its figures worked out."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments import selfcheck
from experiments.experiment import Arm, Experiment
from experiments.metrics import Summary, arm_summary
from experiments.traffic import Probe, Sample, Transfer, require_alive
from topologies import targets
from topologies.network import Features, Lab
from topologies.profiles import LinkProfile
from topologies.requirements import LabError

WARM_UP = 1.0  # s of probing before the arm's time starts: addresses and the probe's flow are learned
LISTEN_TIMEOUT = 5.0  # s
TICK = 0.1  # s between two looks at the clock


@dataclass(frozen=True)
class Setting:
    """What holds for every arm of a run."""

    profile: LinkProfile
    seconds: int
    cc: str = "cubic"
    ecn: bool = True
    target: str = targets.DEFAULT


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


def require(experiment: Experiment, arms: list[str], setting: Setting) -> None:
    """Raises LabError when the target cannot give what one of these arms needs."""
    for arm in experiment.arms:
        if arm.name in arms:
            ports = Lab.switch_ports(setting.profile, experiment.stations)
            targets.TARGETS[setting.target].check(ports, asdict(Features(**arm.features)))


def run_arm(experiment: Experiment, run: ArmRun, setting: Setting, directory: Path, tick: Callable[[], None]) -> None:
    """Measures one arm into `run`; calls `tick` some times a second. Raises LabError.

    directory: takes the lab's logs and the controller's statistics.
    """
    features = Features(**run.arm.features)
    made = Lab(
        setting.profile,
        directory,
        experiment.stations,
        features,
        setting.cc,
        setting.ecn,
        stats=True,
        target=setting.target,
    )
    with made as lab:
        run.stats = lab.stats
        started = time.time() + WARM_UP
        transfers = [Transfer(lab, flow, i, run.samples, started) for i, flow in enumerate(experiment.flows)]
        for transfer in transfers:
            if not transfer.listening.wait(LISTEN_TIMEOUT):
                raise LabError(f"iperf3 did not start on the server: {transfer.error or 'no output'}")
        probe = Probe(lab, run.samples, started, setting.seconds + WARM_UP)
        time.sleep(max(0.0, started - time.time()))
        run.started = started
        assert lab.access_point.process and lab.controller
        cpu = selfcheck.CpuMeter({"switch": lab.access_point.process.pid, "controller": lab.controller.pid})
        tcp = _drive(transfers, started, setting.seconds, lab, tick)
        report = selfcheck.check(cpu.read(), probe.late, probe.unanswered, tcp, setting.cc, setting.ecn)
    run.samples[:] = sorted((s for s in run.samples if 0 <= s.time < setting.seconds), key=lambda s: s.time)
    run.summary = arm_summary(experiment, run.samples, setting.seconds) | {"self_check": report}


def _drive(
    transfers: list[Transfer], started: float, seconds: int, lab: Lab, tick: Callable[[], None]
) -> dict[str, str]:
    """Begins and ends each transfer at its time; returns what ss said in the middle of each."""
    events: list[tuple[float, str, Transfer]] = []
    for transfer in transfers:
        begin, end = transfer.flow.start * seconds, transfer.flow.end * seconds
        events += [(begin, "begin", transfer), ((begin + end) / 2, "look", transfer), (end, "end", transfer)]
    events.sort(key=lambda event: event[0])
    tcp: dict[str, str] = {}
    for due, what, transfer in [*events, (float(seconds), "stop", transfers[0])]:
        while (left := started + due - time.time()) > 0:
            time.sleep(min(left, TICK))
            tick()
            require_alive(transfers)
            _require_running(lab)
        if what == "begin":
            transfer.begin((transfer.flow.end - transfer.flow.start) * seconds)
        elif what == "look":
            tcp[transfer.flow.quantity.removesuffix("_mbps")] = transfer.tcp_info()
        elif what == "end":
            transfer.end()
    return tcp


def _require_running(lab: Lab) -> None:
    processes: dict[str, Any] = {"switch": lab.access_point.process, "controller": lab.controller}
    for name, process in processes.items():
        if process.poll() is not None:
            raise LabError(f"the {name} ended in the middle of the run: see its log in {lab.directory}")
