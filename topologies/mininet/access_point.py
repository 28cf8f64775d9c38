# SPDX-License-Identifier: Apache-2.0
"""The access point for Mininet scripts of one's own: a switch class that brings its controller."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accesspoint.topologies import requirements
from accesspoint.topologies.features import Features
from accesspoint.topologies.links.profiles import LinkProfile, link_profile, parse_rate
from accesspoint.topologies.links.veth import OFFLOADS
from accesspoint.topologies.mininet import controllers
from accesspoint.topologies.mininet.bmv2_switch import Bmv2Switch
from accesspoint.topologies.mininet.nodes import ApSwitch, PortClaims, run_prefix
from accesspoint.topologies.requirements import PIPELINE, LabError
from accesspoint.topologies.targets import Port

GRPC_PORT, THRIFT_PORT = 9559, 9090


class WithController(ApSwitch):
    """A switch of this project as the access point of a Mininet script: base of AccessPoint and Bmv2AccessPoint.

    Args:
        name: in Mininet; it ends in a number.
        profile: rates, delays and limits of the ports, or the name of a link profile. A link that has a `model` of its
            own (AccessPointLink) keeps that.
        uplink: the port that leads to the network, or the name of the node behind it; None: the last port.
        features: what it does beyond forwarding.
        directory: takes configuration and logs; None: a temporary one, which goes when the access point stops.
        rest_port: of REST and the live page; 0: any free port.
        program: a folder with `ap.json` and `ap.p4info.txtpb` that p4c made of a changed program; None: the project's.
        settings: more of the controller's configuration, as `{"ncr": {"alpha": 0.1}}`.
    """

    def __init__(
        self,
        name: str,
        profile: LinkProfile | str = "testbed",
        uplink: int | str | None = None,
        features: Features = Features(),
        directory: Path | str | None = None,
        rest_port: int = 0,
        program: Path | str | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        **params: Any,
    ) -> None:
        requirements.check_machine()
        self.target.require()
        self.profile = link_profile(profile) if isinstance(profile, str) else profile
        self.features = features
        self.controller: controllers.RunningController | None = None
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix=f"{name}-")
        self.directory = Path(directory or self._temporary.name)  # type: ignore[union-attr]
        self._claims = PortClaims()
        self._rest_port = self._claims.claim(rest_port) if rest_port else 0
        self._uplink = uplink
        self._pipeline = PIPELINE if program is None else _compiled(Path(program))
        self._settings = settings
        own: dict[str, Any] = {
            "prefix": run_prefix(),
            "directory": self.directory,
            "grpc": f"127.0.0.1:{self._claims.claim(GRPC_PORT)}",
            "thrift": self._claims.claim(THRIFT_PORT),
        }
        super().__init__(name, **own | params)

    @property
    def rest_url(self) -> str:
        """URL of REST and the live page; empty while the controller does not run."""
        return self.controller.url if self.controller else ""

    @property
    def rest_token(self) -> str:
        """An administrator's token for `rest_url`."""
        return self.controller.token if self.controller else ""

    @cached_property
    def uplink(self) -> int:
        """The uplink's port. Raises LabError when there is none of that number or name."""
        ports = {port: self._neighbour(port) for port in self.wired}
        for port, node in ports.items():
            if self._uplink in (port, node):
                return port
        if self._uplink is not None or len(ports) < 2:
            wanted = "two links at least" if self._uplink is None else f"a link to its uplink '{self._uplink}'"
            raise LabError(f"{self.name}: an access point needs {wanted}; it has {', '.join(ports.values()) or 'none'}")
        return max(ports)

    @property
    def capacities(self) -> dict[int, Port]:
        """Rates and limit of each port, by its link's model."""
        models = {port: self.model(port) for port in self.wired}
        rates = {port: self._rate(port, model) for port, model in models.items()}
        down = sum(rate for port, rate in rates.items() if port != self.uplink)
        return {
            port: Port(
                rates[port],
                down if port == self.uplink else rates[self.uplink],
                int(str(model.get("limit", self._default(port)["limit"]))),
            )
            for port, model in models.items()
        }

    def model(self, port: int) -> Mapping[str, object]:
        return getattr(self.wired[port].link, "model", None) or self._default(port)

    def start(self, controllers_: list[Any]) -> None:
        """Starts the switch, then its controller; packets flow when it returns. Mininet's controllers have no part in
        it. Raises LabError."""
        self.__dict__.pop("uplink", None)  # links may have come since
        self.directory.mkdir(parents=True, exist_ok=True)
        for port in self.wired:
            self._plain_packets(port)
        super().start(controllers_)
        entry = controllers.entry(self, self.capacities, self.features, self.uplink, self._pipeline, self._settings)
        try:
            self.target.check(self.capacities, asdict(self.features))
            self.controller = controllers.start(self.directory, [entry], f"127.0.0.1:{self._rest_port}")
            self.fit(self.capacities, self.features.ack_priority)
        except LabError:
            self.stop()
            raise

    def connected(self) -> bool:
        """Return whether the controller runs, for Mininet's `waitConnected`."""
        return self.controller is not None

    def stop(self, deleteIntfs: bool = True) -> None:
        if self.controller:
            self.controller.stop()
            self.controller = None
        super().stop(deleteIntfs)
        if self._temporary:
            self._temporary.cleanup()

    def _default(self, port: int) -> dict[str, object]:
        return self.profile.up_model() if port == self.uplink else self.profile.down_model()

    def _rate(self, port: int, model: Mapping[str, object]) -> int:
        """bit/s; the profile's where a trace takes its place, or none is given."""
        usual = self.profile.up if port == self.uplink else self.profile.down
        return parse_rate(str(model.get("rate") or f"{usual}bit"))

    def _other_end(self, port: int) -> Any:
        """The interface at the other end of a port's link; None where it is no wire."""
        link, intf = self.wired[port].link, self.wired[port]
        ends = (getattr(link, "intf1", None), getattr(link, "intf2", None))
        return next((end for end in ends if end is not None and end is not intf), None) if intf in ends else None

    def _neighbour(self, port: int) -> str:
        end = self._other_end(port)
        return str(end.node.name) if end else ""

    def _plain_packets(self, port: int) -> None:
        """Switch offloads off at the host: Mininet's hosts leave checksums and segments to their interfaces, and a
        veth does neither."""
        end = self._other_end(port)
        if end and not isinstance(end.node, ApSwitch):
            end.node.pexec(["ethtool", "-K", end.name, *OFFLOADS])


class AccessPoint(WithController):
    """`net.addSwitch("ap1", cls=AccessPoint)`: `apswitch` as a Mininet switch, and the controller of its program.

    Its ports keep rates and delays by themselves: use plain links, or AccessPointLink for one with a model of its own,
    and no TCLink.
    """


class Bmv2AccessPoint(WithController, Bmv2Switch):
    """AccessPoint on BMv2's `simple_switch_grpc`."""


def _compiled(directory: Path) -> dict[str, Path]:
    found = {name: directory / path.name for name, path in PIPELINE.items()}
    for path in found.values():
        if not path.is_file():
            raise LabError(f"{path} is missing: compile the program with `tools/goldens.sh compile {directory}`")
    return found
