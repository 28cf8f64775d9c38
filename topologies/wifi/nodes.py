# SPDX-License-Identifier: Apache-2.0
"""Mininet-WiFi classes: stations with plain packets, and access points whose radio is a port of the switch."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mn_wifi.node import AP, Station

from accesspoint.topologies.mininet.bmv2_switch import Bmv2Switch
from accesspoint.topologies.mininet.nodes import ApSwitch, EndHost
from accesspoint.topologies.namespaces.contain import stop_process
from accesspoint.topologies.processes import run
from accesspoint.topologies.targets import Wiring

NETWORK = """network={{
    ssid="{radio.ssid}"
    psk="{radio.passwd}"
    key_mgmt=WPA-PSK
    proto=RSN
    pairwise=CCMP
    bssid={radio.mac}
    scan_freq={frequency}
}}
"""  # wpa_supplicant.conf(5); the one channel, so that no station scans all of them first


class _OnRadio:
    """Radio of a station or access point. mac80211_hwsim counts the frames that its full queue dropped."""

    wintfs: dict[int, Any]
    pexec: Any

    def radio_drops(self) -> int:
        name = self.wintfs[0].name
        driver = re.search(r"d_tx_dropped: (\d+)", self.pexec("ethtool", "-S", name)[0])
        above = re.findall(r"dropped (\d+)", self.pexec("tc", "-s", "qdisc", "show", "dev", name, "root")[0])
        return sum(map(int, above)) + (int(driver[1]) if driver else 0)


class WifiStation(_OnRadio, EndHost, Station):
    """A station, with the addresses, the congestion control and the ECN setting of any end host."""

    _supplicant: "subprocess.Popen[bytes] | None" = None

    def access_point(self) -> str:
        """The MAC address of the access point that lets it in: it is associated, and has the keys where there are any.
        Or an empty string."""
        said = self.run("iw", "dev", str(self.defaultIntf()), "station", "dump")
        return said.split()[1] if re.search(r"authorized:\s+yes", said) else ""

    @property
    def tries_again(self) -> bool:
        """Return whether the station repeats a failed association by itself."""
        return self._supplicant is not None

    def connect(self, radio: Any) -> None:
        """Leaves its access point for that of another radio, on the channel that this one is known to have."""
        interface, frequency = str(self.defaultIntf()), str(radio.format_freq())
        self.pexec("iw", "dev", interface, "disconnect")
        if radio.passwd:
            self._authenticate(interface, NETWORK.format(radio=radio, frequency=frequency))
        else:
            self.pexec("iw", "dev", interface, "connect", radio.ssid, frequency, radio.mac)
        self.wintfs[0].setConnected(radio)

    def _authenticate(self, interface: str, network: str) -> None:
        """Authenticate by a wpa_supplicant for this network alone, in place of an earlier one's."""
        if self._supplicant:
            stop_process(self._supplicant)
        # The user-mode kernel has no /dev/stdin.
        command = ["wpa_supplicant", "-qq", "-D", "nl80211", "-i", interface, "-c", "/proc/self/fd/0"]
        self._supplicant = self.popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert self._supplicant and self._supplicant.stdin
        with self._supplicant.stdin as file:
            file.write(network.encode())


class Radio:
    """Stands for the link of an access point's radio. `model`: what the switch's port does to packets that leave."""

    def __init__(self, model: dict[str, object]) -> None:
        self.model = model


class _AccessPoint(_OnRadio, ApSwitch):
    """An access point: hostapd runs its radio, a switch the program. The radio is port 1, the uplink port 2.

    The radio's interface gives and takes Ethernet frames. hostapd's `ap_isolate` keeps mac80211 from passing frames on
    between stations by itself: all go through the program. Where the stations are `isolated`, that sends none back
    through the port that it came from.

    `radio` is the model of the radio's port, as {"rate": "14000000bit", "limit": 100, "delay": "2ms"}.
    """

    radios = frozenset({1})

    def __init__(self, name: str, radio: dict[str, object], **params: Any) -> None:
        # Attributes that Mininet-WiFi's nodes have in addition to Mininet's.
        self.wintfs: dict[int, Any] = {}
        self.wports: dict[Any, int] = {}
        self._radio = Radio(radio)
        super().__init__(name, **params | {"client_isolation": True})

    @property
    def wired(self) -> dict[int, Any]:
        """Interfaces by port. Mininet-WiFi lists a radio under several numbers."""
        radio = self.wintfs[0]
        radio.link = self._radio
        others = [intf for _, intf in sorted(self.intfs.items()) if intf.name not in ("lo", radio.name)]
        return dict(enumerate([radio, *others], start=1))

    def model(self, port: int) -> Mapping[str, object]:
        # Words of a radio are Mininet-WiFi's.
        return self._radio.model if port in self.radios else super().model(port)

    def start(self, controllers: list[Any]) -> None:
        # Mininet-WiFi's own rate and delay of the radio: here they are the port's.
        run("tc", "qdisc", "replace", "dev", self.wintfs[0].name, "root", "pfifo")
        super().start(controllers)

    def deleteIntfs(self, checkName: bool = True) -> None:
        """Do nothing: interfaces go with the lab's network namespace."""


class LabAP(_AccessPoint, AP):
    """A lab's access point with `apswitch`."""


class Bmv2LabAP(_AccessPoint, Bmv2Switch, AP):
    """A lab's access point with BMv2. A radio cannot leave its namespace, as other interfaces do for their wires: its
    wire is in this one."""

    def wiring(self) -> Wiring:
        wiring = super().wiring()
        return replace(wiring, interfaces={**wiring.interfaces, 1: f"{self.name}-port"})

    def put_wire(self, port: int, interface: str, model: Mapping[str, object]) -> None:
        if port in self.radios:
            self._wires.put_behind(interface, f"{self.name}-port", model)
        else:
            super().put_wire(port, interface, model)


ACCESS_POINTS = {"apswitch": LabAP, "bmv2": Bmv2LabAP}
