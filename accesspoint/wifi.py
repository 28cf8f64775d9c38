# SPDX-License-Identifier: Apache-2.0
"""Mininet-WiFi: `from accesspoint.wifi import P4AP, Mininet_wifi`, before anything else imports Mininet.

Mininet-WiFi is installed for the system's Python; this makes it importable in a virtual environment, too.
"""

from accesspoint.topologies.wifi import use_system_packages

use_system_packages()

from mn_wifi.net import Mininet_wifi  # noqa: E402

from accesspoint.topologies.mininet.nodes import Bridge  # noqa: E402
from accesspoint.topologies.wifi.access_point import P4AP  # noqa: E402

__all__ = ["P4AP", "Bridge", "Mininet_wifi"]
