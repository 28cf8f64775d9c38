# SPDX-License-Identifier: Apache-2.0
"""Classes for Mininet's command line:

    PYTHONPATH=. mn --custom accesspoint/mn.py --topo accesspoint,2 --controller none --test pingall

`--topo accesspoint,2,profile=lte` takes the number of stations and the link profile. Other topologies take the access
point as their switch: `--topo single,3 --switch accesspoint,profile=wimax`; its last port is then the uplink. Any other
program runs with `--switch p4,json=FILE`.
"""

from accesspoint import AccessPoint, AccessPointLink, AccessPointTopo, Bmv2AccessPoint, EndHost, P4Switch

topos = {"accesspoint": AccessPointTopo}
switches = {"accesspoint": AccessPoint, "accesspoint-bmv2": Bmv2AccessPoint, "p4": P4Switch}
hosts = {"accesspoint": EndHost}
links = {"accesspoint": AccessPointLink}
