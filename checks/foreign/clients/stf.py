# SPDX-License-Identifier: Apache-2.0
"""p4c's simple test format: every case of p4c's samples, compiled by p4c, over P4Runtime."""

import re
import sys

from accesspoint.checks.foreign.case import Failed, NotRun, case
from accesspoint.checks.foreign.stand import Stand
from accesspoint.topologies.requirements import ROOT


@case(
    "p4c-stf",
    "p4lang/p4c",
    "testdata/p4_16_samples: the cases in simple test format",
    folder="p4c",
    seconds=1500,
    known={"bmv2": "[BMv2's server and v1model's limits on it](../switch/bmv2.md#different)"},
)
def stf(stand: Stand) -> str:
    samples = stand.folder("p4c") / "testdata/p4_16_samples"
    if not samples.is_dir():
        raise NotRun(f"{samples} is missing")
    output = stand.run(
        *(sys.executable, "-m", "accesspoint.checks.conformance.stf", samples, "--target", stand.target, "-v"),
        cwd=ROOT,
        seconds=1400,
        environment={"PYTHONPATH": str(ROOT)},
        succeeds=False,
    )
    totals = re.search(r"(\d+) passed, (\d+) failed, (\d+) not applicable", output)
    if not totals:
        raise Failed(output.strip()[-200:] or "nothing was run")
    count = f"{totals[1]} passed, {totals[2]} failed, {totals[3]} are for other architectures"
    if totals[2] != "0":
        failed = re.findall(r"^fail +(\S+)", output, re.M)
        raise Failed(f"{count}: {', '.join(sorted(set(failed)))}")
    return count
