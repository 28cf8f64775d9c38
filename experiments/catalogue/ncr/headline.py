# SPDX-License-Identifier: Apache-2.0
"""The headline experiment: an upload starves a download, and the access point ends it.

One station downloads over the whole time and uploads in the middle third; a probe measures the round trip beside it
(Kim et al., "Protecting Download Traffic from Upload Traffic over Asymmetric Wireless Links", section 2,
Fig. 1 and 14).
"""

from collections.abc import Callable
from dataclasses import replace

from accesspoint.experiments.experiment import (
    OURS,
    PLAIN,
    Arm,
    Distribution,
    Experiment,
    Figure,
    Goal,
    Measure,
    Medians,
    Panels,
    Regulation,
    Setting,
)
from accesspoint.experiments.measure.run_data import mean, quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.bmv2 import bulk_pace
from accesspoint.topologies.links.profiles import PROFILES

SECONDS = 24
PAYLOAD = 1448  # bytes of a full segment with timestamps
FIFO = Arm("fifo", "plain FIFO", "plain", PLAIN)
ACKS_FIRST = Arm("ack-priority", "ACKs first", "ours", {**PLAIN, "ack_priority": True})
NCR = Arm("ncr", "this access point", "ours", OURS)


def thirds(seconds: float) -> dict[str, tuple[float, float]]:
    """The phases of a timeline that loads its links in the middle."""
    return {
        "before": (0, seconds / 3),
        "during": (seconds / 3, 2 * seconds / 3),
        "after": (2 * seconds / 3, seconds),
    }


def measures(phases: dict[str, tuple[float, float]]) -> tuple[Measure, ...]:
    during = phases["during"]
    return (
        *(
            Measure(f"download_{name}", "Mb/s", f"download {name}", rate("downlink*", *phase))
            for name, phase in phases.items()
        ),
        Measure("kept", "1", "download during, of before", kept(during, phases["before"]), "{:.0%}"),
        Measure("upload_during", "Mb/s", "upload", rate("uplink*", *during)),
        Measure("ping_p50", "ms", "ping under load, median", quantile("ping_ms", 0.5, *during), "{:.1f}"),
        Measure("ping_p99", "ms", "ping, 99 of 100", quantile("ping_ms", 0.99, *during), "{:.1f}"),
        Measure("ping_mean", "ms", "ping, mean", mean("ping_ms", *during), "{:.1f}"),
        Measure("ping_max", "ms", "ping, most", quantile("ping_ms", 1.0, *during), "{:.1f}"),
    )


def kept(part: tuple[float, float], before: tuple[float, float]) -> Callable[..., float | None]:
    """Return a measure: the download's rate in a part of the timeline, over its rate in `before`."""
    return lambda raw: raw.rate("downlink*", *part) / alone if (alone := raw.rate("downlink*", *before)) else None


def figures(setting: Setting, phases: dict[str, tuple[float, float]]) -> tuple[Figure, ...]:
    profile = setting.profile
    during, rtt = phases["during"], profile.rtt * 1e3
    return (
        Panels(
            "overview", "Throughput and ping over time; the upload runs in the shaded part.",
            ("downlink", "uplink"),
            "download keeps {kept:.0%}, upload {upload_during:.2f} Mb/s, ping {ping_p50:.0f} ms",
            {f"download_{name}": phase for name, phase in phases.items()},
            during, "upload runs", max(profile.down, profile.up) / 1e6, rtt,
        ),
        Distribution(
            "ping-cdf", "How long the probes took while the upload ran.", "Ping while the upload runs", during, rtt,
        ),
        Regulation("controller", "The uplink's queue and the feedback that the controller computed.", during),
    )  # fmt: skip


def goals(setting: Setting) -> tuple[Goal, ...]:
    """Goals on these links, with this switch and congestion control; none where no expectation is known."""
    profile = setting.profile
    known = setting.cc == "cubic" and profile.name in PROFILES
    bmv2 = setting.target == "bmv2"
    # 0.80 Mb/s in the testbed. How much the ACKs must take depends on the link and on the sender: nothing is claimed
    # for links of the user's own.
    upload = 0.8 * profile.up / 1e6
    if bmv2 and known:
        # It cannot thin out the download's ACKs: nine tenths of what they leave of the link, as payload of full frames.
        upload = 0.9 * bulk_pace(profile.up, profile.down) * PAYLOAD * 8 / 1e6
    # On top of the base round trip 16,000 bits' time on the uplink: the rest of a full packet (12,112 bits) cannot be
    # helped. That is 20 ms in the testbed. Fast links get what timers and few cores need.
    ping = profile.rtt * 1e3 + max(16_000 / profile.up * 1e3, 10.0)
    # The fall of a plain FIFO depends on the link and on the sender. The figure is the testbed's with CUBIC.
    falls = setting.cc == "cubic" and profile == PROFILES["testbed"]
    collapse = Goal(
        "a plain FIFO lets the upload starve the download: {value} of before is left (at most {limit})",
        _of("kept", "fifo"), at_most=0.30, shown="{:.0%}",
    )  # fmt: skip
    keeps_upload = Goal(
        "this access point keeps the upload: {value} (at least {limit})",
        _of("upload_during", "ncr"), at_least=upload, shown="{:.2f} Mb/s",
    )  # fmt: skip
    return (
        *([collapse] if falls else []),
        Goal(
            "this access point keeps the download: {value} of before (at least {limit})",
            _of("kept", "ncr"), at_least=0.95 if bmv2 else 0.98, shown="{:.1%}",
        ),
        *([keeps_upload] if known else []),
        Goal(
            "this access point keeps the delay short: ping {value} in the middle (at most {limit})",
            _of("ping_p50", "ncr"), at_most=ping, shown="{:.1f} ms",
        ),
    )  # fmt: skip


def _of(measure: str, arm: str) -> Callable[[Medians], float]:
    return lambda medians: medians(measure, arm)


def under(setting: Setting) -> Experiment:
    """The headline on links of the user's own."""
    phases = thirds(SECONDS)
    return Experiment(
        name="headline",
        title="A download during an upload",
        paper="none: the question of paper 000, sections 2 and 4.2",
        question="How much of a download is left while an upload fills the slow direction of the link?",
        scene=AccessPoint(
            setting.profile,
            SECONDS,
            (Flow("downlink", "down"), Flow("uplink", "up", *phases["during"])),
            kind=setting.lab,
            air=setting.air,
            wpa2=setting.wpa2,
        ),
        arms=tuple(replace(arm, cc=setting.cc) for arm in (FIFO, ACKS_FIRST, NCR)),
        measures=measures(phases),
        goals=goals(setting),
        figures=figures(setting, phases),
        repeats=1,
        under=under,
    )


EXPERIMENT = under(Setting())
