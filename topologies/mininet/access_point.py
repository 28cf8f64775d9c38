# SPDX-License-Identifier: Apache-2.0
"""The access point for Mininet scripts of one's own: a switch class that brings its controller."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accesspoint.topologies.features import Features
from accesspoint.topologies.links.profiles import LinkProfile, link_profile, parse_rate
from accesspoint.topologies.mininet import controllers
from accesspoint.topologies.mininet.bmv2_switch import Bmv2Switch
from accesspoint.topologies.mininet.p4_switch import P4Switch
from accesspoint.topologies.namespaces.namespace import entered
from accesspoint.topologies.requirements import PIPELINE, LabError
from accesspoint.topologies.targets import Port


class WithController(P4Switch):
    """A switch of this project as the access point of a Mininet script: base of AccessPoint and Bmv2AccessPoint.

    It takes P4Switch's arguments, too; another program, given as `json`, runs without this project's controller and
    profile.

    Args:
        name: in Mininet; it ends in a number.
        profile: rates, delays and limits of the ports, or the name of a link profile. A link that has a `model` of its
            own (AccessPointLink) keeps that.
        uplink: the port that leads to the network, or the name of the node behind it; None: the last port.
        features: what it does beyond forwarding.
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
        rest_port: int = 0,
        program: Path | str | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        **params: Any,
    ) -> None:
        self.profile = link_profile(profile) if isinstance(profile, str) else profile
        self.features = features
        self.controller: controllers.RunningController | None = None
        self._uplink = uplink
        self._pipeline = PIPELINE if program is None else _compiled(Path(program))
        self._settings = settings
        super().__init__(name, **params)
        self._rest_port = self._claims.take(rest_port, f"{name}: rest_port") if rest_port else 0

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
        return super().model(port) or ({} if self.json else self._default(port))

    def start(self, controllers_: list[Any]) -> None:
        """Starts the switch, then its controller; packets flow when it returns. Mininet's controllers have no part in
        it. Raises LabError."""
        self.__dict__.pop("uplink", None)  # links may have come since
        super().start(controllers_)
        if self.json:
            return
        try:
            self.target.check(self.capacities, asdict(self.features))
            rest = f"127.0.0.1:{self._rest_port}"
            self.controller = controllers.start(self.directory, [self._entry()], rest, inside=self.inside)
            self.fit(self.capacities, self.features.ack_priority)
        except LabError:
            self.stop(deleteIntfs=False)
            raise

    def attach(self, intf: Any) -> None:
        super().attach(intf)
        self._change_ports()

    def detach(self, intf: Any) -> None:
        if self.controller and self.port_of(self.intf(intf)) == self.uplink:
            raise LabError(f"{self.name}: the uplink {self.intf(intf)} cannot be detached while the access point runs")
        super().detach(intf)
        self._change_ports()

    def connected(self) -> bool:
        """Return whether the controller, or the switch without one, runs, for Mininet's `waitConnected`."""
        return (self.process if self.json else self.controller) is not None

    def stop(self, deleteIntfs: bool = True) -> None:
        if self.controller:
            self.controller.stop()
            self.controller = None
        super().stop(deleteIntfs)

    def _entry(self) -> dict[str, Any]:
        return controllers.entry(self, self.capacities, self.features, self.uplink, self._pipeline, self._settings)

    def _change_ports(self) -> None:
        """Give the running controller the ports that there are. Raises LabError."""
        if not self.controller:
            return
        try:
            with entered(self.pid):
                controllers.change_ports(self.rest_url, self.rest_token, self.name, self._entry()["ports"])
        except OSError as error:
            raise LabError(f"{self.name}: the controller does not take the ports: {error}") from None

    def _default(self, port: int) -> dict[str, object]:
        return self.profile.up_model() if port == self.uplink else self.profile.down_model()

    def _rate(self, port: int, model: Mapping[str, object]) -> int:
        """bit/s; the profile's where a trace takes its place, or none is given."""
        usual = self.profile.up if port == self.uplink else self.profile.down
        return parse_rate(str(model.get("rate") or f"{usual}bit"))

    def _neighbour(self, port: int) -> str:
        end = self.other_end(self.wired[port])
        return str(end.node.name) if end else ""


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
