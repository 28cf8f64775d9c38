# SPDX-License-Identifier: Apache-2.0
"""The headline, many stations and a handover on radios (Mininet-WiFi), in virtual time: repeated, on radios that are
open, that encrypt, and that have airtime and losses."""

from dataclasses import replace
from functools import partial

from accesspoint.experiments.catalogue.ncr import headline, radios
from accesspoint.experiments.experiment import Bars, Experiment, Goal, Medians, Quick, Setting, Timeline
from accesspoint.experiments.scenes.scene import AccessPoint, Flow, Walk
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.lab_kinds import WIRELESS

AIRS = {
    "open": Setting(lab=WIRELESS),
    "wpa2": Setting(lab=WIRELESS, wpa2=True),
    "airtime": Setting(lab=WIRELESS, air="wmediumd"),
}
PHASES = headline.thirds(headline.SECONDS)
DIFFERENCES = (
    "mac80211_hwsim carries frames at once, whatever their rate; in `airtime` (wmediumd) they take time and get lost",
    "the links' 14 and 1 Mb/s are models in the access point, and less than the radios carry",
)


def _scene(setting: Setting) -> AccessPoint:
    scene = headline.under(setting).scene
    assert isinstance(scene, AccessPoint)
    return scene


def _goals(air: str) -> tuple[Goal, ...]:
    """The headline's goals on one kind of air."""

    def at(goal: Goal) -> Goal:
        return replace(goal, text=f"{air}: {goal.text}", value=lambda medians: goal.value(_at_air(medians, air)))

    return tuple(at(goal) for goal in headline.goals(Setting()))


def _at_air(medians: Medians, air: str) -> Medians:
    return partial(medians, air=air)


RADIOS = Experiment(
    name="radios",
    title="A download during an upload, on radios",
    paper="none: the question of paper 000, sections 2 and 4.2, on radios",
    question="Does what the wired lab shows hold behind 802.11's association, keys, airtime and losses?",
    scene=lambda point, arm: _scene(AIRS[str(point["air"])]),
    arms=(headline.FIFO, headline.ACKS_FIRST, headline.NCR),
    measures=headline.measures(PHASES),
    sweep={"air": tuple(AIRS)},
    goals=tuple(goal for air in AIRS for goal in _goals(air)),
    figures=tuple(
        Timeline(
            f"throughput-{air}", f"Throughput over time, {air}.",
            ("downlink", "uplink"), point={"air": air},
        )
        for air in AIRS
    ),
    repeats=5,
    quick=Quick(arms=("fifo", "ncr")),
    differences=DIFFERENCES,
    clock=VIRTUAL,
    apart=True,
)  # fmt: skip

STATIONS = replace(
    radios.many_stations(AIRS["wpa2"]),
    name="radios-stations",
    repeats=5,
    figures=(
        Bars(
            "rates", "Throughput of all stations together while they upload.", ("download_during", "upload_during"),
            "throughput (Mb/s)",
        ),
        Bars("ping", "Ping while all of them upload.", ("ping_p50", "ping_p99"), "round trip (ms)", log=True),
    ),
    quick=Quick(seconds=30, arms=("fifo", "ncr")),
    differences=DIFFERENCES,
    clock=VIRTUAL,
    apart=True,
    under=None,
)  # fmt: skip


def _handover(setting: Setting) -> Experiment:
    """Station 2 stays at the first access point and station 3 at the last, both with a download and an upload of the
    whole time, while station 1 walks."""
    walking = radios.handover(setting)
    loads = tuple(
        flow
        for station in (2, 3)
        for flow in (
            Flow(f"load down {station}", "down", station=station),
            Flow(f"load up {station}", "up", station=station),
        )
    )
    own = (Flow("downlink", "down"), Flow("uplink", "up"), Walk(*radios.PHASES["during"]))
    assert isinstance(walking.scene, AccessPoint)
    return replace(
        walking,
        name="radios-handover",
        title="A station walks from one loaded access point to another",
        question="Do a download and an upload continue behind the next access point, where others load both?",
        scene=replace(walking.scene, traffic=(*own, *loads), stations=3, places=(1, 1, 2)),
        repeats=5,
        figures=(
            Timeline("throughput", "The walking station's throughput over time.", ("downlink", "uplink")),
            Bars(
                "gap",
                "The longest time without an answer: of probes by when they were sent, and between two answers.",
                ("longest_gap", "between_answers"),
                "ms",
                log=True,
            ),
        ),
        quick=Quick(seconds=30, arms=("fifo", "ncr")),
        differences=DIFFERENCES,
        clock=VIRTUAL,
        apart=True,
        under=None,
    )


EXPERIMENTS = (RADIOS, STATIONS, _handover(AIRS["wpa2"]))
