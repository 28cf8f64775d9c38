# SPDX-License-Identifier: Apache-2.0
"""Wireless labs: access points with real radios, stations that may walk from one to the next, a server behind them."""

import contextlib
import os
import shlex
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from mininet.net import Mininet
from mn_wifi.link import WirelessLink, wmediumd
from mn_wifi.mobility import Mobility
from mn_wifi.module import Mac80211Hwsim
from mn_wifi.net import Mininet_wifi
from mn_wifi.wmediumdConnector import interference, w_server, wmediumd_mode

from accesspoint.topologies.links import addresses
from accesspoint.topologies.links.profiles import LinkProfile
from accesspoint.topologies.mininet.network import SERVER, Lab
from accesspoint.topologies.mininet.nodes import ApLink, ApSwitch, Bridge, EndHost
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.requirements import LabError
from accesspoint.topologies.targets import Port
from accesspoint.topologies.wifi.nodes import ACCESS_POINTS, WifiStation

SSID = "lab"
PASSPHRASE = "a key that all share"  # without quotes: Mininet-WiFi gives it to hostapd by way of a shell
AIRS = ("plain", "wmediumd")
CHANNELS = ("1", "6", "11")  # of 2.4 GHz, without overlap
DISTANCE = 80.0  # m between two access points
RANGE = 60  # m: halfway a station hears both
MAX_STATIONS = 64
ASSOCIATION_TIMEOUT, ASSOCIATION_RETRY = 20.0, 1.0  # s
RADIOS_TIMEOUT = 5.0  # s: those of an ended namespace go a little later
RADIOS = Path("/sys/kernel/debug/ieee80211")


