# SPDX-License-Identifier: Apache-2.0
"""The access point for Mininet-WiFi scripts of one's own."""

import subprocess
from typing import Any

from accesspoint.topologies.links.profiles import LinkProfile, link_profile
from accesspoint.topologies.mininet.access_point import WithController
from accesspoint.topologies.wifi.nodes import LabAP


class P4AP(WithController, LabAP):
    """`net.addAccessPoint("ap1", cls=P4AP)`: hostapd runs its radio, `apswitch` the program, and it brings its
    controller.

    Port 1 is the radio with all of its stations, the others are its wires in the order of their links; the last one is
    the uplink unless `uplink` says otherwise. The radio must carry more than the profile's rates: the queue stands in
    the switch. Further arguments are those of AccessPoint, and those that Mininet-WiFi has for its access points.
    """

    def __init__(self, name: str, profile: LinkProfile | str = "testbed", **params: Any) -> None:
        profile = link_profile(profile) if isinstance(profile, str) else profile
        super().__init__(name, profile, radio=profile.down_model(), **params)

    def deleteIntfs(self, checkName: bool = True) -> None:
        """Delete the wires' interfaces; Mininet-WiFi removes the radio."""
        for port, intf in self.wired.items():
            if port != 1:
                subprocess.run(["ip", "link", "delete", intf.name], check=False, capture_output=True)
