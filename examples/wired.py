# SPDX-License-Identifier: Apache-2.0
"""A topology of one's own: two stations and a server, one of them behind a slower link.

.venv/bin/python -m examples.wired
"""

from accesspoint import AccessPoint, AccessPointLink, EndHost, Mininet

net = Mininet(controller=None)
ap1 = net.addSwitch("ap1", cls=AccessPoint, profile="wlan", uplink="server")
near, far, server = (net.addHost(name, cls=EndHost) for name in ("near", "far", "server"))
net.addLink(near, ap1)
net.addLink(far, ap1, cls=AccessPointLink, model={"rate": "1mbit", "limit": 50, "delay": "20ms"})
net.addLink(server, ap1)
net.start()
try:
    print(f"live page: {ap1.rest_url}, token {ap1.rest_token}")
    for station in (near, far):
        print(station.cmd("ping -c 3 -i 0.2", server.IP()))
finally:
    net.stop()
