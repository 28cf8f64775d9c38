# SPDX-License-Identifier: Apache-2.0
"""The programmable access point as a library.

    from accesspoint import AccessPoint
    ap1 = net.addSwitch("ap1", cls=AccessPoint, uplink="server")

In Mininet: AccessPoint, Bmv2AccessPoint, AccessPointTopo, AccessPointLink, EndHost, Bridge, Features, PLAIN; on
Mininet-WiFi `accesspoint.wifi.P4AP`. Links: LinkProfile, PROFILES, link_profile. A whole lab that leaves nothing
behind: `contained(main)` with a Lab in it. The controller's REST API: Client, ApiError. Experiments:
`accesspoint.experiment`.

Names are imported when they are used: the Mininet classes need nothing beside Mininet, so they also work in the
system's Python, where `mn` runs. Debian's Mininet is found from a virtual environment, too: import it from here
(`Mininet`), or after this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._rooms import make_importable

make_importable()

if TYPE_CHECKING:
    from mininet.net import Mininet

    from controller.client import ApiError, Client
    from topologies.features import PLAIN, Features
    from topologies.links.profiles import PROFILES, LinkProfile, ProfileError, link_profile
    from topologies.mininet.access_point import AccessPoint, Bmv2AccessPoint
    from topologies.mininet.network import AccessPointTopo, Lab
    from topologies.mininet.nodes import ApLink as AccessPointLink
    from topologies.mininet.nodes import Bridge, EndHost
    from topologies.namespaces.contain import run as contained
    from topologies.requirements import LabError

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
    "ProfileError",
    "contained",
    "link_profile",
]

_PLACES = {
    "AccessPoint": "topologies.mininet.access_point",
    "AccessPointLink": "topologies.mininet.nodes:ApLink",
    "AccessPointTopo": "topologies.mininet.network",
    "ApiError": "controller.client",
    "Bmv2AccessPoint": "topologies.mininet.access_point",
    "Bridge": "topologies.mininet.nodes",
    "Client": "controller.client",
    "Mininet": "topologies.mininet.network",
    "EndHost": "topologies.mininet.nodes",
    "Features": "topologies.features",
    "Lab": "topologies.mininet.network",
    "LabError": "topologies.requirements",
    "LinkProfile": "topologies.links.profiles",
    "PLAIN": "topologies.features",
    "PROFILES": "topologies.links.profiles",
    "ProfileError": "topologies.links.profiles",
    "contained": "topologies.namespaces.contain:run",
    "link_profile": "topologies.links.profiles",
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
