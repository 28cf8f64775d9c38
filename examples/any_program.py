# SPDX-License-Identifier: Apache-2.0
"""Any P4 program in Mininet: a switch with a program of one's own, links in Mininet's words, a host that comes later.

.venv/bin/python -m examples.any_program
"""

from pathlib import Path

from accesspoint import Mininet, P4Switch

PROGRAM = Path(__file__).parent.parent / "topologies/links/wire.json"  # what enters port 1 leaves port 2, and back

net = Mininet(controller=None)
s1 = net.addSwitch("s1", cls=P4Switch, json=PROGRAM)
h1, h2 = net.addHost("h1"), net.addHost("h2", ip="10.0.0.2/8")
net.addLink(h1, s1)
net.start()
try:
    link = net.addLink(h2, s1, bw=5, delay="20ms", max_queue_size=50)
    h2.setIP("10.0.0.2/8")
    s1.attach(link.intf2)
    print(h1.cmd("ping -c 3 -i 0.2", h2.IP()))
    print(s1.dpctl("show"))
finally:
    net.stop()
