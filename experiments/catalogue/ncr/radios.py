# SPDX-License-Identifier: Apache-2.0
"""The headline's question on radios: many stations at one access point, and one that walks to the next."""

from dataclasses import replace

from accesspoint.experiments.catalogue.ncr.headline import FIFO, NCR, figures, kept, measures, thirds
from accesspoint.experiments.experiment import Experiment, Goal, Measure, Setting
from accesspoint.experiments.measure.run_data import longest_between_answers, longest_gap
from accesspoint.experiments.scenes.scene import AccessPoint, Flow, Walk

STATIONS = 4
SECONDS = 60  # connections come up slowly behind a full queue, and a walk takes its time
MAX_GAP = 1000.0  # ms without an answered probe; reassociation and a retransmission timeout take less
PHASES = thirds(SECONDS)
PAPER = "none: the question of paper 000, sections 2 and 4.2, "


def many_stations(setting: Setting) -> Experiment:
    return Experiment(
        name="many-stations",
        title=f"{STATIONS} downloads during {STATIONS} uploads",
        paper=f"{PAPER}of several stations",
        question="How much of the stations' downloads is left while all of them upload?",
        scene=AccessPoint(
            setting.profile,
            SECONDS,
            tuple(
                flow
                for station in range(1, STATIONS + 1)
                for flow in (
                    Flow(f"downlink of sta{station}", "down", station=station),
                    Flow(f"uplink of sta{station}", "up", *PHASES["during"], station=station),
                )
            ),
            stations=STATIONS,
            kind=setting.lab,
            air=setting.air,
            wpa2=setting.wpa2,
        ),
        arms=tuple(replace(arm, cc=setting.cc) for arm in (FIFO, NCR)),
        measures=measures(PHASES),
        goals=(
            Goal(
                "this access point keeps the downloads: {value} of before (at least {limit})",
                lambda median: median("kept", "ncr"),
                at_least=0.9,
                shown="{:.1%}",
            ),
        ),
        figures=figures(setting, PHASES),
        repeats=1,
        under=many_stations,
    )


def handover(setting: Setting) -> Experiment:
    walk = Walk(*PHASES["during"])
    return Experiment(
        name="handover",
        title="A download and an upload of a station that walks from one access point to the next",
        paper=f"{PAPER}of a station that walks",
        question="Do a download and an upload continue behind the next access point?",
        scene=AccessPoint(
            setting.profile,
            SECONDS,
            (Flow("downlink", "down"), Flow("uplink", "up"), walk),
            kind=setting.lab,
            access_points=2,
            air=setting.air,
            wpa2=setting.wpa2,
        ),
        arms=tuple(replace(arm, cc=setting.cc) for arm in (FIFO, NCR)),
        measures=(
            *measures(PHASES),
            Measure("kept_after", "1", "download after, of before", kept(PHASES["after"], PHASES["before"]), "{:.0%}"),
            Measure(
                "longest_gap", "ms", "longest time without an answer",
                longest_gap("ping_ms", *PHASES["during"]), "{:.0f}",
            ),
            Measure(
                "between_answers", "ms", "longest time between two answers",
                longest_between_answers(*PHASES["during"]), "{:.0f}",
            ),
        ),
        goals=(
            Goal(
                "the download continues behind the next access point: {value} of before (at least {limit})",
                lambda median: median("kept_after", "ncr"),
                at_least=0.9,
                shown="{:.1%}",
            ),
            Goal(
                "the handover is short: {value} without an answer (at most {limit})",
                lambda median: median("longest_gap", "ncr"),
                at_most=MAX_GAP,
                shown="{:.0f} ms",
            ),
        ),
        figures=figures(setting, PHASES),
        repeats=1,
        under=handover,
    )  # fmt: skip


EXPERIMENTS = (many_stations(Setting()), handover(Setting()))
