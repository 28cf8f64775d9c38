# SPDX-License-Identifier: Apache-2.0
"""The program and the controller on BMv2, whose `simple_switch_grpc` has to be on PATH.

.venv/bin/python -m examples.bmv2
"""

from accesspoint import AccessPointTopo, Bmv2AccessPoint, Client, Mininet

net = Mininet(AccessPointTopo(stations=2, switch={"cls": Bmv2AccessPoint}), controller=None)
net.start()
try:
    net.pingAll()
    ap1 = net["ap1"]
    with Client(ap1.rest_url, ap1.rest_token) as client:
        print(client.get_access_point("ap1")["state"])
finally:
    net.stop()
