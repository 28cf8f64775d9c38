# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.experiments.execution.worker ORDER FOLDER`: makes one run in a process of its own, and leaves
nothing but the folder.

ORDER is JSON (accesspoint.experiments.runs.plan.Order). The folder gets `samples.parquet`, `measures.json`, the lab's
logs, and `run.json` last. Exit code 2 and a line on standard error: the run could not be made.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from accesspoint.experiments.experiment import Scene
from accesspoint.experiments.measure.run_data import Raw
from accesspoint.experiments.runs import flent, measures, plan, provenance, registry, store
from accesspoint.experiments.runs.plan import Order
from accesspoint.experiments.scenes.congestion_controls import Controls
from accesspoint.experiments.scenes.scene import AccessPoint
from accesspoint.experiments.verdict import claims
from accesspoint.topologies import lab_kinds, requirements, targets
from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.lab import fail
from accesspoint.topologies.links.profiles import ProfileError
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.requirements import LabError

MAX_LINE = 80  # letters of the live line
STANDS_STILL = 10  # times what a run is planned to take: a machine with ten times as much to do is no use anyway


def main() -> int:
    # The process that ordered the run may be killed: the run ends with it.
    ctypes.CDLL(None).prctl(contain.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    order, directory = Order(**json.loads(sys.argv[1])), Path(sys.argv[2])
    if order.clock == kernel.REAL or kernel.inside():  # else nothing out here disturbs it
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, kernel.NICENESS)  # as what it starts will have
    try:
        if order.clock == kernel.SIMULATED:
            return _make(order, directory)
        requirements.check()
        experiment = order.declared()
        arm = experiment.arm(order.arm)
        if _needless(experiment.scene_of(order.point, arm), order, directory):
            return _make(order, directory, needless=True)
        needed = None if kernel.inside() else _kernel(order)
        if needed:
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a user-mode kernel has one console for both
            if order.clock == kernel.REAL:
                # From outside, a lab that measures cannot be told from one that starts. It goes before other labs, too
                # (stage.put_first): they can go to another processor, and it cannot.
                with contextlib.suppress(OSError):
                    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(3))
            longest = STANDS_STILL * plan.needs(order).seconds if order.clock == kernel.VIRTUAL else None
            own = registry.own_files()
            return kernel.run(
                needed, "accesspoint.experiments.execution.worker", sys.argv[1:], [directory], order.clock, longest,
                [file.parent for file in own], {registry.OWN: ":".join(map(str, own))},
            )  # fmt: skip
        with Controls(arm.controls):
            return contain.run(lambda: _make(order, directory))
    except (LabError, ProfileError, OSError) as error:
        return fail(error)


def _kernel(order: Order) -> kernel.Kernel | None:
    """Return the kernel to boot for a run; None: the running one."""
    if order.clock == kernel.VIRTUAL:
        return kernel.of_virtual_time()
    experiment = order.declared()
    return experiment.scene_of(order.point, experiment.arm(order.arm)).kernel()


def _needless(scene: Scene, order: Order, directory: Path) -> bool:
    """Return whether no traffic has anything to do in this repeat, so that no lab is needed."""
    asked = [getattr(part, "needless", None) for part in scene.traffic]
    return all(ask is not None and ask(directory, order.point, order.repeat) for ask in asked)


def _versions(order: Order, scene: Scene) -> dict[str, str]:
    """Versions of the software that takes part."""
    if order.clock == kernel.SIMULATED:
        return provenance.versions_of_a_simulation(getattr(scene, "simulator", "ns-3"))
    return provenance.versions(order.target) | lab_kinds.versions(getattr(scene, "kind", lab_kinds.WIRED))


def _show(line: str, live: TextIO) -> None:
    """Put a line in the place of the one before; a new file each time would be a write to the disk each time."""
    live.seek(0)
    live.write(line.ljust(MAX_LINE))
    live.flush()


def _make(order: Order, directory: Path, needless: bool = False) -> int:
    from accesspoint.experiments.lab.stage import Stage

    try:
        experiment = order.declared()
        arm = experiment.arm_at(order.arm, order.point)
        scene = experiment.scene_of(order.point, arm)
        # As the code is now, not at the end.
        stand, versions = claims.sha256(), _versions(order, scene)
        started = time.time()
        if needless:
            samples = []
            facts: dict[str, Any] = {"scale": 1.0, "started": round(started, 3), "clock": order.clock}
            facts |= {"found": {"needless": True}, "self_check": {"problems": []}}
        elif order.clock == kernel.SIMULATED:
            samples, found = scene.simulate(arm, order.point, order.seconds, order.seed, directory)  # type: ignore[attr-defined]
            facts = {
                "scale": order.seconds / scene.seconds,
                "started": round(started, 3),
                "clock": order.clock,
            }
            facts |= {"found": found, "self_check": {"problems": []}}  # nothing that a machine does disturbs it
        else:
            with contextlib.ExitStack() as stack:
                lab = stack.enter_context(scene.lab(arm, order.target, directory / "logs", order.seed))
                stage = Stage(lab, scene, arm, order.point, order.seconds, order.seed, directory, order.repeat)
                with (directory / store.LIVE).open("w") as live:
                    stage.play(lambda: _show(stage.live(), live))
            (directory / store.LIVE).unlink()
            samples = stage.samples
            if stage.digest:
                store.write_samples(samples, directory / store.ALL_SAMPLES)
                samples = stage.digest(samples)
            if stage.has_flows:
                content = flent.data(stage.both_ways(), f"{order.experiment} {order.id}", stage.started, order.seconds)
                flent.write(directory / "run.flent.gz", content)
            facts = {"scale": stage.scale, "started": round(stage.started, 3), "clock": kernel.clock()}
            facts |= {"found": stage.found, "self_check": stage.report}
            if isinstance(scene, AccessPoint):
                facts["target_differences"] = targets.TARGETS[order.target].differences(scene.ports())
        store.write_samples(samples, directory / "samples.parquet")
        facts = asdict(order) | facts
        facts |= {
            "seed": order.seed,
            "finished": round(time.time(), 3),
            "machine": os.uname().nodename,
            "claims": stand,
            "versions": versions,
            "parameters": {"arm": provenance.parameters(arm), "scene": provenance.parameters(scene)},
        }
        with contextlib.suppress(Exception):
            # A mistake in a measure costs no run: who reports takes it again, and hears of it.
            samples = store.read_samples(directory / "samples.parquet")  # as who reports would
            raw = Raw(samples, order.seconds, facts["scale"], order.point, order.arm)
            measures.keep(measures.take(experiment.measures, raw), directory)
        store.write(directory / "run.json", json.dumps(facts, indent=2) + "\n")
    except (LabError, ProfileError, OSError) as error:
        return fail(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
