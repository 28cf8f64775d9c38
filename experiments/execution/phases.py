# SPDX-License-Identifier: Apache-2.0
"""Summary of a run in the foreground: figures of each arm by phase, ratios between arms, verdicts. Pure, except for the
machine's and the versions' entries."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from accesspoint.experiments.experiment import Experiment, Goal, Setting, Value
from accesspoint.experiments.lab.stage import Flow
from accesspoint.experiments.measure.samples import percentile
from accesspoint.experiments.runs import provenance
from accesspoint.experiments.runs.store import Run
from accesspoint.experiments.scenes.scene import AccessPoint
from accesspoint.experiments.verdict.goals import Cell, decide
from accesspoint.topologies import lab_kinds, targets
from accesspoint.topologies.links.profiles import LinkProfile

BUSY = "during"  # the phase whose delays an arm is judged by
Summary = dict[str, Any]


def summarise(experiment: Experiment, setting: Setting, runs: Sequence[Run], cells: Sequence[Cell]) -> Summary:
    """Summarise one run of each arm. runs: in the arms' order. cells: what these measured."""
    arms = {run.order.arm: by_phase(experiment, run) for run in runs}
    lab = {"name": setting.lab} | (
        {"air": setting.air, "wpa2": setting.wpa2} if setting.lab == lab_kinds.WIRELESS else {}
    )
    return {
        "experiment": experiment.name,
        "started": datetime.fromtimestamp(runs[0].facts["started"], UTC).isoformat(timespec="seconds"),
        "seconds": round(runs[0].facts["seconds"]),
        "cc": setting.cc,
        "ecn": all(experiment.arm(name).ecn for name in arms),
        "target": target(experiment, setting),
        "lab": lab,
        "profile": setting.profile.as_dict(),
        "arms": arms,
        "ratios": ratios(setting.profile, arms),
        "verdicts": verdicts(experiment, arms, cells),
        "versions": provenance.versions(setting.target) | lab_kinds.versions(setting.lab),
        "machine": provenance.machine(),
    }


def target(experiment: Experiment, setting: Setting) -> Summary:
    """The switch under test: name, version, and its differences to what the scene asks for."""
    switch, scene = targets.TARGETS[setting.target], experiment.scene
    assert isinstance(scene, AccessPoint)
    return {"name": switch.name, "version": switch.version(), "differences": switch.differences(scene.ports())}


def by_phase(experiment: Experiment, run: Run) -> Summary:
    """An arm's throughput (Mb/s) in the phases that its flows last for, its delays (ms) in the busy one and in each,
    and its self-check."""
    raw = run.raw()
    result: Summary = {}
    for way in ("downlink", "uplink"):
        rates = {name: raw.rate(f"{way}*", *experiment.phases[name]) for name in _phases_of(experiment, way)}
        result[f"{way}_mbps"] = {name: round(rate, 3) for name, rate in rates.items()}
    for quantity in ("ping_ms", "delay_up_ms", "delay_down_ms"):
        phases = {name: distribution(raw.values(quantity, "*", *part)) for name, part in experiment.phases.items()}
        result[quantity] = phases[BUSY] | {"phases": phases}
    result["self_check"] = _self_check(run.facts["self_check"])
    if found := run.facts.get("found"):
        gap = next(measure for measure in experiment.measures if measure.name == "longest_gap").of(raw)
        result["handover"] = found | {"longest_gap_ms": round(gap or 0.0)}
    return result


def _phases_of(experiment: Experiment, way: str) -> list[str]:
    scene = experiment.scene
    assert isinstance(scene, AccessPoint)
    flows = [flow for flow in scene.traffic if isinstance(flow, Flow) and f"{flow.direction}link" == way]
    spans = [(flow.start, scene.seconds if flow.end is None else flow.end) for flow in flows]
    return [
        name
        for name, (start, end) in experiment.phases.items()
        if any(first <= start and end <= last for first, last in spans)
    ]


def _self_check(report: Summary) -> Summary:
    """Regroup the self-check by quantity, where the stage has it by flow."""
    flows = report["flows"]
    own = {key: {name: flow[key] for name, flow in flows.items()} for key in ("congestion_control", "ecn", "window")}
    return {key: value for key, value in report.items() if key != "flows"} | own


def distribution(values: Sequence[float]) -> Summary:
    """Percentiles, maximum and mean of a delay (same unit); None for no values."""
    mean = fmean(values) if values else float("nan")
    quantiles = {name: percentile(values, fraction) for name, fraction in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}
    return {name: None if value != value else round(value, 3) for name, value in {**quantiles, "mean": mean}.items()}


def ratios(profile: LinkProfile, arms: Mapping[str, Summary]) -> dict[str, float]:
    """Each arm against its own quiet phase and against the link, and every other arm against the first."""
    result: dict[str, float] = {}
    first = next(iter(arms))
    for name, arm in arms.items():
        down, up, ping = arm["downlink_mbps"], arm["uplink_mbps"], arm["ping_ms"]
        pairs = {
            "downlink_during_of_before": (down["during"], down["before"]),
            "downlink_after_of_before": (down["after"], down["before"]),
            "uplink_during_of_link": (up["during"], profile.up / 1e6),
        }
        if name != first:
            other = arms[first]
            pairs[f"downlink_before_of_{first}"] = (down["before"], other["downlink_mbps"]["before"])
            pairs[f"downlink_during_of_{first}"] = (down["during"], other["downlink_mbps"]["during"])
            pairs[f"ping_p50_of_{first}"] = (ping["p50"], other["ping_ms"]["p50"])
        result |= {f"{name}_{key}": round(a / b, 4) for key, (a, b) in pairs.items() if a is not None and b}
    return result


def verdicts(experiment: Experiment, arms: Mapping[str, Summary], cells: Sequence[Cell]) -> list[Summary]:
    """The goals of arms that ran, decided by their one run."""
    result = []
    for goal in experiment.goals:
        asked = asked_of(goal)
        if asked <= arms.keys():
            decision = decide(goal, cells)
            text = decision.said if decision else "nothing was measured"
            result.append({"arm": ", ".join(sorted(asked)), "text": text, "met": bool(decision and decision.holds)})
    return result


def asked_of(goal: Goal) -> set[str]:
    """The arms that a goal is about."""
    asked: set[str] = set()

    def note(measure: str, arm: str, **point: Value) -> float:
        asked.add(arm)
        return 1.0

    goal.value(note)
    return asked