class WifiLab(Lab):
    """A running wireless lab: `Lab` on radios.

    An access point's radio is its port 1, shared by its stations, the uplink port 2; each has the link profile's rate,
    and the radios carry more. The lab, its radios included, is in a network namespace of its own and ends with it.

    access_points: how many; more than one for a station to walk between. places: the number of the access point that
    each station begins at; none: all at the first. air: `plain` (every frame arrives) or
    `wmediumd` (frames take airtime and get lost with the distance). wpa2: whether stations have a key (WPA2-PSK, CCMP).
    """

    def __init__(
        self,
        *args: Any,
        access_points: int = 1,
        places: tuple[int, ...] = (),
        air: str = "plain",
        wpa2: bool = False,
        **named: Any,
    ) -> None:
        super().__init__(*args, **named)
        if not 1 <= access_points <= len(CHANNELS):
            raise LabError(f"{access_points} access points are not possible: give 1 to {len(CHANNELS)}")
        if self._stations > MAX_STATIONS:
            raise LabError(f"{self._stations} stations are not possible on radios: give 1 to {MAX_STATIONS}")
        if air not in AIRS:
            raise LabError(f"air '{air}' is unknown: choose one of {', '.join(AIRS)}")
        if places and (len(places) != self._stations or not all(1 <= place <= access_points for place in places)):
            raise LabError(f"places {places} are not possible: give each of {self._stations} stations an access point")
        self._access_points = access_points
        self._places = places or (1,) * self._stations
        self._air = air
        self._security = {"encrypt": "wpa2", "passwd": PASSPHRASE} if wpa2 else {}
        self._looked = 0.0  # s: when a walk last looked at the association

    @staticmethod
    def switch_ports(profile: LinkProfile, stations: int) -> dict[int, Port]:
        """Return two ports for any number of stations: the radio and the uplink."""
        return {
            1: Port(profile.down, profile.up, profile.down_limit),
            2: Port(profile.up, profile.down, profile.up_limit),
        }

    def start(self) -> None:
        super().start()
        self._await_associations()

    @property
    def stations(self) -> list[WifiStation]:
        return list(self.net.stations)

    @property
    def access_points(self) -> list[ApSwitch]:
        return list(self.net.aps)

    def walk(self, way: float) -> None:
        x = way * DISTANCE * (self._access_points - 1)
        station = self.stations[0]
        station.setPosition(f"{x:.1f},0,0")
        if time.monotonic() > self._looked + ASSOCIATION_RETRY:
            self._looked = time.monotonic()
            self._ask_again(station)

    def associations(self) -> dict[str, str]:
        names = {ap.wintfs[0].mac: ap.name for ap in self.net.aps}
        return {station.name: names.get(station.access_point(), "") for station in self.stations}

    def radio_drops(self) -> dict[str, int]:
        return {node.name: node.radio_drops() for node in [*self.net.aps, *self.net.stations]}

    def stop(self) -> None:
        net = self.net
        if net:
            for access_point in net.aps:
                access_point.stop()
        super().stop()
        if net:
            for node in [*net.stations, *net.aps]:
                _remove_radios(node)
                node.terminate()
            _end_daemons()

    def _await_associations(self) -> None:
        deadline = time.monotonic() + ASSOCIATION_TIMEOUT
        while alone := [station for station in self.stations if not station.access_point()]:
            if time.monotonic() > deadline:
                names = ", ".join(station.name for station in alone)
                raise LabError(f"{names} did not associate within {ASSOCIATION_TIMEOUT:.0f} s")
            time.sleep(ASSOCIATION_RETRY)
            for station in alone:
                self._ask_again(station)

    def _ask_again(self, station: WifiStation) -> None:
        """Repeat an association that failed: the kernel asks an access point three times within a second, and no
        more."""
        wanted = station.wintfs[0].associatedTo
        if not station.access_point() and not station.tries_again:
            station.connect(wanted or self.net.aps[0].wintfs[0])

    def _network(self) -> Mininet:
        contain.own_network()
        _forget_earlier_networks()
        medium: dict[str, Any] = {"link": WirelessLink}
        if self._air == "wmediumd":
            medium = {"link": wmediumd, "wmediumd_mode": interference}
        # Kept at once: what a failed start leaves behind has to be ended too.
        net = self.net = Mininet_wifi(controller=None, ssid=SSID, mode="g", ac_method="ssf", **medium)
        for number in range(self._access_points):
            place = f"{number * DISTANCE},10,0"
            where = {"channel": CHANNELS[number], "position": place, "range": RANGE}
            net.addAccessPoint(
                f"ap{number + 1}",
                **self._switch() | {"cls": ACCESS_POINTS[self.target.name]},
                radio=self.profile.down_model(),
                **where,
                **self._security,
            )
        for number in range(1, self._stations + 1):
            x = (self._places[number - 1] - 1) * DISTANCE
            where = {"position": f"{x},{-number},0", "range": RANGE, "ip6": None}
            net.addStation(f"sta{number}", cls=WifiStation, **addresses.of_station(number), **self._host, **where)
        server = net.addHost(SERVER, cls=EndHost, **addresses.of_server(), **self._host)
        # Mininet-WiFi writes configurations to where it stands, hostapd's to where the access point's shell does, and
        # that one began in a folder that may be read-only (accesspoint.topologies.kernels.kernel).
        for access_point in net.aps:
            access_point.cmd("cd", shlex.quote(str(self.directory.resolve())))
        with contextlib.chdir(self.directory):
            net.configureNodes()
        for station in net.stations:
            # Mininet-WiFi sets rate and delay of an interface by distance; here they are the link profile's. And its
            # way to connect has the kernel look at every channel of every band first, for seconds.
            station.wintfs[0].config_tc = lambda **_: None
            station.wintfs[0].iwconfig_connect = station.wintfs[0].wpa = station.connect
        behind = server
        if self._access_points > 1:
            behind = net.addSwitch("backbone", cls=Bridge, dpid="b")
            net.addLink(server, behind, cls=ApLink)
        for access_point in net.aps:
            net.addLink(access_point, behind, cls=ApLink, model=self.profile.up_model())
        return net


def _remove_radios(node: Any) -> None:
    """Remove the radios in the node's namespace. A namespace, and a radio in it, may last until its last connection
    gives up."""
    words = str(node.pexec("iw", "phy")[0]).split()
    for name in (after for before, after in pairwise(words) if before == "Wiphy"):
        node.pexec("hwsim_mgmt", "-x", name)


def _end_daemons() -> None:
    """Ends the hostapd and wmediumd of this network namespace, which run on their own."""
    w_server.disconnect()
    own = os.stat("/proc/self/ns/net").st_ino
    for process in Path("/proc").glob("[0-9]*"):
        # Processes come and go while we look.
        with contextlib.suppress(OSError):
            daemon = (process / "comm").read_text().strip() in ("hostapd", "wmediumd")
            if daemon and os.stat(process / "ns/net").st_ino == own:
                os.kill(int(process.name), signal.SIGKILL)


def _forget_earlier_networks() -> None:
    """Mininet-WiFi keeps the network of a process in class attributes. Raises LabError when radios of another one are
    there: it recognises its own by the process id, which two labs may share."""
    Mac80211Hwsim.reset()
    Mobility.aps, Mobility.stations, Mobility.mobileNodes, Mobility.ac = [], [], [], None
    wmediumd_mode.set_mode(0)
    deadline = time.monotonic() + RADIOS_TIMEOUT
    while radios := [path.name for path in RADIOS.glob("mn*")]:
        if time.monotonic() > deadline:
            raise LabError(f"another Mininet-WiFi network has radios ({', '.join(radios)}): end it")
        time.sleep(0.05)
