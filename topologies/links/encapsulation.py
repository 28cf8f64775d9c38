# SPDX-License-Identifier: Apache-2.0
"""Encapsulations of frames between a station and the server: tags and sessions, which all of a host's traffic takes,
and tunnels, which have addresses of their own.

    wrap("qinq", station, server)          # the hosts keep their addresses, on another interface
    address = tunnel("wireguard", station, server)   # of the server, at the tunnel's other end

The interfaces are Linux's, and so is the PPPoE session; only discovery and LCP, which carry no traffic, are left out:
both ends know the session's number.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from ipaddress import ip_interface
from typing import Any

from accesspoint.topologies.links.veth import OFFLOADS
from accesspoint.topologies.requirements import ROOT, LabError

WRAPS = ("802.1q", "qinq", "pppoe")
TUNNELS = ("wireguard", "vxlan")
VLAN, OUTER_VLAN = 10, 20
SESSION = 1
INNER = "10.2.0"  # a tunnel's network
WIREGUARD_PORT, VXLAN_PORT = 51820, 4789
INTERFACES = {"802.1q": "vlan", "qinq": "qinq", "pppoe": "ppp0", "wireguard": "wg0", "vxlan": "vxlan0"}
OVERHEADS = {"802.1q": 14 + 4, "qinq": 14 + 8, "pppoe": 14 + 8}
"""Bytes that a frame has beside its IP packet, for `cake overhead`: Ethernet, tags, or PPPoE and PPP."""
MTU = {"802.1q": 1500, "qinq": 1492, "pppoe": 1492}
"""MTU of IP, so that no frame is longer than an untagged one, except for the one tag that every interface carries."""


def wrap(kind: str, station: Any, server: Any, cc: str = "cubic") -> None:
    """Puts all IPv4 of two hosts into tags or a session; their addresses stay. cc: their congestion control. Raises
    LabError."""
    hosts = (station, server)
    for host, other in (hosts, hosts[::-1]):
        base, mac = str(host.defaultIntf()), other.MAC()
        network = ip_interface(host.params["ip"])
        host.run("ip", "-4", "address", "flush", "dev", base)
        _WRAP[kind](host, base, mac)
        name = INTERFACES[kind]
        if kind == "pppoe":
            host.run("ip", "address", "add", str(network.ip), "peer", other.IP(), "dev", name)
            route = other.IP()
        else:
            host.run("ip", "address", "add", str(network), "dev", name)
            route = str(network.network)
        host.run("ip", "link", "set", name, "mtu", str(MTU[kind]), "up")
        host.run("ip", "route", "replace", route, "dev", name, "src", str(network.ip), "congctl", cc)


def tunnel(kind: str, station: Any, server: Any, cc: str = "cubic") -> str:
    """Add a tunnel between two hosts, next to their own links, and return the server's address in it. Raises
    LabError."""
    ends = {station: f"{INNER}.2", server: f"{INNER}.1"}
    name = INTERFACES[kind]
    keys = {host: _key() for host in ends} if kind == "wireguard" else {}
    for host, other in ((station, server), (server, station)):
        if kind == "wireguard":
            _add(kind, host, name, "type", "wireguard")
            public = subprocess.run(["wg", "pubkey"], input=keys[other], text=True, capture_output=True, check=True)
            command = f"echo {keys[host]} | wg set {name} private-key /proc/self/fd/0 listen-port {WIREGUARD_PORT}"
            command += f" peer {public.stdout.strip()} allowed-ips {INNER}.0/24 endpoint {other.IP()}:{WIREGUARD_PORT}"
            host.run("sh", "-c", command)
        else:
            words = f"type vxlan id 1 local {host.IP()} remote {other.IP()} dstport {VXLAN_PORT}".split()
            _add(kind, host, name, *words, "dev", str(host.defaultIntf()))
        # As on the hosts' own interfaces; a tunnel may have none of these to take off.
        host.run("sh", "-c", f"ethtool -K {name} {' '.join(OFFLOADS)} || true")
        host.run("ip", "address", "add", f"{ends[host]}/24", "dev", name)
        host.run("ip", "link", "set", name, "up")
        host.run("ip", "route", "replace", f"{INNER}.0/24", "dev", name, "src", ends[host], "congctl", cc)
    return ends[server]


def shape(kind: str, host: Any, rate: int, words: str) -> None:
    """Shape what a wrapped host sends with CAKE on the interface that has IP, where its manual wants it (tc-cake(8),
    "overhead"). rate: bit/s of Ethernet frames."""
    own = f"cake bandwidth {rate}bit overhead {OVERHEADS[kind]} {words}"
    host.run("tc", "qdisc", "replace", "dev", INTERFACES[kind], "root", *own.split())


def _key() -> str:
    try:
        return subprocess.run(["wg", "genkey"], text=True, capture_output=True, check=True).stdout.strip()
    except FileNotFoundError:
        raise LabError("wg is missing: install it with `apt install wireguard-tools`") from None


def _add(kind: str, host: Any, *words: str) -> None:
    try:
        host.run("ip", "link", "add", *words)
    except LabError as error:
        raise LabError(f"this kernel makes no {kind}: take CLOCK=virtual, whose kernel does ({error})") from None


def _tag(host: Any, base: str, name: str, number: int, protocol: str) -> None:
    _add(protocol, host, "link", base, "name", name, "type", "vlan", "protocol", protocol, "id", str(number))
    host.run("ethtool", "-K", name, *OFFLOADS)
    host.run("ip", "link", "set", name, "up")


def _vlan(host: Any, base: str, _mac: str) -> None:
    _tag(host, base, INTERFACES["802.1q"], VLAN, "802.1Q")


def _qinq(host: Any, base: str, _mac: str) -> None:
    _tag(host, base, "outer", OUTER_VLAN, "802.1ad")
    _tag(host, "outer", INTERFACES["qinq"], VLAN, "802.1Q")


def _pppoe(host: Any, base: str, mac: str) -> None:
    """Start the program that holds a PPPoE session: the session lasts as long as that, until the host ends."""
    words = [sys.executable, "-m", "accesspoint.topologies.links.encapsulation", base, mac]
    process = host.popen(*words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = process.stdout.readline().decode().strip()
    if said != f"ready {INTERFACES['pppoe']}":
        raise LabError(
            f"{host.name} has no PPPoE session: {said or 'no output'}; take CLOCK=virtual, whose kernel has it"
        )


_WRAP = {"802.1q": _vlan, "qinq": _qinq, "pppoe": _pppoe}

# linux/if_pppox.h, linux/ppp-ioctl.h, linux/ppp_defs.h
AF_PPPOX, PX_PROTO_OE = 24, 0
PPPIOCGCHAN, PPPIOCATTCHAN, PPPIOCCONNECT = 0x80047437, 0x40047438, 0x4004743A
PPPIOCNEWUNIT, PPPIOCSNPMODE = 0xC004743E, 0x4008744B
PPP_IP, NPMODE_PASS = 0x21, 0


def hold_session(interface: str, mac: str) -> None:
    """Hold a PPPoE session with the host of this MAC address as an interface `ppp0`, as long as this program runs."""
    session = socket.socket(AF_PPPOX, socket.SOCK_STREAM, PX_PROTO_OE)
    where = struct.pack("!H6s16s", SESSION, bytes.fromhex(mac.replace(":", "")), interface.encode())
    address = struct.pack("@H", AF_PPPOX) + struct.pack("@I", PX_PROTO_OE) + where
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.connect(session.fileno(), address, len(address)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    channel, unit = (os.open("/dev/ppp", os.O_RDWR) for _ in range(2))
    number = fcntl.ioctl(session, PPPIOCGCHAN, struct.pack("i", 0))
    fcntl.ioctl(channel, PPPIOCATTCHAN, number)
    made = fcntl.ioctl(unit, PPPIOCNEWUNIT, struct.pack("i", -1))
    fcntl.ioctl(channel, PPPIOCCONNECT, made)
    fcntl.ioctl(unit, PPPIOCSNPMODE, struct.pack("ii", PPP_IP, NPMODE_PASS))
    print(f"ready ppp{struct.unpack('i', made)[0]}", flush=True)
    signal.pause()


if __name__ == "__main__":
    try:
        hold_session(*sys.argv[1:])
    except OSError as error:
        sys.exit(str(error))
