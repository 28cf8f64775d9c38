# SPDX-License-Identifier: Apache-2.0
"""Addresses of a lab's hosts. Imports nothing of Mininet."""


def of_server() -> dict[str, str]:
    """Return IPv4, IPv6 and MAC address of the server."""
    return _of_host(1)


def of_station(number: int) -> dict[str, str]:
    """Return IPv4, IPv6 and MAC address of a station; the first one is 1."""
    return _of_host(10 + number)


def _of_host(number: int) -> dict[str, str]:
    return {"ip": f"10.0.0.{number}/24", "ipv6": f"fd00::{number}/64", "mac": f"02:00:00:00:00:{number:02x}"}
