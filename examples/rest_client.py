# SPDX-License-Identifier: Apache-2.0
"""A client of REST: what the access point knows of its stations and flows, and a feature switched off and on.

.venv/bin/python -m examples.rest_client
"""

from accesspoint import AccessPointTopo, Client, Mininet

net = Mininet(AccessPointTopo(stations=2), controller=None)
net.start()
try:
    ap1 = net["ap1"]
    net.pingAll()
    with Client(ap1.rest_url, ap1.rest_token) as client:
        print("state:", client.get_access_point("ap1")["state"])
        for station in client.get_stations("ap1"):
            print("station:", station["address"], "at port", station["port"])
        print("flows:", len(client.every(client.get_flows, "ap1")))
        client.change_features("ap1", {"ack_filter": False})
        print("ACK filter:", client.get_features("ap1")["ack_filter"])
        client.change_features("ap1", {"ack_filter": True})
finally:
    net.stop()
