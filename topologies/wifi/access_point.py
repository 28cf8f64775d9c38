# SPDX-License-Identifier: Apache-2.0
"""The access point for Mininet-WiFi scripts of one's own."""

import json as json_
import re
import subprocess
from pathlib import Path
from typing import Any

from mininet.log import warn

from accesspoint.topologies.links.profiles import LinkProfile, link_profile
from accesspoint.topologies.mininet.access_point import WithController
from accesspoint.topologies.wifi.nodes import LabAP

PIPECONF = "org.onosproject.pipelines.basic"
IGNORED = {"adminstate", "debugger", "dryrun", "elogger", "gnmi", "inband", "notifications", "portcfg", "stratum"}
IGNORED |= {"thriftport", "timeout", "valgrind"}
"""Arguments of Mininet-WiFi's P4AP that say nothing to `apswitch`."""


class P4AP(WithController, LabAP):
    """`net.addAccessPoint("ap1", cls=P4AP)`: hostapd runs its radio, `apswitch` the program, and it brings its
    controller.

    Port 1 is the radio with all of its stations, the others are its wires in the order of their links; the last one is
    the uplink unless `uplink` says otherwise. The radio must carry more than the profile's rates: the queue stands in
    the switch. Further arguments are those of AccessPoint, and those that Mininet-WiFi has for its access points.

    With `json`, another program runs, without controller and profile, as on Mininet-WiFi's own P4AP, whose arguments
    are taken: `switch_config`, `grpcport`, `cpuport`, `loglevel`, `pktdump`, `netcfg`, `pipeconf`, `onosdevid`. Those
    that have no effect here are named.

    Args:
        isolated: False: the program passes frames on between the stations of this radio.
        netcfg: write `netcfg.json` for ONOS to the directory; nobody sends it.
    """

    any_words = True  # those of hostapd and Mininet-WiFi have no list

    def __init__(
        self,
        name: str,
        profile: LinkProfile | str = "testbed",
        isolated: bool = True,
        json: Path | str | None = None,
        grpcport: int | None = None,
        loglevel: str | None = None,
        pktdump: bool | str = False,
        netcfg: bool | str = False,
        cpuport: int = 255,
        pipeconf: str = PIPECONF,
        onosdevid: str | None = None,
        **params: Any,
    ) -> None:
        profile = link_profile(profile) if isinstance(profile, str) else profile
        self.isolated = isolated
        self.netcfg = _is_true(netcfg)
        self._pipeconf = pipeconf
        self._onos_device = onosdevid or f"device:bmv2:{name}"
        if ignored := [word for word in sorted(IGNORED) if params.pop(word, None) not in (None, False, "")]:
            warn(f"*** {name}: without effect on apswitch: {', '.join(ignored)}\n")
        own: dict[str, Any] = {"grpc_port": grpcport, "log_level": loglevel}
        own |= {"pcap": Path.cwd()} if _is_true(pktdump) else {}
        if json:
            number = re.search(r"\d+", name)
            own |= {"json": json, "cpu_port": cpuport, "device_id": int(number[0]) if number else 1}
        super().__init__(name, profile, radio={} if json else profile.down_model(), **own | params)

    def start(self, controllers: list[Any]) -> None:
        super().start(controllers)
        if self.netcfg:
            (self.directory / "netcfg.json").write_text(json_.dumps(self.onos_configuration(), indent=2) + "\n")

    def onos_configuration(self) -> dict[str, Any]:
        """Return what ONOS' network configuration has to say of this switch."""
        address = f"grpc://{self.grpc}?device_id={self.device_id}"
        basic = {"managementAddress": address, "driver": "bmv2", "pipeconf": self._pipeconf}
        one = {"enabled": True, "removed": False, "type": "copper", "speed": 10000}
        ports = {str(port): {"number": port, "name": intf.name, **one} for port, intf in self.wired.items()}
        return {"devices": {self._onos_device: {"basic": basic, "ports": ports}}}

    def deleteIntfs(self, checkName: bool = True) -> None:
        """Delete the wires' interfaces; Mininet-WiFi removes the radio."""
        for port, intf in self.wired.items():
            if port != 1:
                subprocess.run(["ip", "link", "delete", intf.name], check=False, capture_output=True)


def _is_true(value: bool | str) -> bool:
    """Return a flag as Mininet-WiFi takes it, which may come from `mn`."""
    return value in ("1", 1, "true", "True")
