# SPDX-License-Identifier: Apache-2.0
"""`python -m experiments NAME`: runs an experiment and writes its results into `out/NAME/`."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from topologies import contain, labs, requirements, targets
from topologies.lab import fail
from topologies.profiles import PROFILES, ProfileError, link_profile
from topologies.requirements import LabError

MIN_SECONDS, MAX_SECONDS = 6, 3600
EXPERIMENTS = ("headline", "many-stations", "handover")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments", description="Runs an experiment in a lab.")
    parser.add_argument("name", help=f"experiment: {', '.join(EXPERIMENTS)}")
    parser.add_argument("--profile", default="testbed", help=f"link profile: {', '.join(PROFILES)} (default: testbed)")
    parser.add_argument("--seconds", help="length of each arm (default: the experiment's)")
    parser.add_argument("--down", metavar="RATE", help="rate of the downlink instead of the profile's, as 8mbit")
    parser.add_argument("--up", metavar="RATE", help="rate of the uplink, as 600kbit")
    parser.add_argument("--rtt", metavar="TIME", help="base round trip, as 20ms")
    parser.add_argument("--cc", default="cubic", help="TCP congestion control of every host (default: cubic)")
    parser.add_argument(
        "--target", default=targets.DEFAULT, help=f"switch: {', '.join(targets.TARGETS)} (default: apswitch)"
    )
    labs.add_arguments(parser)
    parser.add_argument("--arms", metavar="A,B", help="only these arms, in this order of the experiment")
    parser.add_argument("--out", type=Path, default=requirements.ROOT / "out", help="where results go (default: out)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    try:
        if options.name not in EXPERIMENTS:
            raise ProfileError(f"experiment '{options.name}' is unknown: choose one of {', '.join(EXPERIMENTS)}")
        profile = link_profile(options.profile, options.down, options.up, options.rtt)
        requirements.check(options.cc)
        targets.find(options.target)
        place = labs.choose(options)
        directory = options.out / options.name
        if place.own_kernel:
            from topologies.wifi import kernel

            directory.mkdir(parents=True, exist_ok=True)
            words = [*(sys.argv[1:] if argv is None else argv), "--out", str(options.out.resolve())]
            return kernel.run("experiments", words, [directory])
        # Not before the check: the lab's modules import Mininet.
        labs.lab_class(place.lab)
        from experiments.headline import HEADLINE
        from experiments.runner import Setting, require
        from experiments.session import Session
        from experiments.wireless import HANDOVER, MANY_STATIONS

        experiment = {one.name: one for one in (HEADLINE, MANY_STATIONS, HANDOVER)}[options.name]
        seconds = _seconds(options.seconds) if options.seconds else experiment.seconds
        chosen = _arms(options.arms, [arm.name for arm in experiment.arms])
        setting = Setting(profile, seconds, options.cc, target=options.target, lab=place.lab, air=labs.air(options))
        require(experiment, chosen, setting)
        directory.mkdir(parents=True, exist_ok=True)
        session = Session(experiment, setting, chosen, directory, Console())
        return contain.run(session.run)
    except (LabError, ProfileError, OSError) as error:
        return fail(error)


def _seconds(text: str) -> int:
    if not text.isdecimal() or not MIN_SECONDS <= int(text) <= MAX_SECONDS:
        raise ProfileError(f"seconds '{text}' is not possible: give a whole number from {MIN_SECONDS} to {MAX_SECONDS}")
    return int(text)


def _arms(text: str | None, known: list[str]) -> list[str]:
    chosen = text.split(",") if text else known
    for name in chosen:
        if name not in known:
            raise ProfileError(f"arm '{name}' is unknown: choose of {', '.join(known)}")
    return [name for name in known if name in chosen]


if __name__ == "__main__":
    sys.exit(main())
