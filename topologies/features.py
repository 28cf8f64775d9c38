# SPDX-License-Identifier: Apache-2.0
"""Features of an access point, beyond forwarding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Features:
    """Features that are on; `gate` is port -> {"buffer", "batch"} in packets, or None."""

    ack_priority: bool = True
    ack_filter: bool = True
    sparse: bool = True
    ncr: bool = True
    gate: dict[str, dict[str, int]] | None = None


def configured(
    ports: Sequence[Mapping[str, Any]], features: Mapping[str, Any], settings: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the ports, features and other settings of an access point's configuration
    (accesspoint.controller.config.AccessPointConfig). settings: more of the configuration, as {"ncr": {"alpha": 0.1}};
    what it has as `ports` belongs to ports by their role: {"ports": {"station": {"regulated": False}}}."""
    of_role = settings.get("ports", {})
    own = [{**port, **of_role.get(port["role"], {})} for port in ports]
    return {**settings, "ports": own, "features": dict(features)}


PLAIN = Features(ack_priority=False, ack_filter=False, sparse=False, ncr=False)
