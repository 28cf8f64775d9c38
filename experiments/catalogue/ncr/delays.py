# SPDX-License-Identifier: Apache-2.0
"""Delays of the data of downloads and uploads in the paper's grid (Fig. 7b)."""

from dataclasses import replace

from accesspoint.experiments.catalogue.ncr import grid
from accesspoint.experiments.catalogue.ncr.testbed import PLACE
from accesspoint.experiments.experiment import Arm, Curves, Experiment, Measure, Point
from accesspoint.experiments.scenes.data_delays import DataDelays, data_delay
from accesspoint.experiments.scenes.scene import AccessPoint, Flow

QUEUES = (50, 1000)  # packets


def scene(point: Point, arm: Arm) -> AccessPoint:
    made = grid.EXPERIMENT.scene_of(point, arm)
    assert isinstance(made, AccessPoint)
    flows = tuple(one.name for one in made.traffic if isinstance(one, Flow))
    queue = int(point["queue"])
    profile = replace(made.profile, down_limit=queue, up_limit=queue)
    return replace(made, profile=profile, traffic=(*made.traffic, DataDelays(flows)))


EXPERIMENT: Experiment = replace(
    grid.EXPERIMENT,
    name="ncr-delays",
    title="Delays of data while downloads and uploads run, by their numbers",
    paper="000, section 4.1.1, Fig. 7(b)",
    question="How long do the data packets of several downloads and several uploads take from end to end?",
    sweep={"downloads": grid.DOWNLOADS, "uploads": grid.UPLOADS, "queue": QUEUES},
    quick=replace(grid.EXPERIMENT.quick, sweep={"uploads": (1, 3, 5), "queue": QUEUES[:1]}),
    scene=scene,
    measures=(
        Measure("data_delay", "ms", "one-way delay of the data of all flows", data_delay("*load*"), "{:.1f}"),
        Measure("download_delay", "ms", "of the downloads' data", data_delay("download*"), "{:.1f}"),
        Measure("upload_delay", "ms", "of the uploads' data", data_delay("upload*"), "{:.1f}"),
    ),
    figures=(
        Curves("delay", "One-way delay of the data of all flows with 1 download (Fig. 7b).", "data_delay",
               "uploads", "uploads", "delay (ms)", point={"downloads": 1, "queue": QUEUES[0]}, log=True),
    ),
    differences=(
        "Fig. 7 is a picture in the source: of Fig. 7(b) only the ratio is known that the text gives, 6.85 times less "
        "delay",
        "the delay is the mean over all full segments that arrived, of both directions, each from the interface of its "
        "sender to that of its receiver; the paper does not say which packets it counts",
        "the paper does not state the simulation's queues: the claim is judged at 50 packets, ns-2's default, "
        "and the full form has the testbed's 1000, too; the plain access point's delay is that queue",
        "all flows are one station's",
        PLACE,
        "the ratio is taken of sums over the points, of which the quick form has nine of fifteen: the text does not "
        "say whether it is of all or of one",
    ),
    apart=True,
)  # fmt: skip
