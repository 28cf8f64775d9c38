# SPDX-License-Identifier: Apache-2.0
"""Carriers of a switch's ports: gNMI on the connection of P4Runtime, which has no word for a cable that is out."""

from finsy import GNMIPath
from finsy.proto import gnmi
from google.protobuf.message import DecodeError

GET = "Get"
"""Method of gNMI, for `Transport.call`."""
REQUEST = gnmi.GetRequest(
    path=[GNMIPath(f"/interfaces/interface[name=*]/state/{leaf}").path for leaf in ("id", "oper-status")],
    encoding=gnmi.Encoding.PROTO,
).SerializeToString()


def carriers(answer: bytes) -> dict[int, bool]:
    """Return whether each port has a carrier, by its number; a port that the answer does not fully describe is left
    out."""
    try:
        notifications = gnmi.GetResponse.FromString(answer).notification
    except DecodeError:
        return {}
    leaves: dict[str, dict[str, gnmi.TypedValue]] = {}
    for notification in notifications:
        for update in notification.update:
            path = [*notification.prefix.elem, *update.path.elem]
            name = next((element.key["name"] for element in path if "name" in element.key), None)
            if name is not None:
                leaves.setdefault(name, {})[path[-1].name] = update.val
    return {
        found["id"].uint_val: found["oper-status"].string_val == "UP"
        for found in leaves.values()
        if {"id", "oper-status"} <= found.keys()
    }
