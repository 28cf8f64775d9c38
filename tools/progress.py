#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a long command and says all the while what it is at: `tools/progress.py cargo|pip|apt TITLE -- COMMAND...`

A line at most every few seconds, and one when nothing new was said for a while. What a command complains of is shown;
all that it said is shown when it fails. A command that is done at once says nothing. Needs only Python's own library.
"""

import itertools
import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Callable

EVERY, SILENT = 5.0, 15.0  # s
COMPLAINT = re.compile(r"^(error|warning|E:|W:|ERROR|WARNING)")


# Part of the crates that are done -> part of the time: those that others wait for are small, the program's own come
# last and take longest. From a build of the switch on two cores.
DONE = ((0.0, 0.0), (0.57, 0.2), (0.82, 0.31), (0.92, 0.41), (0.95, 0.49), (0.99, 0.66), (1.0, 1.0))
FIRST = 0.1  # of the time, before which nothing is said of the rest


def cargo() -> Callable[[str], str | None]:
    """`Building [===>   ] 34/187: serde, syn`; what was built before is there at once, and is not counted."""
    began, before = time.monotonic(), None

    def said(line: str) -> str | None:
        nonlocal began, before
        match = re.search(r"(\d+)/(\d+)(?:: (.*?))?$", line) if "Building" in line else None
        if not match:
            return None
        done, crates = int(match[1]), int(match[2])
        if before is None:
            began, before = time.monotonic(), done
        now = f", now {match[3][:70]}" if match[3] else ""
        return f"{done} of {crates} crates{now}{left(done, crates, before, time.monotonic() - began)}"

    return said


def left(done: int, crates: int, before: int, seconds: float) -> str:
    """Estimate the time that is left, by the time so far."""
    first, part = (share(number / crates) for number in (before, done))
    if part >= 1 or (part - first) / (1 - first) < FIRST:
        return ""
    rest = seconds * (1 - part) / (part - first)
    return f", about {rest:.0f} s left" if rest < 100 else f", about {rest / 60:.0f} min left"


def share(crates: float) -> float:
    """Share of the time, by the share of crates that are done."""
    for (low, at), (high, then) in itertools.pairwise(DONE):
        if crates <= high:
            return at + (then - at) * (crates - low) / (high - low)
    return 1.0


def pip() -> Callable[[str], str | None]:
    seen = 0

    def said(line: str) -> str | None:
        nonlocal seen
        if match := re.match(r"\s*(?:Collecting|Downloading|Using cached) ([\w.\[\]-]+)", line):
            seen += line.startswith("Collecting")
            return f"{seen} packages looked up, now {match[1]}"
        if line.startswith("Installing collected packages: "):
            return f"installing {line.count(',') + 1} packages"
        return None

    return said


def apt(packages: int) -> Callable[[str], str | None]:
    steps = {"Get": 0, "Unpacking": 0, "Setting": 0}
    words = {"Get": "fetched", "Unpacking": "unpacked", "Setting": "set up"}

    def said(line: str) -> str | None:
        step = re.split(r"[: ]", line)[0]
        if step not in steps:
            return None
        steps[step] += 1
        return f"{words[step]} {steps[step]} of {packages} packages"

    return said


def run(title: str, read: Callable[[str], str | None], command: list[str]) -> int:
    # cargo's bar tells how far it is; without a terminal it draws none unless asked.
    environment = os.environ | {"CARGO_TERM_PROGRESS_WHEN": "always", "CARGO_TERM_PROGRESS_WIDTH": "120"}
    # MAKEFLAGS of a make with -j: its places are for its own children, and cargo complains that it cannot reach them.
    environment = {name: value for name, value in environment.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    assert process.stdout
    os.set_blocking(process.stdout.fileno(), False)
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    began = spoken = time.monotonic()
    everything, rest, now, told = "", "", "", ""
    while True:
        data = process.stdout.read() if selector.select(timeout=1.0) else None
        if data == b"":
            break
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", (data or b"").decode(errors="replace"))
        *lines, rest = re.split(r"[\r\n]", rest + text)
        for line in lines:
            if (said := read(line.rstrip())) is not None:
                now = said
                continue
            everything += f"{line}\n" if line.strip() else ""
            if COMPLAINT.match(line):
                print(line, flush=True)
        moment = time.monotonic()
        if moment - spoken > (EVERY if now != told else SILENT) and process.poll() is None:
            print(f"{title}: {now or 'begins'} ({moment - began:.0f} s)", flush=True)
            spoken, told = moment, now
    code = process.wait()
    if code:
        print(everything, file=sys.stderr)
    elif time.monotonic() - began > EVERY:
        print(f"{title}: done ({time.monotonic() - began:.0f} s)", flush=True)
    return code


def main() -> int:
    kind, title, _, *command = sys.argv[1:]
    readers = {"cargo": cargo, "pip": pip, "apt": lambda: apt(int(os.environ.get("PACKAGES", "0")))}
    return run(title, readers[kind](), command)


if __name__ == "__main__":
    sys.exit(main())
