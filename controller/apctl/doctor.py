# SPDX-License-Identifier: Apache-2.0
"""Diagnosis of access points, by the controller's answers and this machine's interfaces.

A finding is one line: level, problem and fix.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..client import ApiError, Client
from ..client.models import AccessPointAnswer

LATE = 0.05  # of all ticks
FEW = 100  # ticks, of which a share says nothing yet: a second
EXPIRES_SOON = 7 * 86400.0  # s
OFFLOADS = (
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
)


@dataclass(frozen=True)
class Finding:
    """A result of a check. error: something does not work; warning: it works, but perhaps not as intended."""

    level: Literal["ok", "warning", "error"]
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.level:<8}{self.text}" + (f"; {self.fix}" if self.fix else "")


def controller(client: Client) -> Iterator[Finding]:
    """Check the controller and each of its access points. Raises ApiError without an answer."""
    client.health()
    try:
        client.ready()
        yield Finding("ok", f"the controller at {client.url} is ready")
    except ApiError as error:
        yield Finding("error", f"the controller at {client.url} is not ready: {error}", "see its log")
    who = client.who_am_i()
    expires = who["expires"]
    if expires is not None and expires - time.time() < EXPIRES_SOON:
        yield Finding(
            "warning", f"the token {who['name']} ends in less than a week", "`apctl token create` makes another"
        )
    for agent in client.every(client.list_agents):
        if agent["access_point"] is None:
            fix = f"`apctl adopt {agent['id']} {agent['name']}`"
            yield Finding("warning", f"an agent waits to be adopted as {agent['name']}", fix)
    access_points = client.every(client.list_access_points)
    if not access_points:
        yield Finding("error", "the controller has no access point", "`apctl add -f FILE` adds one")
    for one in access_points:
        yield from _access_point(client, one)


def _access_point(client: Client, one: AccessPointAnswer) -> Iterator[Finding]:
    name, loop = one["name"], one["loop"]
    if not one["enabled"]:
        yield Finding("warning", f"{name} is disconnected", f"`apctl connect {name}`")
        return
    if one["state"] == "backup":
        yield Finding("ok", f"{name} has another controller, for which this one waits")
        return
    if one["state"] != "ready":
        fix = f"is the switch at {one['address']} up, and is its device id {one['device_id']}?"
        yield Finding("error", f"{name} is {one['state']}: {one['problem'] or 'it does not answer'}", fix)
        return
    yield Finding("ok", f"{name} is ready: {one['stations']} stations, {one['flows']} flows")
    if not one["flows_free"]:
        yield Finding("error", f"{name} has no free flow entry", "new ones are forwarded and not regulated")
    if loop["ticks"] >= FEW and (loop["late"] + loop["missed"]) / loop["ticks"] > LATE:
        yield Finding(
            "error", f"{name}: {loop['late']} of {loop['ticks']} ticks were late, {loop['missed']} missed",
            "the machine is too busy for a loop of 10 ms",
        )  # fmt: skip
    if off := [feature for feature in ("ack_priority", "ncr") if not one["features"].get(feature)]:
        fix = f"`apctl set features {name} {off[0]}=true`"
        yield Finding("warning", f"{name}: {', '.join(off)} off: uploads may starve downloads", fix)
    ports = client.get_ports(name)
    roles = {port["role"] for port in ports}
    for role in ("uplink", "station"):
        if role not in roles:
            yield Finding("error", f"{name} has no {role} port", "correct `ports` in its configuration")
    for port in ports:
        if reason := port["target_reason"]:
            yield Finding("ok", f"{name}: the target of port {port['port']} is {port['target_ms']:.1f} ms: {reason}")
        if port["link"] == "down":
            yield Finding("error", f"{name}: port {port['port']} ({port['role']}) has no carrier", "is its cable in?")


def interface(name: str) -> Iterator[Finding]:
    """Check that an interface of this machine can be a port."""
    if missing := list(present(name)):
        yield from missing
        return
    if " state DOWN " in _link(name):
        yield Finding("error", f"{name} is down", f"`ip link set {name} up`")
    on = offloads(name)
    if on is None:
        yield Finding("warning", f"{name}: whether it merges packets is not known", "install ethtool")
    elif on:
        fix = f"`ethtool -K {name} tso off gso off gro off lro off`"
        yield Finding("error", f"{name} merges packets ({', '.join(on)}), which then have no queue of their own", fix)
    yield from alone(name)


def present(name: str) -> Iterator[Finding]:
    """Check that an interface exists."""
    if not _link(name):
        yield Finding("error", f"{name}: this machine has no such interface", "`ip link` lists them")


def alone(name: str) -> Iterator[Finding]:
    """Check that only a switch would use an interface."""
    if addresses := re.findall(r"inet6? (\S+)", _said("ip", "address", "show", "dev", name, "scope", "global")):
        fix = f"a port of the switch has none: `ip address flush dev {name}`"
        yield Finding("error", f"{name} has addresses ({', '.join(addresses)})", fix)
    if master := re.search(r" master (\S+)", _link(name)):
        fix = f"`ip link set {name} nomaster`, and no `bridge=` in hostapd's configuration"
        yield Finding("error", f"{name} is also a port of {master[1]}, which would forward past the switch", fix)
    if shutil.which("nmcli") and f"{name}:connected" in _said("nmcli", "-t", "-f", "DEVICE,STATE", "device"):
        yield Finding("warning", f"NetworkManager also manages {name}", f"`nmcli device set {name} managed no`")


def offloads(name: str, wanted: bool = False) -> list[str] | None:
    """Return an interface's offloads that merge packets; None when ethtool is missing. wanted: also those that are
    requested, as a radio has them."""
    if not shutil.which("ethtool"):
        return None
    said = _said("ethtool", "-k", name)
    on = r"(?:on|off \[requested on\])" if wanted else "on"
    return [offload for offload in OFFLOADS if re.search(rf"^\s*{offload}: {on}", said, re.M)]


def is_up(name: str) -> bool:
    """Return True for an interface that is set up."""
    return bool(re.search(r"<[^>]*\bUP\b", _link(name)))


def interfaces() -> list[str]:
    """Return the interfaces of this machine, without its loopback."""
    names = re.findall(r"^\d+: ([^@:]+)", _said("ip", "-o", "link", "show"), re.M)
    return [name for name in names if name != "lo"]


def _link(name: str) -> str:
    return _said("ip", "-o", "link", "show", "dev", name)


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
