# SPDX-License-Identifier: Apache-2.0
"""Clients of other projects, unmodified, at a switch that is called `simple_switch_grpc`.

`make foreign` runs them. A case is one such client in a network of its own: `case` has their list, `isolated` the
network, `stand` the names on PATH, the switch and the client's processes, `report` the table and the page. In `clients`
each client has a module: what it is made to do, and what it must then have printed or received."""
