# SPDX-License-Identifier: Apache-2.0
"""Roaming on Mininet-WiFi: a station walks from one access point to the next while it pings the server.

.venv/bin/python -m examples.roaming
"""

import time

from accesspoint.wifi import P4AP, Bridge, Mininet_wifi

net = Mininet_wifi(controller=None, ssid="lab", mode="g", ac_method="ssf")
ap1 = net.addAccessPoint("ap1", cls=P4AP, profile="wlan", channel="1", position="0,10,0", range=60)
ap2 = net.addAccessPoint("ap2", cls=P4AP, profile="wlan", channel="6", position="80,10,0", range=60)
sta1 = net.addStation("sta1", ip="10.0.0.11/24", position="0,0,0", range=60)
server = net.addHost("server", ip="10.0.0.1/24")
backbone = net.addSwitch("s3", cls=Bridge)
net.configureNodes()
for node in (server, ap1, ap2):
    net.addLink(node, backbone)
net.build()
net.start()
try:
    pinging = sta1.popen(["ping", "-i", "0.5", "-w", "20", server.IP()], text=True)
    for step in range(17):
        sta1.setPosition(f"{5 * step},0,0")
        print(f"{5 * step} m: {sta1.wintfs[0].associatedTo}")
        time.sleep(1)
    print(pinging.communicate()[0][-200:])
finally:
    net.stop()
