# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.topologies.lab`: a lab to play in, with the Mininet prompt. `--exec` or a piped script runs
commands."""

import argparse
import os
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, call
from typing import Any

from accesspoint.topologies import lab_kinds, requirements, targets
from accesspoint.topologies.features import PLAIN, Features
from accesspoint.topologies.kernels import kernel
from accesspoint.topologies.links.profiles import PROFILES, LinkProfile, ProfileError, link_profile
from accesspoint.topologies.namespaces import contain
from accesspoint.topologies.namespaces.scratch import ScratchFolder
from accesspoint.topologies.processes import wait_for
from accesspoint.topologies.requirements import LabError

REST_PORT = 8080
IPERF_PORTS = (5201, 5202)
UNPRIVILEGED = ["unshare", "-Urnm"]  # a user namespace, in which this user has the rights of root

BANNER = """
  {stations} --- {access_points} --- server      {links}, TCP {cc}

  live page  {rest}/    (token {token})
  REST       export APCTL_URL={rest} APCTL_TOKEN={token}
  P4Runtime  {grpc}, device 1
  logs       {directory}

  The server runs iperf3 on ports {ports}. Try:
    sta1 ping -c 5 server
    sta1 iperf3 -c server -R -t 60 > /tmp/down &       a download ...
    sta1 iperf3 -c server -p 5202 -t 20                ... and an upload at the same time
    sh ./apctl get flows ap1 --active
    sh ./apctl set features ap1 ncr=false sparse=false ack_priority=false ack_filter=false
  `sh` runs a command outside the lab; `help` lists the prompt's own commands, `exit` ends the lab. In other terminals
  ./apctl and curl need the line above that begins with `export`.
"""


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m accesspoint.topologies.lab", description="A lab with the Mininet prompt."
    )
    parser.add_argument("--profile", default="testbed", help=f"link profile: {', '.join(PROFILES)} (default: testbed)")
    parser.add_argument("--down", metavar="RATE", help="rate of the downlink instead of the profile's, e.g. 8mbit")
    parser.add_argument("--up", metavar="RATE", help="rate of the uplink, e.g. 600kbit")
    parser.add_argument("--rtt", metavar="TIME", help="base round trip, e.g. 20ms")
    for way in ("down", "up"):
        parser.add_argument(f"--{way}-trace", type=Path, metavar="FILE", help=f"trace in place of the {way}link's rate")
    parser.add_argument("--cc", default="cubic", help="TCP congestion control of every host (default: cubic)")
    parser.add_argument(
        "--target", default=targets.DEFAULT, help=f"switch: {', '.join(targets.TARGETS)} (default: apswitch)"
    )
    lab_kinds.add_arguments(parser)
    lab_kinds.add_clock(parser, kernel.REAL)
    parser.add_argument("--access-points", type=int, default=1, help="on radios: number of access points (default: 1)")
    parser.add_argument("--stations", type=int, default=1, help="number of stations (default: 1)")
    parser.add_argument("--shared", action="store_true", help="one downlink for all stations, as one radio has")
    parser.add_argument("--plain", action="store_true", help="a plain FIFO: every feature of the access point off")
    parser.add_argument(
        "--exec", action="append", metavar="COMMAND", help="run a prompt's command and end with its status; repeatable"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    words = sys.argv[1:] if argv is None else argv
    if not requirements.privileged() and call([*UNPRIVILEGED, "true"], stderr=DEVNULL) == 0:
        print("note: without root the lab has a network of its own: REST answers at its prompt only", file=sys.stderr)
        os.execvp(UNPRIVILEGED[0], [*UNPRIVILEGED, sys.executable, "-m", "accesspoint.topologies.lab", *words])
    try:
        requirements.check(options.cc)
        targets.find(options.target)
        place = lab_kinds.choose(options)
        if place.kernel:
            return kernel.run(place.kernel, "accesspoint.topologies.lab", words, [], place.clock)
        profile = link_profile(
            options.profile, options.down, options.up, options.rtt, options.down_trace, options.up_trace
        )
        profile = replace(profile, shared=options.shared)
        with ScratchFolder("lab-") as folder:
            return contain.run(lambda: _play(options, place.lab, profile, folder.path))
    except (LabError, ProfileError, OSError) as error:
        return fail(error)


def fail(error: Exception) -> int:
    """Prints the one line that the user gets for bad input or a lab that cannot be."""
    print(f"error: {error}", file=sys.stderr)
    return 2


def _play(options: argparse.Namespace, kind: str, profile: LinkProfile, directory: Path) -> int:
    # Not before `requirements.check` has found Mininet.
    lab_class = lab_kinds.lab_class(kind)
    from mininet.cli import CLI

    from accesspoint.topologies.mininet.commands import Commands

    settings: dict[str, Any] = {"cc": options.cc, "rest_port": REST_PORT, "target": options.target}
    if kind == lab_kinds.WIRELESS:
        settings |= {"access_points": options.access_points, "air": lab_kinds.air(options), "wpa2": options.wpa2}
    features = PLAIN if options.plain else Features()
    try:
        with lab_class(profile, directory, options.stations, features, **settings) as lab:
            lab.net.lab = lab  # for the prompt: `py net.lab.rest_url`
            os.environ |= {"APCTL_URL": lab.rest_url, "APCTL_TOKEN": lab.rest_token}  # for the prompt's `sh`
            for port in IPERF_PORTS:
                lab.server.popen(["iperf3", "-s", "-p", str(port)], stdout=DEVNULL, stderr=DEVNULL)
                listening = partial(lab.server.run, "ss", "-Hltn", f"sport = :{port}")
                # The prompt's first command may be its client.
                wait_for(listening, f"iperf3 listens on port {port}", 60.0)
            if options.exec:
                # Mininet's prompt takes Ctrl-C for the command that runs, and goes on with the next one.
                signal.signal(signal.SIGINT, contain.end)
                return Commands(lab.net, options.exec).status
            print(
                BANNER.format(
                    stations=", ".join(station.name for station in lab.stations),
                    access_points=", ".join(access_point.name for access_point in lab.access_points),
                    links=profile.describe(),
                    cc=options.cc,
                    rest=lab.rest_url,
                    token=lab.rest_token,
                    grpc=lab.access_point.grpc,
                    directory=directory,
                    ports=" and ".join(map(str, IPERF_PORTS)),
                )
            )
            for difference in lab.target.differences(lab.ports):
                print(f"  {lab.target.title}: {difference}")
            CLI(lab.net)
    except LabError as error:
        return fail(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
