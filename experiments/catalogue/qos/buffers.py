# SPDX-License-Identifier: Apache-2.0
"""The buffers of five access points and how they admit packets, found from outside."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accesspoint.experiments.experiment import PLAIN, Arm, Bars, Experiment, Measure, Quick, Reported
from accesspoint.experiments.measure.run_data import mean
from accesspoint.experiments.scenes.scene import HOSTS, AccessPoint, require_hosts
from accesspoint.topologies.links.profiles import LinkProfile

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

SECONDS = 40.0
# Table I (the mean of the paper's ten trials) and the batches of Fig. 1.
ACCESS_POINTS = (
    ("planex", "Planex GW-AP54SAG", 284.3, 16),
    ("wzr", "Buffalo WZR-AMPG300NH", 256.0, 17),
    ("whr-hp", "Buffalo WHR-HP-AMPG", 135.1, 12),
    ("nec", "NEC PA-WR8500N", 90.5, 16),
    ("whr-am", "Buffalo WHR-AM54G54", 37.2, 12),
)


@dataclass(frozen=True)
class Estimate:
    """`hosts probe-buffer` from the server to the station. Samples `buffer_packets`, `batch_packets`. The run ends with
    it: some seconds, of those that it may take."""

    def prepare(self, stage: "Stage") -> None:
        require_hosts()
        key = stage.directory / "probe.key"
        key.touch(mode=0o600)
        key.write_text("the key of this measurement\n")
        station = stage.station(1)
        serve = [str(HOSTS), "probe-buffer", "serve", "--key-file", str(key)]
        stage.program(station, *serve).await_line("listening on")
        run = [str(HOSTS), "probe-buffer", "run", station.IP(), "--key-file", str(key), "--sizes", "1500", "--json"]
        stage.at(0.0, lambda: self._begin(stage, run))

    def _begin(self, stage: "Stage", run: list[str]) -> None:
        stage.program(stage.server, *run, take=lambda line: self._take(stage, line), may_end=True)

    def _take(self, stage: "Stage", line: str) -> None:
        if not line.startswith("{"):
            stage.problems.append(f"probe-buffer: {line.strip()}")
            return
        found = json.loads(line)
        if found["verdict"] == "buffer":
            stage.sample(stage.now(), "buffer_packets", found["packets"]["value"])
            stage.sample(stage.now(), "batch_packets", found["batches"][0]["packets"])
        stage.finish()


EXPERIMENT = Experiment(
    name="qos-buffer-probe",
    title="The buffers of access points, seen from outside",
    paper="004, section III, Table I, Fig. 1",
    question="How many packets does an access point hold, and how many does it take at once when it was full?",
    # The port's own queue must hold more than the gate lets in.
    scene=AccessPoint(LinkProfile("802.11g", 14_000_000, 14_000_000, down_limit=1000), SECONDS, (Estimate(),)),
    arms=tuple(
        Arm(name, label, "paper", {**PLAIN, "gate": {"1": {"buffer": round(buffer), "batch": batch}}})
        for name, label, buffer, batch in ACCESS_POINTS
    ),
    measures=(
        Measure("buffer", "packets", "buffer that was found", mean("buffer_packets"), "{:.1f}"),
        Measure("batch", "packets", "packets taken at once", mean("batch_packets"), "{:.0f}"),
    ),
    reported=(
        *(Reported("buffer", name, buffer, "Table I") for name, _, buffer, _ in ACCESS_POINTS),
        *(Reported("batch", name, batch, "section III: 16, 17, 12") for name, _, _, batch in ACCESS_POINTS),
    ),
    figures=(
        Bars("buffer", "Buffer; lines across: Table I.", ("buffer",), "packets"),
        Bars("batch", "Packets taken at once.", ("batch",), "packets"),
    ),
    repeats=10,
    quick=Quick(seconds=12),
    differences=(
        "the access points are the gate with the buffers of Table I, rounded to packets",
        "which access point took which batch the paper does not say; the three are dealt out here",
    ),
)  # fmt: skip
