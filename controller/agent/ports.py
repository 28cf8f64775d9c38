# SPDX-License-Identifier: Apache-2.0
"""Entities of the ports: roles, the gate, the flood group, the clone sessions, digests."""

import finsy as fy

from ..config import AccessPointConfig
from .program import (
    DIGEST_FLOWS,
    DIGEST_SOURCE,
    FLOOD_GROUP,
    ROLE_RADIO,
    ROLES,
    Encodable,
    table_entry,
)
from .target import Target

DIGEST_TIMEOUT_NS = 2_000_000
DIGEST_LIST_SIZE = 100
DIGEST_ACK_TIMEOUT_NS = 1_000_000_000


def needs_flows(config: AccessPointConfig) -> bool:
    """Return True when an enabled feature needs single flows; else the switch need not report them."""
    features = config.features
    return features.ncr or features.sparse or features.ack_priority


def entities(config: AccessPointConfig, target: Target) -> list[Encodable]:
    """Return the entities of `roles`, `gate`, replication and digests."""
    wanted: list[Encodable] = []
    for port in config.ports:
        role = ROLE_RADIO if port.reflects else ROLES[port.role]
        wanted.append(table_entry("ingress_roles", {"ingress_port": port.port}, "set_ingress_role", role=role))
        wanted.append(table_entry("egress_roles", {"egress_port": port.port}, "set_egress_role", role=role))
    gates = config.features.gate or {}
    for port in config.ports:
        if port.port in gates:
            gate = gates[port.port]
            wanted.extend(target.gate(port.port, round(8 * port.capacity), gate.buffer, gate.batch))
    wanted.append(fy.P4MulticastGroupEntry(FLOOD_GROUP, replicas=sorted(port.port for port in config.ports)))
    wanted.append(target.cpu_session())
    wanted.extend(target.ack_sessions(port.port for port in config.ports if port.role == "uplink"))
    digests = [DIGEST_SOURCE, *(DIGEST_FLOWS if needs_flows(config) else ())]
    wanted.extend(
        fy.P4DigestEntry(
            name,
            max_timeout_ns=DIGEST_TIMEOUT_NS,
            max_list_size=DIGEST_LIST_SIZE,
            ack_timeout_ns=DIGEST_ACK_TIMEOUT_NS,
        )
        for name in digests
    )
    return wanted
