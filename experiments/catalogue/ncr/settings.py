# SPDX-License-Identifier: Apache-2.0
"""Settings that hosts alone can make against the collapse, as paper 000's introduction names them, on its testbed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accesspoint.experiments.catalogue.ncr.testbed import DOWN_AGAIN, SECONDS, UP, of_payload
from accesspoint.experiments.experiment import OURS, Arm, Bars, Experiment, Measure, Quick
from accesspoint.experiments.lab.stage import Stage
from accesspoint.experiments.measure.run_data import quantile, rate
from accesspoint.experiments.scenes.scene import AccessPoint, Flow
from accesspoint.topologies.kernels.kernel import VIRTUAL
from accesspoint.topologies.links.profiles import PROFILES

KIB = 1024
DEFAULT = "default"


@dataclass(frozen=True)
class Hosts:
    """Settings of every host of the lab, made before traffic starts.

    sysctls: name -> value. route: attributes that every one of a host's routes gets, as ("quickack", "1").
    """

    sysctls: Mapping[str, str] = field(default_factory=dict)
    route: Sequence[str] = ()

    def prepare(self, stage: Stage) -> None:
        for host in (*stage.lab.stations, stage.server):
            for name, value in self.sysctls.items():
                host.run("sysctl", "-qw", f"{name}={value}")
            if self.route:
                for line in host.run("ip", "route", "show", "scope", "link").splitlines():
                    host.run("ip", "route", "change", *line.split(), *self.route)


def _buffers(size: int) -> Mapping[str, str]:
    """tcp_rmem and tcp_wmem whose start and largest are `size` bytes."""
    return {f"net.ipv4.tcp_{which}": f"4096 {size} {size}" for which in ("rmem", "wmem")}


# Values: the testbed's window of 64 KiB, a quarter and four times of it; of Linux's own buffers of 4 and 6 MB about a
# tenth and ten times; the other settings are on or off.
SETTINGS: Mapping[str, tuple[str, dict[str, Any]]] = {
    DEFAULT: ("Linux as it is", {}),
    "window-16k": ("window of 16 KiB", {"window": 16 * KIB}),
    "window-64k": ("window of 64 KiB", {"window": 64 * KIB}),
    "window-256k": ("window of 256 KiB", {"window": 256 * KIB}),
    "no-delayed-ack": ("every segment acknowledged at once", {"hosts": Hosts(route=("quickack", "1"))}),
    "no-sack": ("no selective ACKs", {"hosts": Hosts({"net.ipv4.tcp_sack": "0"})}),
    "buffers-small": ("buffers of 512 KiB", {"hosts": Hosts(_buffers(512 * KIB))}),
    "buffers-large": ("buffers of 64 MiB", {"hosts": Hosts(_buffers(64 * KIB * KIB))}),
    "no-autotuning": ("no tuning of receive buffers", {"hosts": Hosts({"net.ipv4.tcp_moderate_rcvbuf": "0"})}),
}


def _scene(arm: Arm) -> AccessPoint:
    window, hosts = arm.options.get("window"), arm.options.get("hosts")
    limited = hosts is None  # buffers may limit a flow that hosts have set them for: that is what is studied
    flows = (
        Flow("download", "down", window=window, cwnd_limited=limited),
        Flow("upload", "up", UP, DOWN_AGAIN, window=window, cwnd_limited=limited),
    )
    return AccessPoint(of_payload(PROFILES["testbed"]), SECONDS, (*([hosts] if hosts else []), *flows))


EXPERIMENT = Experiment(
    name="ncr-settings",
    title="A download during an upload, with settings of the hosts",
    paper="000, section 1",
    question="Does a window, a buffer, delayed or selective ACKs or autotuning of the hosts bring the download back?",
    scene=lambda point, arm: _scene(arm),
    arms=(
        *(Arm(name, label, "plain", options=options) for name, (label, options) in SETTINGS.items()),
        Arm("ours", "this access point, Linux as it is", "ours", OURS),
    ),
    measures=(
        Measure("download_alone", "Mb/s", "download, before the upload", rate("download", 0, UP)),
        Measure("download_during", "Mb/s", "download during the upload", rate("download", UP, DOWN_AGAIN)),
        Measure("upload_during", "Mb/s", "upload", rate("upload", UP, DOWN_AGAIN)),
        Measure("ping_during", "ms", "ping under load, median", quantile("ping_ms", 0.5, UP, DOWN_AGAIN), "{:.1f}"),
    ),
    figures=(
        Bars(
            "during", "The download alone, and while both run, by what the hosts set.",
            ("download_alone", "download_during", "upload_during"), "throughput (Mb/s)",
        ),
        Bars("ping", "Ping while both run.", ("ping_during",), "round trip (ms)", log=True),
    ),
    repeats=10,
    quick=Quick(seconds=60, arms=tuple(SETTINGS)),
    differences=(
        "the paper names the settings, but has no values and no picture; these were fixed before the first run",
        "the links are models that carry 14 and 1 Mb/s of TCP's payload; the uplink's queue holds 1000 packets",
    ),
    clock=VIRTUAL,
    apart=True,
)  # fmt: skip
