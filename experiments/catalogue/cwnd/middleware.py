# SPDX-License-Identifier: Apache-2.0
"""The middleware of paper 002 on terminals: bounding windows, or observing only, which measures plain terminals by the
same means."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from accesspoint.experiments.scenes.contention import BANDWIDTH
from accesspoint.experiments.scenes.scene import HOSTS, require_hosts

if TYPE_CHECKING:
    from accesspoint.experiments.lab.stage import Stage

EXPONENT = -0.2  # of f(n): of -0.2, -0.3 and -0.4 what carried most with ten terminals at 256 ms


@dataclass(frozen=True)
class Middleware:
    """`hosts cwnd run` on stations 1 to `terminals`; those in `bounding` bound their windows, the others observe only.

    Samples, once a second and terminal that sends: `rtt_ratio`, the paper's, and `rtt_ms`, of source `sta1`...
    """

    terminals: int
    bounding: Sequence[int] = ()

    def prepare(self, stage: "Stage") -> None:
        require_hosts()
        key = stage.directory / "cell.key"
        key.touch(mode=0o600)
        key.write_text("the key of this cell\n")
        for number in range(1, self.terminals + 1):
            host = stage.station(number)
            interface = str(host.defaultIntf())
            command = [str(HOSTS), "cwnd", "run", "--interface", interface, "--key-file", str(key)]
            command += (
                ["--bandwidth", f"{BANDWIDTH:g}", f"--exponent={EXPONENT:g}"]
                if number in self.bounding
                else ["--observe"]
            )
            stage.program(host, *command)
            look = f"while sleep 1; do {HOSTS} cwnd status --interface {interface} --json; done"
            stage.program(host, "sh", "-c", look, take=partial(self._take, stage, host.name))

    def _take(self, stage: "Stage", name: str, line: str) -> None:
        if not line.startswith("{"):
            return  # not up yet
        status: dict[str, Any] = json.loads(line)
        for connection in status["connections"]:
            # iperf3's own connection beside the upload only controls, and its round trips are of another time.
            if connection["sending"] and connection["min_rtt_ms"] > 0:
                stage.sample(stage.now(), "rtt_ratio", connection["ratio"], source=name)
                stage.sample(stage.now(), "rtt_ms", connection["rtt_ms"], source=name)
