# SPDX-License-Identifier: Apache-2.0
"""The lab in ns-3: the same switch and controller in virtual time, on ns-3's models of 802.11, wires and TCP.

`build` compiles what is C++ here against the wheel of ns-3 (`make ns3`), `virtual` lets the controller run in simulated
time, `lab` is an access point with stations on wires. docs/ns3.md is its page.
"""
