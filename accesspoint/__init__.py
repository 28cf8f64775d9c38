# SPDX-License-Identifier: Apache-2.0
"""The programmable access point as a library.

    from accesspoint import AccessPoint
    ap1 = net.addSwitch("ap1", cls=AccessPoint, uplink="server")

In Mininet: P4Switch, AccessPoint, Bmv2AccessPoint, AccessPointTopo, AccessPointLink, EndHost, Bridge, Features, PLAIN;
on Mininet-WiFi `accesspoint.wifi.P4AP`. Links: LinkProfile, PROFILES, link_profile. A whole lab that leaves nothing
behind: `contained(main)` with a Lab in it. The controller's REST API: Client, ApiError. Experiments:
`accesspoint.experiment`.

The rooms of the checkout are its subpackages, by symbolic links: accesspoint.controller, accesspoint.topologies,
accesspoint.experiments, accesspoint.checks. Nothing else is importable, so modules of any name can lie beside a script.

Names are imported when they are used: the Mininet classes need nothing but Mininet, so they also work in the
system's Python, where `mn` runs. Debian's Mininet is found from a virtual environment, too: import it from here
(`Mininet`), or after this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mininet.net import Mininet

    from accesspoint.controller.client import ApiError, Client
    from accesspoint.topologies.features import PLAIN, Features
    from accesspoint.topologies.links.profiles import PROFILES, LinkProfile, ProfileError, link_profile
    from accesspoint.topologies.mininet.access_point import AccessPoint, Bmv2AccessPoint
    from accesspoint.topologies.mininet.network import AccessPointTopo, Lab
    from accesspoint.topologies.mininet.nodes import ApLink as AccessPointLink
    from accesspoint.topologies.mininet.nodes import Bridge, EndHost
    from accesspoint.topologies.mininet.p4_switch import P4Switch
    from accesspoint.topologies.namespaces.contain import run as contained
    from accesspoint.topologies.requirements import LabError

__version__ = "0.3.0"

__all__ = [
    "PLAIN",
    "PROFILES",
    "AccessPoint",
    "AccessPointLink",
    "AccessPointTopo",
    "ApiError",
    "Bmv2AccessPoint",
    "Bridge",
    "Client",
    "EndHost",
    "Features",
    "Lab",
    "LabError",
    "LinkProfile",
    "Mininet",
    "P4Switch",
    "ProfileError",
    "contained",
    "link_profile",
]

_PLACES = {
    "AccessPoint": "accesspoint.topologies.mininet.access_point",
    "AccessPointLink": "accesspoint.topologies.mininet.nodes:ApLink",
    "AccessPointTopo": "accesspoint.topologies.mininet.network",
    "ApiError": "accesspoint.controller.client",
    "Bmv2AccessPoint": "accesspoint.topologies.mininet.access_point",
    "Bridge": "accesspoint.topologies.mininet.nodes",
    "Client": "accesspoint.controller.client",
    "Mininet": "accesspoint.topologies.mininet.network",
    "EndHost": "accesspoint.topologies.mininet.nodes",
    "Features": "accesspoint.topologies.features",
    "Lab": "accesspoint.topologies.mininet.network",
    "LabError": "accesspoint.topologies.requirements",
    "LinkProfile": "accesspoint.topologies.links.profiles",
    "P4Switch": "accesspoint.topologies.mininet.p4_switch",
    "PLAIN": "accesspoint.topologies.features",
    "PROFILES": "accesspoint.topologies.links.profiles",
    "ProfileError": "accesspoint.topologies.links.profiles",
    "contained": "accesspoint.topologies.namespaces.contain:run",
    "link_profile": "accesspoint.topologies.links.profiles",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'accesspoint' has no attribute '{name}'")
    module, _, own = _PLACES[name].partition(":")
    value = getattr(importlib.import_module(module), own or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
