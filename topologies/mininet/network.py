# SPDX-License-Identifier: Apache-2.0
"""A lab: one access point, its stations, a server behind the uplink, and the controller. Everything that a lab starts
ends with `stop`; run it inside `contain.run`, and it ends with the process too."""

import contextlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo

from accesspoint.topologies import targets
from accesspoint.topologies.features import Features
from accesspoint.topologies.links import addresses
from accesspoint.topologies.links.profiles import LinkProfile, link_profile
from accesspoint.topologies.mininet import controllers
from accesspoint.topologies.mininet.access_point import AccessPoint, WithController
from accesspoint.topologies.mininet.bmv2_switch import Bmv2Switch
from accesspoint.topologies.mininet.nodes import Air, ApLink, ApSwitch, EndHost, PortClaims, run_prefix
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.requirements import LabError
from accesspoint.topologies.targets import Port

SERVER = "server"
ACCESS_POINT = "ap1"
AIR = "air"
MAX_STATIONS = 200
GRPC_PORT, THRIFT_PORT = 9559, 9090
SWITCHES: dict[str, type[ApSwitch]] = {"apswitch": ApSwitch, "bmv2": Bmv2Switch}
NICENESS = -10


class AccessPointTopo(Topo):
    """Stations `sta1`... on ports 1 to n of `ap1`, or all on port 1 where the profile is `shared`; the `server` on the
    next one, its uplink. Half of the base round trip is spent on each side's way out of the access point.

    profile: the links, or their name. host: parameters of every host (accesspoint.topologies.mininet.nodes.EndHost), as
    {"cc": "bbr"}.
    switch: of the access point; without `cls` it is an AccessPoint, which brings its own controller.
    """

    def build(
        self,
        stations: int = 1,
        profile: LinkProfile | str = "testbed",
        host: Mapping[str, Any] = MappingProxyType({}),
        switch: Mapping[str, Any] = MappingProxyType({}),
        **_: Any,
    ) -> None:
        profile = link_profile(profile) if isinstance(profile, str) else profile
        cls = switch.get("cls", AccessPoint)
        own = {"profile": profile} if issubclass(cls, WithController) else {}
        self.addSwitch(ACCESS_POINT, **{"cls": cls, **own, **switch})
        if profile.shared:
            self.addHost(AIR, cls=Air, ip=None)
            self.addLink(AIR, ACCESS_POINT, port1=0, port2=1, cls=ApLink, model=profile.down_model())
        for number in range(1, stations + 1):
            name = f"sta{number}"
            self.addHost(name, cls=EndHost, **addresses.of_station(number), **host)
            if profile.shared:
                self.addLink(name, AIR, port1=0, port2=number, cls=ApLink)
            else:
                self.addLink(name, ACCESS_POINT, port1=0, port2=number, cls=ApLink, model=profile.down_model())
        self.addHost(SERVER, cls=EndHost, **addresses.of_server(), **host)
        uplink = 2 if profile.shared else stations + 1
        self.addLink(SERVER, ACCESS_POINT, port1=0, port2=uplink, cls=ApLink, model=profile.up_model())


