#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renew the pictures of the live page: `make screenshots`. They show a lab of three stations behind one radio's rate,
with real TCP, in Chromium without a window.

`--look DIR` takes pictures of every view into a folder, wide and on a phone, light and dark, to be looked at.
"""

import argparse
import io
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

IMAGES = ROOT / "docs/images"
WIDE, PHONE = (1280, 1180), (390, 1100)
WARM_SECONDS = 130
"""The charts show two minutes."""
TRAFFIC = (
    *(f"sta{number} ping -c 3 -i 0.2 server > /dev/null" for number in (1, 2, 3)),
    "server iperf3 -s -p 5203 -D",
    "sta1 iperf3 -c server -R -t 600 > /dev/null &",
    "sta2 iperf3 -c server -p 5202 -R -P 2 -t 600 > /dev/null &",
    "sta3 iperf3 -c server -p 5203 -t 600 > /dev/null &",
    "sta3 ping -i 0.2 server > /dev/null &",
)
SECTION = "arguments[0] && document.querySelector(`section[aria-label='${arguments[0]}']`).scrollIntoView()"


def outside(words: list[str]) -> int:
    """Start the lab, which takes the pictures while its traffic runs."""
    inside = shlex.join([sys.executable, str(Path(__file__).resolve()), "--inside", *words])
    lab = [
        sys.executable,
        "-m",
        "accesspoint.topologies.lab",
        "--stations",
        "3",
        "--shared",
        "--down",
        "14mbit",
        "--up",
        "2mbit",
    ]
    commands = [*TRAFFIC, f"sh {inside}"]
    return subprocess.run([*lab, *(f"--exec={command}" for command in commands)], cwd=ROOT, check=False).returncode


def inside(look: Path | None) -> int:
    """Take the pictures of the controller that the lab has."""
    from accesspoint.checks.harness.browser import browser
    from accesspoint.controller.client import Client
    from accesspoint.controller.client.models import StationPatch

    url, token = os.environ["APCTL_URL"], os.environ["APCTL_TOKEN"]
    with Client(url, token) as client, browser() as window:
        name = client.list_access_points()[0]["name"]
        stations = [each["address"] for each in client.get_stations(name, role="station")]
        said: tuple[StationPatch, ...] = (
            {"name": "Laptop"},
            {"name": "Television", "limit_down_bps": 6_000_000},
            {"name": "Phone", "weight": 2},
        )
        for address, each in zip(stations, said, strict=False):
            client.change_station(name, address, each)
        client.put_rule(name, "voice", {"name": "voice", "dscp": 46, "class_id": 3, "queue": 6, "regulated": False})
        client.create_token({"name": "grafana", "role": "viewer"})
        window.size(*WIDE)
        window.log_in(url, token)
        window.open(f"{url}/#/access-points/{name}")
        time.sleep(0 if os.environ.get("QUICK") else WARM_SECONDS)

        def picture(path: Path, view: str, scheme: str, size: tuple[int, int], section: str = "") -> None:
            window.colours(scheme)
            window.size(*size, scale=1.5 if size == PHONE else 1.0)
            if window.run("return location.hash") != view:
                window.open(f"{url}/{view}")
                time.sleep(4)
            window.run("scrollTo(0, 0)")
            # A section that comes into sight loads its rows, which move the section away again.
            for seconds in (2.5, 0.5):
                window.run(SECTION, section)
                time.sleep(seconds)
            save(path, window.driver.get_screenshot_as_png())

        ap = f"#/access-points/{name}"
        if look is None:
            for scheme in ("light", "dark"):
                picture(IMAGES / f"page-{scheme}.png", ap, scheme, WIDE)
                picture(IMAGES / f"page-settings-{scheme}.png", ap, scheme, (1280, 900), "Stations")
            picture(IMAGES / "page-phone.png", ap, "light", PHONE)
            return 0
        look.mkdir(parents=True, exist_ok=True)
        views = {"overview": ("#/", ""), "access-point": (ap, ""), "tokens": ("#/tokens", "")}
        sections = ("Classes", "Ports", "Flows", "Stations", "Settings")
        views |= {section.lower(): (ap, section) for section in sections}
        for size, kind in ((WIDE, "wide"), (PHONE, "phone")):
            for view, (where, section) in views.items():
                for scheme in ("light", "dark"):
                    picture(look / f"{view}-{kind}-{scheme}.png", where, scheme, size, section)
            for scheme in ("light", "dark"):
                picture(look / f"station-{kind}-{scheme}.png", ap, scheme, size, "Stations")
                window.run("document.querySelector('section[aria-label=Stations] tbody button').click()")
                time.sleep(0.5)
                save(look / f"station-{kind}-{scheme}.png", window.driver.get_screenshot_as_png())
                window.run("document.querySelector('dialog').close()")
    return 0


def save(path: Path, png: bytes) -> None:
    """Save with a palette: a third of the size, without a visible difference."""
    from PIL import Image

    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path)


def main() -> int:
    parser = argparse.ArgumentParser(description="Renew the pictures of the live page.")
    parser.add_argument("--look", type=Path, metavar="DIR", help="every view into this folder instead")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    look = options.look.resolve() if options.look else None
    if options.inside:
        return inside(look)
    return outside(["--look", str(look)] if look else [])


if __name__ == "__main__":
    sys.exit(main())
