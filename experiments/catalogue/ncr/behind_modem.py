# SPDX-License-Identifier: Apache-2.0
"""Measures and figures of paper 000's cells in ns-3: a download, and an upload in its middle, behind a modem."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal

from accesspoint.experiments.experiment import Bars, Figure, Measure, Point, Timeline
from accesspoint.experiments.measure.run_data import quantile, rate
from accesspoint.experiments.scenes.modem import Modem
from accesspoint.experiments.scenes.scene import Flow, Probe
from accesspoint.topologies.links.profiles import LinkProfile


@dataclass(frozen=True)
class Times:
    """Times (s) at which the download starts, the upload starts and ends, and the run ends."""

    down: float
    up: float
    up_ends: float
    seconds: float


def scene(times: Times, told: LinkProfile, queue: int, cell: Literal["lte", "wimax"]) -> Modem:
    """The scene in one kind of cell. queue: as that has it, bytes or packets."""
    flows = Flow("download", "down", times.down), Flow("upload", "up", times.up, times.up_ends), Probe()
    return Modem(told, times.seconds, flows, queue, cell)


def measures(times: Times) -> tuple[Measure, ...]:
    alone, both = (times.down, times.up), (times.up, times.up_ends)
    return (
        Measure("download_alone", "Mb/s", "download, before the upload", rate("download", *alone)),
        Measure("download_during", "Mb/s", "download during the upload", rate("download", *both)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", *both)),
        Measure("total_during", "Mb/s", "both together", rate("*load", *both)),
        Measure("download_after", "Mb/s", "download, after the upload", rate("download", times.up_ends)),
        Measure("ping_alone", "ms", "ping during the download", quantile("ping_ms", 0.5, *alone), "{:.1f}"),
        Measure("ping_during", "ms", "ping under load", quantile("ping_ms", 0.5, *both), "{:.1f}"),
    )


def figures(times: Times, queues: Sequence[int], unit: str, at: Point, reported: Container[int]) -> tuple[Figure, ...]:
    """Figures for each length of the queues. at: the point of the timeline. reported: lengths for which figures of the
    paper are drawn."""
    both = times.up, times.up_ends
    return (
        Timeline(
            "throughput", f"Throughput over time, with queues of {at['queue']} {unit}; dashed: the paper's figures.",
            ("download", "upload"), point=at,
            levels={"download_alone": (times.down, times.up), "download_during": both, "upload_during": both,
                    "download_after": (times.up_ends, times.seconds)},
        ),
        *(
            Bars(
                f"during-{queue}",
                f"While both run, with queues of {queue} {unit}."
                + (" Lines across: the paper's figures." if queue in reported else ""),
                ("download_during", "upload_during", "total_during"), "throughput (Mb/s)", point={"queue": queue},
            )
            for queue in queues
        ),
        *(
            Bars(
                f"ping-{queue}", f"Ping while both run, with queues of {queue} {unit}.", ("ping_during",),
                "round trip (ms)", point={"queue": queue}, log=True,
            )
            for queue in queues
        ),
    )  # fmt: skip
