# SPDX-License-Identifier: Apache-2.0
"""The targets of the packet tests: how each is started, and how its port 4 is made slow.

All that tests must not know is here. A target that cannot do something says so in `cannot`: {test: reason}.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from topologies import bmv2, targets  # noqa: E402
from topologies.requirements import LabError  # noqa: E402

GRPC_ADDRESS = "127.0.0.1:9559"
THRIFT_PORT = 9090
SLOW_PORT = 4
SLOW_FRAMES = 5  # frames of 1000 bytes per second


class MissingTargetError(Exception):
    """The target is missing or will not do; the text names the mend."""


@dataclass(frozen=True)
class Target:
    """A switch that runs the program.

    links: its link model by port. slow_down: called after the pipeline is pushed.
    """

    name: str
    links: dict[int, str] = field(default_factory=dict)
    slow_down: Callable[[], None] = lambda: None
    cannot: dict[str, str] = field(default_factory=dict)

    def version(self) -> str:
        """Of a target that is there and will do. Raises MissingTargetError."""
        try:
            return targets.find(self.name).version()
        except LabError as error:
            raise MissingTargetError(error) from None

    def command(self, interfaces: dict[int, str], log: Path) -> list[str]:
        """The command line. interfaces: by port."""
        wiring = targets.Wiring(interfaces, GRPC_ADDRESS, THRIFT_PORT, log=log, links=self.links)
        return targets.TARGETS[self.name].command(wiring)


# BMv2 has no rate of a port, only of each of its queues, in packets.
TARGETS = {
    "apswitch": Target("apswitch", {SLOW_PORT: f"rate={SLOW_FRAMES * 1000 * 8}bit"}),
    "bmv2": Target("bmv2", slow_down=lambda: bmv2.set_pace(THRIFT_PORT, SLOW_PORT, SLOW_FRAMES)),
}