class Lab:
    """A running lab, as a context manager.

    profile: the links. stations: how many. features: what the access point does. cc, ecn: TCP of every host.
    directory: takes configuration, logs and, with `stats`, the controller's statistics (CSV).
    rest_port: where REST should answer; another port is taken when that one is in use. target: the switch, by name.
    settings: more of each access point's configuration (accesspoint.controller.config), as {"ncr": {"alpha": 0.1}}.
    seed: of the switch's random numbers; None: another one each time. capacity: what the controller is told that links
    carry; None: the profile's rates.
    """

    def __init__(
        self,
        profile: LinkProfile,
        directory: Path,
        stations: int = 1,
        features: Features = Features(),
        cc: str = "cubic",
        ecn: bool = True,
        rest_port: int = 0,
        stats: bool = False,
        target: str = targets.DEFAULT,
        settings: Mapping[str, Any] = MappingProxyType({}),
        seed: int | None = None,
        capacity: Literal["auto"] | None = None,
    ) -> None:
        if not 1 <= stations <= MAX_STATIONS:
            raise LabError(f"{stations} stations are not possible: give 1 to {MAX_STATIONS}")
        self.target = targets.find(target)
        self.ports = self.switch_ports(profile, stations)
        self.target.check(self.ports, asdict(features))
        self.profile = profile
        self.features = features
        self.directory = directory
        self.stats = directory / "controller.csv" if stats else None
        self.rest_url = ""
        self.rest_token = ""
        self.controller: subprocess.Popen[bytes] | None = None
        self._settings = settings
        self._seed = seed
        self._capacity = capacity
        self._host = {"cc": cc, "ecn": ecn}
        self._stations = stations
        self._rest_port = rest_port
        self._ports = PortClaims()
        self.net: Any = None

    @staticmethod
    def switch_ports(profile: LinkProfile, stations: int) -> dict[int, Port]:
        """Return an access point's ports in a lab with these links. The last one is the uplink."""
        sharing = 1 if profile.shared else stations
        ports = {number: Port(profile.down, profile.up, profile.down_limit) for number in range(1, sharing + 1)}
        return ports | {sharing + 1: Port(profile.up, profile.down * sharing, profile.up_limit)}

    def __enter__(self) -> "Lab":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def server(self) -> EndHost:
        return self.net[SERVER]

    @property
    def access_point(self) -> ApSwitch:
        return self.net[ACCESS_POINT]

    @property
    def access_points(self) -> list[ApSwitch]:
        return [self.access_point]

    @property
    def stations(self) -> list[EndHost]:
        return [self.net[f"sta{number}"] for number in range(1, self._stations + 1)]

    def walk(self, way: float) -> None:
        """Puts the first station on the way from the first access point (0) to the last (1). Raises LabError."""
        raise LabError("stations walk on radios only: give LAB=mininet-wifi")

    def associations(self) -> dict[str, str]:
        """Station -> the access point that it is behind; an empty string for none."""
        return {station.name: ACCESS_POINT for station in self.stations}

    def radio_drops(self) -> dict[str, int]:
        """Host or access point -> frames that its radio threw away, since it could not send them in time."""
        return {}

    def start(self) -> None:
        """Brings everything up: afterwards packets flow as the features say. Raises LabError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        setLogLevel("warning")
        # A lab keeps time: it and all that it starts go before other work on the machine, where that is permitted.
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
        Mininet.inited = True  # its init raises limits and sysctls of the whole machine, which a lab leaves alone
        self.net = self._network()
        self.net.build()
        setLogLevel("output")  # what the prompt's commands print
        self.net.start()
        self._take_up()

    def _take_up(self) -> None:
        """Makes the access points, which run by now, do what the features say."""
        self._start_controller()
        for access_point in self.access_points:
            access_point.fit(self.ports, self.features.ack_priority)

    def _network(self) -> Mininet:
        """The network, not yet built."""
        topo = AccessPointTopo(profile=self.profile, stations=self._stations, host=self._host, switch=self._switch())
        return Mininet(topo=topo, controller=None, link=ApLink, build=False)

    def _switch(self) -> dict[str, Any]:
        """The parameters of one more access point."""
        return {
            "cls": SWITCHES[self.target.name],
            "prefix": run_prefix(),
            "directory": self.directory,
            "grpc": f"127.0.0.1:{self._ports.claim(GRPC_PORT)}",
            "thrift": self._ports.claim(THRIFT_PORT),
            "seed": self._seed,
        }

    def stop(self) -> None:
        """Takes everything down again; also after a failed start, and more than once."""
        if self.controller:
            stop_process(self.controller)
            self.controller = None
        if self.net:
            # Not Mininet.stop: it types its commands into the hosts' shells, which may be busy or dead by now.
            net, self.net = self.net, None
            for switch in net.switches:
                switch.stop()
            for node in net.hosts + net.switches:
                node.terminate()
        self._ports.release()

    def controller_config(self) -> list[dict[str, Any]]:
        """Return the access points' part of the controller's configuration."""
        return [
            controllers.entry(access_point, self.ports, self.features, settings=self._settings, capacity=self._capacity)
            for access_point in self.access_points
        ]

    def require_running(self) -> None:
        """Raises LabError when a switch or the controller has ended."""
        processes: dict[str, Any] = {f"switch of {ap.name}": ap.process for ap in self.access_points}
        for name, process in {**processes, "controller": self.controller}.items():
            if process.poll() is not None:
                raise LabError(f"the {name} ended in the middle of the run: see its log in {self.directory}")

    def _start_controller(self) -> None:
        rest = f"127.0.0.1:{self._ports.claim(self._rest_port) if self._rest_port else 0}"
        running = controllers.start(self.directory, self.controller_config(), rest, self.stats)
        self.controller, self.rest_url, self.rest_token = running.process, running.url, running.token
