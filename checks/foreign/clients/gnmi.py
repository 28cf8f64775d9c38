# SPDX-License-Identifier: Apache-2.0
"""pygnmi: its own command, for each of gNMI's requests."""

import json
import re

from accesspoint.checks.foreign.case import Failed, case
from accesspoint.checks.foreign.stand import P4RUNTIME, Stand

CLIENT = "pygnmi 0.8.15"
NO_GNMI = {"bmv2": "BMv2 has no gNMI"}
OPER_STATUS = "openconfig-interfaces:interfaces/interface[name=switch1]/state/oper-status"
ENABLED = "openconfig-interfaces:interfaces/interface[name=switch1]/config/enabled"


def ask(stand: Stand, operation: str, *words: str) -> str:
    """Run pygnmi's command for one operation; return its output."""
    command = stand.python.replace("python", "pygnmicli")
    return stand.run(stand.python, command, "-t", P4RUNTIME, "-i", "-u", "none", "-p", "none", "-o", operation, *words)


def require(output: str, pattern: str, operation: str) -> None:
    """Raises Failed when the output has not the pattern."""
    if not re.search(pattern, output, re.S):
        raise Failed(f"{operation} prints {' '.join(output.split())[-200:]!r}")


@case("pygnmi-get", CLIENT, "pygnmicli: capabilities, get in two encodings", known=NO_GNMI)
def get(stand: Stand) -> None:
    with stand.switch():
        require(ask(stand, "capabilities"), r"openconfig-interfaces.*gnmi_version", "capabilities")
        for encoding in ("json", "json_ietf"):
            require(ask(stand, "get", "-e", encoding, "-x", OPER_STATUS), r'"val": "UP"', f"get -e {encoding}")


@case("pygnmi-set", CLIENT, "pygnmicli: set-update, set-replace and set-delete, each read back", known=NO_GNMI)
def set_(stand: Stand) -> None:
    file = stand.scratch / "value.json"
    with stand.switch():
        for operation, value in (("set-update", False), ("set-replace", True), ("set-update", False)):
            file.write_text(json.dumps(value))
            require(ask(stand, operation, "-x", ENABLED, "-f", str(file)), operation.split("-")[1].upper(), operation)
            require(
                ask(stand, "get", "-e", "json", "-x", ENABLED), rf'"val": {json.dumps(value)}', f"get after {operation}"
            )
        require(ask(stand, "set-delete", "-x", ENABLED), "DELETE", "set-delete")
        require(ask(stand, "get", "-e", "json", "-x", ENABLED), '"val": true', "get after set-delete")


@case("pygnmi-subscribe", CLIENT, "pygnmicli: subscribe-once", known=NO_GNMI)
def subscribe(stand: Stand) -> None:
    with stand.switch():
        require(ask(stand, "subscribe-once", "-x", OPER_STATUS), r"oper-status.*UP.*sync_response", "subscribe-once")
