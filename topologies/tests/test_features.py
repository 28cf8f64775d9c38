# SPDX-License-Identifier: Apache-2.0
"""Configuration of an access point from its ports, features and settings."""

from accesspoint.topologies.features import configured


def test_settings_of_ports_go_by_their_role() -> None:
    ports = [{"port": 1, "role": "station"}, {"port": 2, "role": "uplink"}]
    settings = {"ncr": {"alpha": 0.1}, "ports": {"station": {"regulated": False}}}
    assert configured(ports, {"ncr": True}, settings) == {
        "ports": [{"port": 1, "role": "station", "regulated": False}, {"port": 2, "role": "uplink"}],
        "features": {"ncr": True},
        "ncr": {"alpha": 0.1},
    }
